"""Python stacks over time, read from the segments that py-spy or perfdoctor wrote.

Nobody stops the process, so samples fail where stacks change while they are read: deep ones, and those of Python code
more than those of long calls into C; of py-spy's far more than of ours. What was seen is thus no fair sample. But it is
known when samples failed, and that Python code ran then. Stacks that were seen while Python code ran stand in for those
that were not, as in surveys, where answers of those who are alike stand in for missing ones (hot-deck imputation).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, package_of
from perfdoctor.recording.clock import NS_PER_S, NS_PER_US
from perfdoctor.recording.own_source import NOT_READ, HowWritten
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CODE_FREQUENCY, StackMissed, StackSegment
from perfdoctor.recording.stack_segments import SeenStack, stack_changes
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation, library_call, location_of
from perfdoctor.timeline.evaluation import with_evaluation
from perfdoctor.timeline.loop_positions import with_calls_below, with_hooks, with_loop_positions
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.passes import with_passes

# A stack belongs to an instant if it was seen within this time of it.
STACK_REACH_NS = int(thresholds.STACK_REACH_S * NS_PER_S)
# Mean time between two samples of a process that trains, whoever takes them.
_PERIOD_NS = 50_000_000
# A stack that was not seen to change stands for no more than this.
_LONGEST_NS = STACK_REACH_NS
# A sample of machine code shows what ran within half the time to the next one.
_NEAR_NS = NS_PER_S // CODE_FREQUENCY // 2


@dataclass
class StackSeries:
    """The stacks of one Python thread over time.

    Attributes:
        ident: Python's identifier of the thread (``threading.get_ident``).
        times_ns: when each stack was first seen; it lasted until the next.
        stacks: index into ``Stacks.frames`` per entry; -1 where the thread had no stack, or only a piece was seen.
        is_main: it is its process's main thread, or the one that trains in its place.
        took_over: it is the latter.
        torn_ns: when only a piece of its stack was seen, if it is a main thread.
    """

    pid: int
    ident: int
    times_ns: npt.NDArray[np.int64]
    stacks: npt.NDArray[np.int64]
    is_main: bool
    torn_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    took_over: bool = False

    def near(self, time_ns: int) -> list[tuple[int, int]]:
        """Stacks near an instant, nearest first.

        An entry was seen in each sample until the next one: from when it was first seen to a period before that.

        Returns:
            Distance in nanoseconds, to a sample that shows it, and stack of each.
        """
        times, stacks = self._listed
        at = bisect_right(times, time_ns) - 1
        found: list[tuple[int, int, int]] = []
        for index in range(max(0, at - 3), min(len(times), at + 5)):
            first = times[index]
            last = max(first, times[index + 1] - _PERIOD_NS if index + 1 < len(times) else time_ns)
            # Negative before the first, or after the last sample of them.
            inside = min(time_ns - first, last - time_ns)
            distance = min(inside, _PERIOD_NS // 2) if inside >= 0 else -inside
            if distance <= STACK_REACH_NS and stacks[index] >= 0:
                found.append((distance, index, stacks[index]))
        return [(distance, number) for distance, _, number in sorted(found)]

    def distance_ns(self, time_ns: int) -> float:
        """How far an instant is from one at which a stack was seen for certain: first; infinite where none was."""
        times, stacks = self._listed
        after = bisect_right(times, time_ns)
        around = (index for index in (after - 1, after) if 0 <= index < len(times) and stacks[index] >= 0)
        return min((abs(times[index] - time_ns) for index in around), default=math.inf)

    @cached_property
    def _listed(self) -> tuple[list[int], list[int]]:
        """Times and stacks as Python's own numbers, which are faster to ask for one by one."""
        return self.times_ns.tolist(), self.stacks.tolist()

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """When each stack was first seen, how many nanoseconds it stands for, at most 0.4 s, and which it is."""
        ends = [*self.times_ns[1:].tolist(), int(self.times_ns[-1]) + _LONGEST_NS // 10]
        for number, start, end in zip(self.stacks.tolist(), self.times_ns.tolist(), ends, strict=True):
            if number >= 0:
                yield start, min(end - start, _LONGEST_NS), number

    def thread_name(self, recording: Recording) -> str:
        """How Python calls the thread, or what is known of it."""
        name = recording.thread_names.get((self.pid, self.ident))
        return name or ("main thread" if self.is_main else str(self.ident))

    def amounts_ns(self) -> Amounts[int]:
        """Nanoseconds by stack, each at most 0.4 s at a time."""
        found: Amounts[int] = Amounts()
        for _, lasted_ns, number in self.entries():
            found[number] += lasted_ns
        return found


class CodeSeen(NamedTuple):
    """What the main thread of a process was seen in, at any time.

    Attributes:
        functions: their names without classes.
        phases: as in ``perfdoctor.timeline.code_location.PHASES``.
    """

    functions: frozenset[str] = frozenset()
    phases: frozenset[str] = frozenset()


@dataclass
class Stacks:
    """All stacks of a recording.

    Attributes:
        frames: the distinct stacks, outermost call first.
        locations: where in the code each of them is, same index.
        series: per thread.
    """

    frames: list[tuple[Frame, ...]] = field(default_factory=list)
    locations: list[CodeLocation] = field(default_factory=list)
    series: list[StackSeries] = field(default_factory=list)
    _ids: dict[tuple[Frame, ...], int] = field(default_factory=dict)
    _seen: dict[SeenStack[Frame], int] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        segments: Iterable[StackSegment],
        source: HowWritten = NOT_READ,
    ) -> Stacks:
        """Reads what py-spy or perfdoctor wrote.

        Args:
            segments: in any order.
            source: of the job's own.
        """
        stacks, empty = cls(), SeenStack(Frame)
        entries: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for row in segments:
            for pid, ident, time_us, stack in stack_changes(row.trace, empty):
                number = -1 if stack is empty else stacks._number(stack)
                entries.setdefault((pid, ident), []).append((row.time_ns + time_us * NS_PER_US, number))
        for (pid, ident), found in entries.items():
            found.sort(key=lambda entry: entry[0])
            times, numbers = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
            stacks.series.append(stacks._series(pid, ident, times, numbers))
        stacks._find_training_threads()
        mains = [one.amounts_ns() for one in stacks.series if one.is_main]
        stacks.locations = with_hooks(stacks.frames, stacks.locations, source.read_outs)
        stacks.locations = with_loop_positions(
            stacks.frames, stacks.locations, mains, source.calls, source.loops, source.results
        )
        stacks.locations = with_passes(stacks.frames, stacks.locations, mains, source.once)
        stacks.locations = with_evaluation(stacks.frames, stacks.locations, mains, source.rounds)
        stacks.locations = with_calls_below(stacks.frames, stacks.locations, mains)
        return stacks

    @cached_property
    def below_lines(self) -> dict[str, Amounts[str]]:
        """What was innermost while each line of the job's own was on a stack: package to ns, "" for the line."""
        return self._by_line(lambda stack: package_of(stack[-1].file))

    @cached_property
    def calls_below_lines(self) -> dict[str, Amounts[str]]:
        """What each line called of libraries other than torch: ``package function`` to ns, "" where none is named."""
        return self._by_line(library_call)

    def _by_line(self, name: Callable[[tuple[Frame, ...]], str]) -> dict[str, Amounts[str]]:
        """For how long each line of the job's own was on stacks, by what these are called."""
        found: dict[str, Amounts[str]] = {}
        for series in self.series:
            for number, amount_ns in series.amounts_ns().items():
                if line := self.locations[number].line:
                    found.setdefault(line, Amounts())[name(self.frames[number])] += amount_ns
        return found

    def spent_ns(self, pids: Collection[int] | None = None) -> Amounts[int]:
        """Nanoseconds by stack, of the main threads of all processes or of some together."""
        mains = (series for series in self.series if series.is_main)
        return Amounts.summed(series.amounts_ns() for series in mains if pids is None or series.pid in pids)

    def of_main(self, pid: int) -> StackSeries | None:
        """The main thread's stacks of a process."""
        return next((one for one in self.series if one.pid == pid and one.is_main), None)

    def is_in_loop(self, series: StackSeries) -> bool:
        """Whether a thread was seen in code of a training loop, or in what a loop waits for."""
        return any(self.locations[number].phase != "other" for number in series.stacks.tolist() if number >= 0)

    def _find_training_threads(self) -> None:
        """Where another thread than a process's first one trains, as Ray has it, that is its main thread.

        Ranks run the same code: where none was seen at it, the thread that was seen in what another rank's has run.
        """
        by_process: dict[int, list[StackSeries]] = {}
        for one in self.series:
            by_process.setdefault(one.pid, []).append(one)
        found = {pid: self._most(several, self._training_ns) for pid, several in by_process.items()}
        theirs = {
            number for one in found.values() if one and not one.is_main for number in one.stacks.tolist() if number >= 0
        }
        for pid, several in by_process.items():
            training = found[pid]
            if training is None and theirs:
                training = self._most(several, self._within_ns(theirs))
            if training is not None:
                self._make_main(training)

    @staticmethod
    def _most(several: list[StackSeries], time_ns: Callable[[StackSeries], float]) -> StackSeries | None:
        """The thread with the most of some time; of those with any a main one stays so."""
        some = [(one, spent_ns) for one in several if (spent_ns := time_ns(one)) > 0]
        most, _ = max(some, key=lambda found: (found[0].is_main, found[1]), default=(None, 0))
        return most

    @staticmethod
    def _within_ns(numbers: set[int]) -> Callable[[StackSeries], float]:
        """How long a thread was seen in these stacks."""
        return lambda series: sum(lasted for number, lasted in series.amounts_ns().items() if number in numbers)

    def _make_main(self, training: StackSeries) -> None:
        for one in self.series:
            if one.pid == training.pid:
                one.took_over |= one is training and not one.is_main
                one.is_main = one is training

    def _training_ns(self, series: StackSeries) -> float:
        """How long a thread was seen in a backward pass or an optimizer, which only a thread that trains is in."""
        amounts = series.amounts_ns().items()
        return sum(lasted for number, lasted in amounts if self.locations[number].phase in ("backward", "optimizer"))

    def code_seen(self) -> dict[int, CodeSeen]:
        """By process, what its main thread was seen in; processes without stacks are missing."""
        found: dict[int, CodeSeen] = {}
        for series in self.series:
            if series.is_main and series.pid not in found:
                numbers = {number for number in series.stacks.tolist() if number >= 0}
                functions = {frame.simple_name for number in numbers for frame in self.frames[number]}
                phases = {self.locations[number].phase for number in numbers}
                found[series.pid] = CodeSeen(frozenset(functions), frozenset(phases))
        return found

    def of_others(self, pid: int) -> list[StackSeries]:
        """The stacks of a process's other Python threads."""
        return [one for one in self.series if one.pid == pid and not one.is_main]

    def of_other(self, pid: int, ident: int | None) -> StackSeries | None:
        """Those of one of them, by Python's identifier; None if none were seen, or it is not known."""
        return next((one for one in self.of_others(pid) if one.ident == ident), None)

    def _number(self, stack: SeenStack[Frame]) -> int:
        if stack not in self._seen:
            own = _own_part(stack.frames)
            if own not in self._ids:
                self._ids[own] = len(self.frames)
                self.frames.append(own)
                self.locations.append(location_of(own))
            self._seen[stack] = self._ids[own]
        return self._seen[stack]

    def _series(
        self, pid: int, ident: int, times: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
    ) -> StackSeries:
        """A main thread's stacks begin with one and the same call; those that do not changed while they were read."""
        begins = [self.frames[number][:1] if number >= 0 else () for number in numbers.tolist()]
        calls = [(frames[0].file, frames[0].simple_name) if frames else None for frames in begins]
        usual, count = Counter(call for call in calls if call).most_common(1)[0] if any(calls) else (("", ""), 0)
        # A thread started by Python code begins in threading's bootstrap.
        is_main = count > 0 and not (usual[0].endswith("threading.py") and "_bootstrap" in usual[1])
        torn = np.array([call not in (None, usual) for call in calls], dtype=bool) & is_main
        if 2 * np.count_nonzero(torn) >= len(calls):
            torn[:] = False
        return StackSeries(pid, ident, times, np.where(torn, -1, numbers), is_main, times[torn])


def _own_part(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A stack without py-spy's line for the process, and in a forked child without the frames of its parent."""
    stack = tuple(frame for frame in stack if frame.file)
    for depth in range(len(stack) - 1, 0, -1):
        if stack[depth].simple_name == "_bootstrap" and stack[depth].file.endswith("multiprocessing/process.py"):
            return stack[depth:]
    return stack


@dataclass(frozen=True)
class FailedSamples:
    """Stack samples of one main thread that failed.

    Attributes:
        times_ns: when its stack was sampled in vain, in order.
        stand_ins: its stacks that were seen while the interpreter was at work.
    """

    times_ns: npt.NDArray[np.int64]
    stand_ins: StackSeries

    def is_nearer(self, time_ns: int, distance_ns: int) -> bool:
        """Whether a failed sample is nearer to an instant than this."""
        after = int(self.times_ns.searchsorted(time_ns))
        return any(abs(time - time_ns) < distance_ns for time in self.times_ns[max(0, after - 1) : after + 1].tolist())


def find_failed(series: StackSeries, missed: Iterable[StackMissed], code: CodeSamples) -> FailedSamples | None:
    """The failed samples of a main thread; None if there were none, or nothing can stand in for them.

    Args:
        series: its stacks.
        missed: samples of any thread's stack that failed.
        code: samples of any thread's machine code.
    """
    failed = [row.time_ns for row in missed if (row.pid, row.ident) == (series.pid, series.ident)]
    times = np.sort(np.array([*failed, *series.torn_ns.tolist()], dtype=np.int64))
    if not len(times):
        return None
    in_python = code.of(series.pid).of_kind("interpreter").times_ns
    distances = _distances_ns(in_python, series.times_ns)
    alike = (distances <= _NEAR_NS) & (series.stacks >= 0)
    if not alike.any():
        return None
    return FailedSamples(times, replace(series, times_ns=series.times_ns[alike], stacks=series.stacks[alike]))


def _distances_ns(times: npt.NDArray[np.int64], instants: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How far each instant is from the nearest of some times, in order."""
    after = np.searchsorted(times, instants)
    around = np.concatenate([[-np.inf], times, [np.inf]])
    return np.asarray(np.minimum(instants - around[after], around[after + 1] - instants), dtype=np.float64)
