"""How much of the time lies in what torch does again, or without need, as its frames below the job's lines show."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import BY_FRAMES, COMPUTED_AGAIN, FREED, MODULES_MADE
from perfdoctor.knowledge.frames import Frame, FrameMeaning, calls_model, is_own
from perfdoctor.metrics.own_detours import CostlyDetour, Piece, cause_of
from perfdoctor.recording.own_source import SourceLoop, lines_of
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import place_of
from perfdoctor.timeline.stacks import Stacks

_MAKES = "__init__"


def find_in_stacks(
    stacks: Stacks,
    trainers: Collection[int],
    loops: Collection[SourceLoop],
    own: Mapping[str, Mapping[str, float]],
    at_work: float,
) -> Iterator[CostlyDetour]:
    """Such detours in the trainers' steps that take enough of the time to be reported.

    Args:
        stacks: the job's.
        trainers: process ids.
        loops: of the job's own source.
        own: the lines of each cause, ``"file.py:12 function"`` to seconds.
        at_work: the fraction of the wall time in which main threads do not queue for a core.
    """
    spent, in_loops = stacks.spent_ns(trainers), lines_of(loops)
    for way, rows in BY_FRAMES.items() if spent.total else ():
        asked, lines, made = Amounts[str](), Amounts[str](), Amounts[str]()
        for number, amount in spent.items():
            frames, location = stacks.frames[number], stacks.locations[number]
            depth = _asks(frames, rows) if location.is_in_step else None
            if depth is None:
                continue
            frame = frames[depth]
            of_loop = (frame.file, frame.line) in in_loops and calls_model(frames[:depth])
            if way == COMPUTED_AGAIN and not of_loop:
                continue
            asked[place_of(frame)] += amount
            lines[location.line] += amount
            made[_class_made(frames[depth + 1]) if way == MODULES_MADE else ""] += amount
        likely = FREED[way].likely if way in FREED else 1.0
        if likely * asked.total >= thresholds.REPORTED_SHARE * spent.total:
            pieces = tuple(Piece(name, "", "") for name in made if name)
            share = at_work * asked.total / spent.total
            yield CostlyDetour(
                way, max(asked, key=asked.__getitem__), frozenset(lines), pieces, share, cause_of(lines, own)
            )


def _asks(frames: Sequence[Frame], rows: Collection[FrameMeaning]) -> int | None:
    """Where on a stack the job's own code asks for it: of what is made, for the outermost."""
    first = next((depth for depth, frame in enumerate(frames) if any(row.matches(frame) for row in rows)), 0)
    own = (depth for depth in range(first) if is_own(frames[depth]) and frames[depth].simple_name != _MAKES)
    return max(own, default=None)


def _class_made(frame: Frame) -> str:
    """The class that a frame makes one of; "" where it makes none or has no class's name, as before Python 3.11."""
    return frame.function.rpartition(".")[0].rpartition(".")[2] if frame.simple_name == _MAKES else ""
