"""How much of the time lies in what torch does again, or without need, as its frames below the job's lines show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import BY_FRAMES, COMPUTED_AGAIN, FREED, KEEPS_KEYS, UNCACHED
from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.metrics.own_detours import CostlyDetour, Piece, cause_of
from perfdoctor.metrics.own_loops import in_loop_of_model
from perfdoctor.recording.own_source import SourceDetour, SourceLoop, lines_of
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
    written: Collection[SourceDetour] = (),
) -> Iterator[CostlyDetour]:
    """Such detours in the trainers' steps that take enough of the time to be reported.

    Args:
        stacks: the job's.
        trainers: process ids.
        loops: of the job's own source.
        own: the lines of each cause, ``"file.py:12 function"`` to seconds.
        at_work: the fraction of the wall time in which main threads do not queue for a core.
        written: what shows in the job's own source; some frames are a detour only where that says so.
    """
    spent, in_loops = stacks.spent_ns(trainers), lines_of(loops)
    seen = {way: _Seen() for way in BY_FRAMES if way != UNCACHED or _keeps_no_keys(stacks, spent, written)}
    for number, amount in spent.items():
        frames, location = stacks.frames[number], stacks.locations[number]
        for way, depth in _asked(frames) if location.is_in_step else ():
            # Asked for in a loop, or by a layer that the loop calls.
            looped = way != COMPUTED_AGAIN or any(in_loop_of_model(frames, at, in_loops) for at in range(depth + 1))
            if way in seen and looped:
                seen[way].asked[place_of(frames[depth])] += amount
                seen[way].lines[location.line] += amount
                seen[way].made[_class_made(frames[depth + 1])] += amount
    for way, place in seen.items():
        likely = FREED[way].likely if way in FREED else 1.0
        if place.asked and likely * place.asked.total >= thresholds.REPORTED_SHARE * spent.total:
            line, share = max(place.asked, key=place.asked.__getitem__), at_work * place.asked.total / spent.total
            pieces = tuple(Piece(name, "", "") for name in place.made if name)
            yield CostlyDetour(way, line, frozenset(place.lines), pieces, share, cause_of(place.lines, own))


def _keeps_no_keys(stacks: Stacks, spent: Collection[int], written: Iterable[SourceDetour]) -> bool:
    """Whether the source has text generated without a cache of keys and values, and none was seen at work."""
    if not any(one.way == UNCACHED for one in written):
        return False
    return not any(KEEPS_KEYS.matches(frame) for number in spent for frame in stacks.frames[number])


class _Seen:
    """What trainers did in one such detour: where it was asked for, the innermost lines, and the classes made."""

    def __init__(self) -> None:
        self.asked = Amounts[str]()
        self.lines = Amounts[str]()
        self.made = Amounts[str]()


def _asked(frames: Sequence[Frame]) -> Iterator[tuple[str, int]]:
    """The detours that a stack is in, and where on it the job's own code asks: of what is made, for the outermost."""
    begun: dict[str, int] = {}
    for depth, frame in enumerate(frames):
        if way := _way_of(frame):
            begun.setdefault(way, depth)
    for way, first in begun.items():
        own = (depth for depth in range(first) if is_own(frames[depth]) and frames[depth].simple_name != _MAKES)
        if (asks := max(own, default=None)) is not None:
            yield way, asks


@lru_cache(maxsize=4096)
def _way_of(frame: Frame) -> str:
    """The detour that a frame is in; "" for none."""
    return next((way for way, rows in BY_FRAMES.items() if any(row.matches(frame) for row in rows)), "")


def _class_made(frame: Frame) -> str:
    """The class that a frame makes one of; "" where it makes none or has no class's name, as before Python 3.11."""
    return frame.function.rpartition(".")[0].rpartition(".")[2] if frame.simple_name == _MAKES else ""
