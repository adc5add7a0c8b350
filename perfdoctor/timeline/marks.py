"""What a training process marked from inside, put in order: which part of a step it was in, from when to when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perfdoctor.recording.schema import Mark, SerialMark

GRAD, TRAINING = 1, 2
WORKERS, EXHAUSTED = 1, 2
OWN = "own: "
DEVICE = "device "
SERIALISED = "serialised"

# Where the user's code moves tensors: the account knows it as any other of the user's code.
TRANSFER = "transfer"
_DETAILS = {"loader start": "loader start", "gradient sync": "collective"}


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the marked thread's time in one part of a step.

    Attributes:
        phase: as the account knows it: one of ``perfdoctor.knowledge.frames.PHASES``.
        name: as reports show it: the phase, or the name that the user gave.
        detail: a finer location inside it, as in ``perfdoctor.timeline.code_location.CodeLocation``.
        marked: torch's own call was marked; otherwise it is the user's code, and the phase is concluded from what
            stands around it.
        inside: it lies inside the user's ``with``.
    """

    start_ns: int
    end_ns: int
    phase: str
    name: str
    detail: str = ""
    marked: bool = True
    inside: bool = True


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What separates steps from what lies between them.

    Attributes:
        what: ``fetch``, ``exhausted``, ``evaluated``, ``worked``, ``enter``, ``leave``, ``leave loop``, ``step``,
            ``observe`` or ``observed``.
    """

    time_ns: int
    what: str


@dataclass
class Marks:
    """The marks of one process.

    Attributes:
        segments: in order and without gaps, from the first mark to the last.
        events: in order.
        pauses: beginnings and ends of the cyclic collector's runs.
        tracks: what was marked in other ways, as it is: ``device`` by the device in some of the steps, ``serialised``
            by the host after the observed ones.
    """

    segments: list[Segment] = field(default_factory=list)
    events: list[StepEvent] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)
    tracks: dict[str, list[Mark]] = field(default_factory=dict)


def read_marks(marks: Iterable[Mark], isolated: Iterable[SerialMark]) -> dict[int, Marks]:
    """The marks of all processes that made some.

    Args:
        marks: of the observed steps, in order of time.
        isolated: of steps that were made after them with their phases kept apart.
    """
    by_process: dict[int, dict[str, list[Mark]]] = {}
    for mark in marks:
        track = "device" if mark.edge.startswith(DEVICE) else ""
        by_process.setdefault(mark.pid, {}).setdefault(track, []).append(mark)
    for later in isolated:
        by_process.setdefault(later.pid, {}).setdefault(SERIALISED, []).append(Mark(*later))
    return {pid: with_tracks(tracks) for pid, tracks in by_process.items()}


def with_tracks(tracks: dict[str, list[Mark]]) -> Marks:
    """What the marks of one process tell, those of its host's ordinary track under ""."""
    found = in_order(tracks.pop("", []))
    found.tracks = tracks
    return found


def in_order(marks: Iterable[Mark]) -> Marks:
    """What the marks of one process tell, in order of time."""
    found, walk = Marks(), _Walk()
    paused: int | None = None
    for mark in marks:
        if mark.what == "collector":
            if mark.edge == "end" and paused is not None:
                found.pauses.append((paused, mark.time_ns))
            paused = mark.time_ns if mark.edge == "begin" else None
            continue
        found.segments.extend(walk.pass_by(mark))
        if event := _event(mark, walk):
            found.events.append(StepEvent(mark.time_ns, event))
    found.segments = list(_concluded(found.segments))
    return found


class _Walk:
    """Goes along the marks, and knows in which calls the thread is."""

    def __init__(self) -> None:
        self.open: list[Mark] = []
        self.in_scope = False
        self.ended: Mark | None = None
        self._since_ns: int | None = None

    def pass_by(self, mark: Mark) -> Iterator[Segment]:
        """Passes a border; yields the stretch that ends there, if it is one."""
        if self._since_ns is not None and mark.time_ns > self._since_ns:
            yield self._segment(self._since_ns, mark)
        self._since_ns = mark.time_ns
        self.ended = None
        if mark.what == "scope":
            # Whatever was left by an exception without its end.
            self.open.clear()
            self.in_scope = mark.edge == "begin"
        elif mark.what == "observed":
            pass
        elif mark.edge == "begin":
            self.open.append(mark)
        elif mark.edge == "end":
            self._end(mark)

    def _end(self, mark: Mark) -> None:
        for depth in range(len(self.open) - 1, -1, -1):
            if self.open[depth].what == mark.what:
                self.ended = self.open[depth]
                del self.open[depth:]
                return

    def _segment(self, start_ns: int, end: Mark) -> Segment:
        end_ns = end.time_ns
        if not self.open or self.open[-1].what == "closure":
            return Segment(start_ns, end_ns, "other", "other", marked=False, inside=self.in_scope)
        what, value = self._innermost()
        detail = _DETAILS.get(what, "")
        if what in ("data", "loader start"):
            phase = "data"
            # A loader that has no more waits for its workers to end, unless it keeps them.
            ends = (end.what, end.edge) == ("data", "end") and end.value & EXHAUSTED
            detail = detail or ("fetch" if not value & WORKERS else "loader start" if ends else "loader wait")
        elif what in ("forward", "loss") and any(mark.what == "backward" for mark in self.open):
            phase = "backward"  # activations that are computed anew
        else:
            phase = "other" if what.startswith(OWN) or what == TRANSFER else what
        name = what.removeprefix(OWN) if phase == "other" else phase
        return Segment(start_ns, end_ns, phase, name, detail, marked=phase != "other", inside=self.in_scope)

    def _innermost(self) -> tuple[str, int]:
        """What the thread is in, and the value of its mark: what a model or a loader moves is its own part."""
        last = self.open[-1]
        if last.what == TRANSFER:
            for mark in reversed(self.open):
                if mark.what == "closure":
                    break
                if mark.what != TRANSFER and not mark.what.startswith(OWN):
                    return mark.what, mark.value
        return last.what, last.value


def _event(mark: Mark, walk: _Walk) -> str:
    """What a mark tells about steps; "" for nothing."""
    if mark.what in ("scope", "observed", "step"):
        leave = "leave loop" if mark.value else "leave"
        return {
            ("scope", "begin"): "enter",
            ("scope", "end"): leave,
            ("observed", "begin"): "observe",
            ("observed", "end"): "observed",
        }.get((mark.what, mark.edge), "step")
    if mark.edge == "begin":
        if mark.what in ("data", "loader start"):
            return "fetch"
        return "worked" if mark.what in ("backward", "optimizer") else ""
    if mark.what == "data" and mark.value & EXHAUSTED:
        return "exhausted"
    ended = walk.ended
    if mark.what == "forward" and ended is not None and not (ended.value & GRAD and ended.value & TRAINING):
        return "evaluated"
    return ""


def _concluded(segments: list[Segment]) -> Iterator[Segment]:
    """Names what stands unmarked between two marks.

    Between the forward and the backward pass that is the loss. Between two ``with`` blocks it is the taking of the next
    batch, unless a loader has marked that itself.
    """
    fetched = _fetched_between(segments)
    for number, segment in enumerate(segments):
        phase, detail = segment.phase, segment.detail
        if segment.name == "other":
            before = segments[number - 1].phase if number else ""
            after = segments[number + 1].phase if number + 1 < len(segments) else ""
            if before == "forward" and after == "backward":
                phase = "loss"
            elif not segment.inside and not fetched[number]:
                phase, detail = "data", "fetch"
        name = phase if segment.name == "other" else segment.name
        yield Segment(segment.start_ns, segment.end_ns, phase, name, detail, segment.marked, segment.inside)


def _fetched_between(segments: list[Segment]) -> list[bool]:
    """Per segment, whether a loader marked data in the same run of segments outside of the user's ``with``."""
    found = [False] * len(segments)
    start = 0
    for number in range(len(segments) + 1):
        if number == len(segments) or segments[number].inside != segments[start].inside:
            fetched = any(segment.phase == "data" for segment in segments[start:number])
            found[start:number] = [fetched] * (number - start)
            start = number
    return found
