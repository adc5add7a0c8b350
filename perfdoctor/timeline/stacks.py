"""Python stacks over time, read from the segments that py-spy wrote."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdoctor.amounts import Amounts
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import StackSegment
from perfdoctor.timeline.code_location import Place, locate

_NS_PER_US = 1000
# A stack belongs to an instant if it was seen within this time of it: several samples of py-spy at its slowest rate.
STACK_REACH_NS = 400_000_000
# py-spy's mean time between two samples of a process that trains (it draws each anew, exponentially distributed).
STACK_PERIOD_NS = 50_000_000
# A stack that was not seen to change stands for no more than this.
_LONGEST_NS = 400_000_000


@dataclass
class Track:
    """The stacks of one Python thread over time.

    Attributes:
        ident: Python's identifier of the thread (``threading.get_ident``).
        times_ns: when each stack was first seen; it lasted until the next.
        stacks: index into ``Stacks.frames`` per entry; -1 where the thread had no stack, or only a piece was seen.
        is_main: it is its process's main thread.
        torn_ns: when only a piece of its stack was seen, if it is a main thread.
    """

    pid: int
    ident: int
    times_ns: npt.NDArray[np.int64]
    stacks: npt.NDArray[np.int64]
    is_main: bool
    torn_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def near(self, time_ns: int) -> list[tuple[int, int]]:
        """Stacks near an instant, nearest first.

        An entry lasts until the next one, so it is never farther away than the usual time between two samples.

        Returns:
            Distance in nanoseconds and stack of each.
        """
        times = self.times_ns
        at = int(np.searchsorted(times, time_ns, side="right")) - 1
        found: list[tuple[int, int, int]] = []
        for index in range(max(0, at - 3), min(len(times), at + 5)):
            if index > at:
                distance = int(times[index]) - time_ns
            elif index == at:
                distance = min(time_ns - int(times[at]), STACK_PERIOD_NS)
            else:
                distance = time_ns - int(times[index + 1]) + STACK_PERIOD_NS // 2
            if distance <= STACK_REACH_NS and self.stacks[index] >= 0:
                found.append((distance, index, int(self.stacks[index])))
        return [(distance, number) for distance, _, number in sorted(found)]

    def amounts_ns(self) -> Amounts[int]:
        """Nanoseconds by stack, each at most 0.4 s at a time."""
        found: Amounts[int] = Amounts()
        ends = [*self.times_ns[1:].tolist(), self.times_ns[-1] + _LONGEST_NS // 10]
        for number, start, end in zip(self.stacks.tolist(), self.times_ns.tolist(), ends, strict=True):
            if number >= 0:
                found[number] += min(end - start, _LONGEST_NS)
        return found


@dataclass
class Stacks:
    """All stacks of a recording.

    Attributes:
        frames: the distinct stacks, outermost call first.
        places: what each of them tells, same index.
        tracks: per thread.
    """

    frames: list[tuple[Frame, ...]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    _ids: dict[tuple[Frame, ...], int] = field(default_factory=dict)

    @classmethod
    def read(cls, recording: Recording) -> Stacks:
        """Reads all segments of a recording."""
        stacks = cls()
        entries: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row in recording.rows(StackSegment):
            try:
                events = json.loads(zlib.decompress(row.trace))
            except (ValueError, zlib.error):
                continue  # py-spy was killed while it wrote
            for pid, ident, time_us, stack in _changes(events):
                number = stacks._number(stack) if stack else -1
                entries.setdefault((pid, ident), []).append((row.time_ns + time_us * _NS_PER_US, number))
        for (pid, ident), found in entries.items():
            found.sort(key=lambda entry: entry[0])
            times, numbers = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
            stacks.tracks.append(stacks._track(pid, ident, times, numbers))
        return stacks

    def main_track(self, pid: int) -> Track | None:
        """The main thread's stacks of a process."""
        return next((track for track in self.tracks if track.pid == pid and track.is_main), None)

    def others(self, pid: int) -> list[Track]:
        """The stacks of a process's other Python threads."""
        return [track for track in self.tracks if track.pid == pid and not track.is_main]

    def _number(self, stack: tuple[Frame, ...]) -> int:
        stack = _own_part(stack)
        if stack not in self._ids:
            self._ids[stack] = len(self.frames)
            self.frames.append(stack)
            self.places.append(locate(stack))
        return self._ids[stack]

    def _track(self, pid: int, ident: int, times: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> Track:
        """A main thread's stacks begin with one and the same call; those that do not changed while they were read."""
        begins = [self.frames[number][:1] if number >= 0 else () for number in numbers.tolist()]
        calls = [(frames[0].file, frames[0].simple_name) if frames else None for frames in begins]
        usual, count = Counter(call for call in calls if call).most_common(1)[0] if any(calls) else (("", ""), 0)
        # A thread started by Python code begins in threading's bootstrap.
        is_main = count > 0 and not (usual[0].endswith("threading.py") and "_bootstrap" in usual[1])
        torn = np.array([call not in (None, usual) for call in calls], dtype=bool) & is_main
        if 2 * np.count_nonzero(torn) >= len(calls):
            torn[:] = False
        return Track(pid, ident, times, np.where(torn, -1, numbers), is_main, times[torn])


def _own_part(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A stack without py-spy's line for the process, and in a forked child without the frames of its parent."""
    stack = tuple(frame for frame in stack if frame.file)
    for depth in range(len(stack) - 1, 0, -1):
        if stack[depth].simple_name == "_bootstrap" and stack[depth].file.endswith(
            "multiprocessing/process.py"
        ):
            return stack[depth:]
    return stack


_Change = tuple[int, int, int, tuple[Frame, ...]]


def _changes(events: list[dict[str, Any]]) -> Iterator[_Change]:
    """Whenever a thread's stack changed: pid, thread identifier, microseconds, the new stack."""
    open_frames: dict[tuple[int, int], list[Frame]] = {}
    pending: dict[tuple[int, int], int] = {}
    for event in events:
        key = (event["pid"], event["tid"])
        stack = open_frames.setdefault(key, [])
        if key in pending and pending[key] != event["ts"]:
            yield key[0], key[1], pending[key], tuple(stack)
        pending[key] = event["ts"]
        if event["ph"] == "B":
            arguments = event["args"]
            stack.append(Frame(arguments["filename"], event["name"], arguments["line"]))
        elif stack:
            stack.pop()
    for key, time_us in pending.items():
        yield key[0], key[1], time_us, tuple(open_frames[key])
