"""How much of the time lies in what the job's own source does again, or for nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfdoctor.causes import (
    CAUSES,
    DATA_TRANSFER,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    LOG_WRITE,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import (
    BY_FRAMES,
    COPIED,
    COPIES_TENSORS,
    DROPS_OUT,
    FREED,
    IN_ATTENTION,
    JOINED_CUT,
    WEIGHS,
    WEIGHTS_UNUSED,
    WITHOUT_MODULES,
)
from perfdoctor.knowledge.frames import Frame, calls_model
from perfdoctor.metrics.names import Trainers
from perfdoctor.recording.own_source import SourceDetour, by_line
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import Stacks

# Causes that detours can lie in: it is known at which lines of the trainer's own they are.
_WORK = (PYTHON_OVERHEAD, MODEL_COMPUTE, INPUT_PREPROCESSING, KERNEL_LAUNCH, DATA_TRANSFER, LOG_WRITE)


class Piece(NamedTuple):
    """One of the statements of a detour, as ``SourceDetour`` has it."""

    kept: str
    new: str
    put: str


@dataclass(frozen=True, slots=True)
class CostlyDetour:
    """A detour that a function of the job's own makes in some statements, and that a part of the time lies in.

    Attributes:
        way: which one it is, as ``knowledge.detours`` has them.
        line: its costliest statement, as ``lines`` of a case have them.
        lines: the innermost lines of the job's own in it, what it calls included.
        pieces: its statements, the costliest first.
        share: fraction of the wall time.
        cause: in which most of that lies.
    """

    way: str
    line: str
    lines: frozenset[str]
    pieces: tuple[Piece, ...]
    share: float
    cause: str


class _Seen:
    """What main threads did in one detour of one function."""

    def __init__(self) -> None:
        self.lines = Amounts[str]()
        self.statements = Amounts[SourceDetour]()
        self.copying = 0.0

    def is_one(self, way: str) -> bool:
        """Whether it is what its source looks like: what is copied holds tensors."""
        return way != COPIED or self.copying >= thresholds.SHOWN_PART * self.lines.total


def find_costly(
    stacks: Stacks,
    trainers: Trainers,
    detours: Collection[SourceDetour],
    own: Mapping[str, Mapping[str, float]],
    at_work: float,
) -> tuple[CostlyDetour, ...]:
    """The detours that take enough of the time to be reported, the costliest first.

    Args:
        stacks: the job's.
        trainers: they, since a launcher's time is none of the steps', and their loader workers, whose time counts as
            far as trainers wait for input.
        detours: in its source.
        own: the lines of each cause, ``"file.py:12 function"`` to seconds; they have the backward pass at other ones.
        at_work: the fraction of the wall time in which main threads do not queue for a core; they do at any line.
    """
    detours = [one for one in detours if one.way in FREED]  # a recording of an earlier version may have others
    if any(one.way == WEIGHTS_UNUSED for one in detours) and _drops_out(stacks):
        detours = [one for one in detours if one.way != WEIGHTS_UNUSED]
    of_trainers = stacks.spent_ns([pid for pid, _ in trainers])
    of_workers = stacks.spent_ns([worker for _, workers in trainers for worker in workers])
    if not detours or not of_trainers.total:
        return ()
    seen: dict[tuple[str, str, str], _Seen] = {}
    at, waited = by_line(one for one in detours if one.way not in BY_FRAMES), _part_of_input(own)
    parts = {number: amount / of_trainers.total for number, amount in of_trainers.items()}
    for number, amount in of_workers.items():
        parts[number] = parts.get(number, 0.0) + waited * amount / of_workers.total
    for number, part in parts.items():
        line, frames = stacks.locations[number].line, stacks.frames[number]
        copying = any(frame.simple_name == COPIES_TENSORS for frame in frames)
        places: dict[int, _Seen] = {}  # each once, however many of its statements the stack is in
        for one, frame in _in_stack(frames, at).items():
            place = seen.setdefault((one.way, one.file, frame.function), _Seen())
            place.statements[one] += part
            places[id(place)] = place
        for place in places.values():
            place.lines[line] += part
            place.copying += part * copying
    found = []
    for (way, file, function), place in seen.items():
        # Whether it is worth a word does not depend on who else takes cores just now.
        of_work = place.lines.total
        goes_with_it = max(1.0, FREED[way].likely)  # in the backward pass, for instance
        if goes_with_it * of_work >= thresholds.REPORTED_SHARE and place.is_one(way):
            statements = sorted(place.statements, key=lambda one: -place.statements[one])
            if way == JOINED_CUT:  # what is kept in step, short as its joining may be
                name = function.rpartition(".")[2]
                statements += [one for one in detours if (one.way, one.file, one.function) == (way, file, name)]
            pieces = dict.fromkeys(Piece(one.kept, one.new, one.put) for one in statements)
            line, lines = f"{file}:{statements[0].line} {function}", frozenset(place.lines)
            found.append(CostlyDetour(way, line, lines, tuple(pieces), at_work * of_work, cause_of(lines, own)))
    return tuple(sorted(found, key=lambda one: -one.share))


def _part_of_input(own: Mapping[str, Mapping[str, float]]) -> float:
    """How much of the time with known lines is for input."""
    everywhere = Amounts({cause: sum(lines.values()) for cause, lines in own.items()})
    return everywhere[INPUT_PREPROCESSING] / everywhere.total if everywhere.total else 0.0


def cause_of(lines: Collection[str], own: Mapping[str, Mapping[str, float]]) -> str:
    """The cause that time at some lines is in: one that is no fault only where next to nothing of it is in another.

    Where none is known, as of the lines of a backward pass, it is the one that most of all time is in.
    """
    there = Amounts({cause: sum(own.get(cause, {}).get(line, 0.0) for line in lines) for cause in _WORK})
    everywhere = Amounts({cause: sum(own.get(cause, {}).values()) for cause in _WORK})
    faults = [cause for cause in _WORK if not CAUSES[cause].healthy]
    found = max(faults, key=lambda cause: there[cause])
    if there.total and there[found] >= thresholds.NAMED_LOOP * there.total:
        return found
    return max(_WORK, key=lambda cause: (there if there.total else everywhere)[cause])


def _in_stack(
    frames: Sequence[Frame], at: Mapping[tuple[str, int], Iterable[SourceDetour]]
) -> dict[SourceDetour, Frame]:
    """The detours that a stack is in, each with the outermost call that is; a module is called at the same line."""
    found: dict[SourceDetour, Frame] = {}
    for depth, frame in enumerate(frames):
        for one in at.get((frame.file, frame.line), ()):
            below = frames[depth + 1 :]
            modules = one.way in WITHOUT_MODULES and calls_model(below[:1])
            if not modules and (one.way != WEIGHTS_UNUSED or _weighs(below)):
                found.setdefault(one, frame)
    return found


def _weighs(frames: Sequence[Frame]) -> bool:
    """Whether a layer of torch's for attention computes its weights one by one."""
    return any(map(IN_ATTENTION.matches, frames)) and WEIGHS.matches(frames[-1])


def _drops_out(stacks: Stacks) -> bool:
    """Whether such a layer drops weights at random."""
    return any(DROPS_OUT.matches(one[-1]) and any(map(IN_ATTENTION.matches, one)) for one in stacks.frames if one)
