"""What a training process marked from inside, put in order: which part of a step it was in, from when to when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from perfdoctor.recording.reader import Recording, by_field
from perfdoctor.recording.schema import Mark, SerialMark

Times = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Bits of the values of marks, as ``perfdoctor.probes.inside.wrappers`` sets them: of forward passes, and of loaders.
GRAD, TRAINING = 1, 2
WORKERS, EXHAUSTED = 1, 2  # likewise
OWN = "own: "
DEVICE = "device "
SERIALISED = "serialised"

# Where the user's code moves tensors: the account knows it as any other of the user's code.
TRANSFER = "transfer"
_DETAILS = {"loader start": "loader start", "gradient sync": "collective"}


class MarkedPart(NamedTuple):
    """What a thread does in a stretch of its time.

    Attributes:
        phase: as the account knows it: one of ``perfdoctor.knowledge.frames.PHASES``.
        name: as reports show it: the phase, or the name that the user gave.
        detail: a finer location inside it, as in ``perfdoctor.timeline.code_location.CodeLocation``.
        marked: torch's own call was marked; otherwise it is the user's code, and the phase is concluded from what
            stands around it.
        inside: it lies inside the user's ``with``.
    """

    phase: str
    name: str
    detail: str = ""
    marked: bool = True
    inside: bool = True


class Segment(NamedTuple):
    """A stretch of the marked thread's time in one part of a step; the other fields are those of a ``MarkedPart``."""

    start_ns: int
    end_ns: int
    phase: str
    name: str
    detail: str
    marked: bool
    inside: bool


class Segments(Sequence[Segment]):
    """Stretches in order and without gaps: millions of them, of a few parts.

    Args:
        borders_ns: where they begin, and where the last one ends.
        numbers: of the part that each is in.
        parts: by their numbers.
    """

    def __init__(
        self, borders_ns: Times | None = None, numbers: Numbers | None = None, parts: Sequence[MarkedPart] = ()
    ) -> None:
        none = np.empty(0, dtype=np.int64)
        borders_ns = none if borders_ns is None else borders_ns
        self.starts_ns, self.ends_ns = borders_ns[:-1], borders_ns[1:]
        self.numbers, self.parts = none if numbers is None else numbers, parts

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | Sequence[Segment]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return Segment(int(self.starts_ns[index]), int(self.ends_ns[index]), *self.parts[self.numbers[index]])

    def index_at(self, time_ns: int) -> int:
        """Which one an instant lies in; -1 before the first and after the last."""
        index = int(self.starts_ns.searchsorted(time_ns, side="right")) - 1
        return index if index >= 0 and time_ns < self.ends_ns[index] else -1

    def names_at(self, times_ns: Times) -> npt.NDArray[np.object_]:
        """The names of what some instants lie in; ``other`` for those in none."""
        names = np.array([*(part.name for part in self.parts), "other"], dtype=object)
        if not len(self):
            return np.full(len(times_ns), "other", dtype=object)
        index = self.starts_ns.searchsorted(times_ns, side="right") - 1
        inside = (index >= 0) & (times_ns < self.ends_ns[index])
        return np.asarray(names[np.where(inside, self.numbers[index], -1)])


class StepEvents(NamedTuple):
    """What separates steps from what lies between them.

    Attributes:
        times_ns: when each was, in order.
        what: ``fetch``, ``exhausted``, ``evaluated``, ``worked``, ``enter``, ``leave``, ``leave loop``, ``step``,
            ``observe`` or ``observed``.
    """

    times_ns: Times
    what: npt.NDArray[np.object_]

    @classmethod
    def listed(cls, events: Iterable[tuple[int, str]]) -> StepEvents:
        """Each with its time."""
        listed = list(events)
        return cls(
            np.array([time_ns for time_ns, _ in listed], dtype=np.int64),
            np.array([what for _, what in listed], dtype=object),
        )

    def during(self, from_ns: int, to_ns: int) -> list[str]:
        """Those between two instants, which belong to it."""
        found: list[str] = self.what[(self.times_ns >= from_ns) & (self.times_ns <= to_ns)].tolist()
        return found


@dataclass
class Marks:
    """The marks of one process.

    Attributes:
        segments: in order and without gaps, from the first mark to the last.
        events: in order.
        pauses: beginnings and ends of the cyclic collector's runs, a row each.
        tracks: what was marked in other ways, as it is: ``device`` by the device in some of the steps, ``serialised``
            by the host after the observed ones.
    """

    segments: Segments = field(default_factory=Segments)
    events: StepEvents = field(default_factory=lambda: StepEvents.listed(()))
    pauses: Times = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    tracks: dict[str, list[Mark]] = field(default_factory=dict)


# Edge, what and value of a mark.
Border = tuple[str, str, int]


class _Track(NamedTuple):
    """Marks in order of time, as columns.

    Attributes:
        times_ns: of each.
        numbers: of the border that each marks.
        borders: by their numbers; a job has a few of them.
    """

    times_ns: Times
    numbers: Numbers
    borders: Sequence[Border]

    @classmethod
    def of(cls, times: Sequence[int], edges: Sequence[str], whats: Sequence[str], values: Sequence[int]) -> _Track:
        known: dict[Border, int] = {}
        numbers = [known.setdefault(border, len(known)) for border in zip(edges, whats, values, strict=True)]
        return cls(np.array(times, dtype=np.int64), np.array(numbers, dtype=np.int64), list(known))

    def where(self, chosen: Flags) -> _Track:
        return _Track(self.times_ns[chosen], self.numbers[chosen], self.borders)

    def are(self, flags: Iterable[bool]) -> Flags:
        """For each mark, what is said of its border."""
        return np.array([*flags], dtype=bool)[self.numbers]

    def marks(self, pid: int) -> list[Mark]:
        each = zip(self.times_ns.tolist(), self.numbers.tolist(), strict=True)
        return [Mark(time_ns, pid, *self.borders[number]) for time_ns, number in each]


def read_marks(recording: Recording) -> dict[int, Marks]:
    """The marks of all processes that made some: of the observed steps, and of those with their phases kept apart."""
    times, pids, edges, whats, values = recording.columns(Mark, "time_ns", "pid", "edge", "what", "value")
    track, of = _Track.of(times, edges, whats, values), np.array(pids, dtype=np.int64)
    by_device = track.are(edge.startswith(DEVICE) for edge, _, _ in track.borders)
    isolated: dict[int, list[Mark]] = {}
    for later in recording.rows(SerialMark):
        isolated.setdefault(later.pid, []).append(Mark(*later))
    found = {}
    for pid in dict.fromkeys([*dict.fromkeys(pids), *isolated]):
        found[pid] = made = _in_order(track.where((of == pid) & ~by_device))
        if on_device := track.where((of == pid) & by_device).marks(pid):
            made.tracks["device"] = on_device
        if pid in isolated:
            made.tracks[SERIALISED] = isolated[pid]
    return found


def in_order(marks: Iterable[Mark]) -> Marks:
    """What the marks of one process tell, in order of time."""
    return _in_order(_Track.of(*by_field(list(marks), ("time_ns", "edge", "what", "value"))))


def _in_order(track: _Track) -> Marks:
    collects = track.are(what == "collector" for _, what, _ in track.borders)
    walked = track.where(~collects)
    parts, events = _walk(walked)
    times = walked.times_ns
    lasted = np.flatnonzero(np.diff(times) > 0)
    kept = np.append(times[lasted], times[-1:])
    happened = np.flatnonzero(events != "")
    return Marks(
        _concluded(Segments(kept, parts.numbers[lasted + 1], parts.parts)),
        StepEvents(times[happened], events[happened]),
        _pauses(track.where(collects)),
    )


def _pauses(track: _Track) -> Times:
    begins = track.are(edge == "begin" for edge, _, _ in track.borders)
    ends = track.are(edge == "end" for edge, _, _ in track.borders)
    first = np.flatnonzero(begins[:-1] & ends[1:])
    return np.stack([track.times_ns[first], track.times_ns[first + 1]], axis=1)


class _Parts(NamedTuple):
    """The parts that end at some marks, by number."""

    numbers: Numbers
    parts: Sequence[MarkedPart]


def _walk(track: _Track) -> tuple[_Parts, npt.NDArray[np.object_]]:
    """Goes along the marks, and knows in which calls the thread is.

    Steps are alike: which calls are open takes few values, and what a border means in each of them is concluded once.

    Returns:
        For each mark which part of a step ends there, and what it says about steps; "" for nothing.
    """
    outside, inside = _Open(), _Open(in_scope=True)
    numbers: dict[tuple[MarkedPart, str], int] = {}

    def learn(here: _Open, number: int) -> tuple[int, _Open]:
        border = track.borders[number]
        there, ended = here.passed(border, outside, inside)
        meaning = here.part(border), _event(border, ended)
        here.known[number] = numbers.setdefault(meaning, len(numbers)), there
        return here.known[number]

    here = outside
    passed = []
    for number in track.numbers.tolist():
        meaning, here = here.known.get(number) or learn(here, number)
        passed.append(meaning)
    meant_by = np.array(passed, dtype=np.int64)
    events = np.array([event for _, event in numbers], dtype=object)
    return _Parts(meant_by, [part for part, _ in numbers]), events[meant_by]


class _Open:
    """A call that is open inside others, or none.

    Attributes:
        call: as it was marked; None outside of all.
        around: the call that this one lies in.
        in_scope: it lies inside the user's ``with``.
        known: by the number of a border what that means here, and what is open behind it.
    """

    def __init__(self, call: Border | None = None, around: _Open | None = None, *, in_scope: bool = False) -> None:
        self.call, self.around, self.in_scope = call, around, in_scope
        self.known: dict[int, tuple[int, _Open]] = {}
        self._inside: dict[Border, _Open] = {}

    def passed(self, border: Border, outside: _Open, inside: _Open) -> tuple[_Open, Border | None]:
        """What is open behind a border, and the call that ended there."""
        edge, what, _ = border
        if what == "scope":
            # Whatever was left by an exception without its end.
            return (inside if edge == "begin" else outside), None
        if what != "observed" and edge == "begin":
            if border not in self._inside:
                self._inside[border] = _Open(border, self, in_scope=self.in_scope)
            return self._inside[border], None
        if what != "observed" and edge == "end":
            for one in self._outwards():
                if one.call is not None and one.call[1] == what and one.around is not None:
                    return one.around, one.call
        return self, None

    def part(self, end: Border) -> MarkedPart:
        """What the thread did until a border."""
        if self.call is None or self.call[1] == "closure":
            return MarkedPart("other", "other", marked=False, inside=self.in_scope)
        what, value = self._innermost()
        detail = _DETAILS.get(what, "")
        if what in ("data", "loader start"):
            phase = "data"
            # A loader that has no more waits for its workers to end, unless it keeps them.
            ends = end[:2] == ("end", "data") and end[2] & EXHAUSTED
            detail = detail or ("fetch" if not value & WORKERS else "loader start" if ends else "loader wait")
        elif what in ("forward", "loss") and any(one.call and one.call[1] == "backward" for one in self._outwards()):
            phase = "backward"  # activations that are computed anew
        else:
            phase = "other" if what.startswith(OWN) or what == TRANSFER else what
        name = what.removeprefix(OWN) if phase == "other" else phase
        return MarkedPart(phase, name, detail, marked=phase != "other", inside=self.in_scope)

    def _innermost(self) -> tuple[str, int]:
        """What the thread is in, and the value of its mark: what a model or a loader moves is its own part."""
        _, what, value = self.call or ("", "", 0)
        if what == TRANSFER:
            for one in self._outwards():
                if one.call is None or one.call[1] == "closure":
                    break
                if one.call[1] != TRANSFER and not one.call[1].startswith(OWN):
                    return one.call[1:]
        return what, value

    def _outwards(self) -> Iterator[_Open]:
        one: _Open | None = self
        while one is not None:
            yield one
            one = one.around


def _event(border: Border, ended: Border | None) -> str:
    """What a mark says about steps, and the call that ended there if one did; "" for nothing."""
    edge, what, value = border
    if what in ("scope", "observed", "step"):
        leave = "leave loop" if value else "leave"
        return {
            ("scope", "begin"): "enter",
            ("scope", "end"): leave,
            ("observed", "begin"): "observe",
            ("observed", "end"): "observed",
        }.get((what, edge), "step")
    if edge == "begin":
        if what in ("data", "loader start"):
            return "fetch"
        return "worked" if what in ("backward", "optimizer") else ""
    if what == "data" and value & EXHAUSTED:
        return "exhausted"
    if what == "forward" and ended is not None and not (ended[2] & GRAD and ended[2] & TRAINING):
        return "evaluated"
    return ""


def _concluded(segments: Segments) -> Segments:
    """Names what stands unmarked between two marks.

    Between the forward and the backward pass that is the loss. Between two ``with`` blocks it is the taking of the next
    batch, unless a loader has marked that itself.
    """
    if not len(segments):
        return segments
    parts, numbers = list(segments.parts), segments.numbers

    def are(flags: Iterable[bool]) -> Flags:
        return np.array([*flags], dtype=bool)[numbers]

    unmarked = are(part.name == "other" for part in parts)
    after_forward = np.append(False, are(part.phase == "forward" for part in parts)[:-1])
    before_backward = np.append(are(part.phase == "backward" for part in parts)[1:], False)
    loss = unmarked & after_forward & before_backward
    inside, data = are(part.inside for part in parts), are(part.phase == "data" for part in parts)
    taken = unmarked & ~loss & ~inside & ~_in_run(inside, data)
    as_loss = [part._replace(phase="loss", name="loss") for part in parts]
    as_data = [part._replace(phase="data", name="data", detail="fetch") for part in parts]
    numbers = np.select([loss, taken], [numbers + len(parts), numbers + 2 * len(parts)], numbers)
    parts = [*parts, *as_loss, *as_data]
    return Segments(np.append(segments.starts_ns, segments.ends_ns[-1:]), numbers, parts)


def _in_run(runs: Flags, wanted: Flags) -> Flags:
    """Per segment, whether any in the same run of segments that are alike is wanted."""
    begins = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    return np.repeat(np.logical_or.reduceat(wanted, begins), np.diff(np.append(begins, len(runs))))
