"""How much of the preparation follows a draw at random: what comes before is the same in each epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.recording.own_source import SourceDraw
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.stacks import Stacks

Function = tuple[str, str]


def part_after_draws(stacks: Stacks, draws: Iterable[SourceDraw], lines: Mapping[str, float]) -> float | None:
    """The fraction of the time of some lines that lies behind a draw, in their own function or in one that called it.

    Args:
        stacks: the job's.
        draws: in its source.
        lines: of the job's own, ``"file.py:12 function"`` to an amount.

    Returns:
        None where none of the lines was on a stack.
    """
    by_file: dict[str, list[SourceDraw]] = {}
    for draw in draws:
        by_file.setdefault(draw.file, []).append(draw)
    spent = stacks.spent_ns()
    train = {
        (frame.file, frame.function)
        for number in spent
        if stacks.locations[number].phase == "backward"
        for frame in stacks.frames[number]
    }
    whole: Amounts[str] = Amounts()
    behind: Amounts[str] = Amounts()
    for number, amount_ns in spent.items():
        line = stacks.locations[number].line
        whole[line] += amount_ns
        if any(_is_behind(frame, by_file.get(frame.file, ()), train) for frame in stacks.frames[number]):
            behind[line] += amount_ns
    seen = {line: amount for line, amount in lines.items() if whole[line]}
    total = sum(seen.values())
    return sum(amount * behind[line] / whole[line] for line, amount in seen.items()) / total if total else None


def _is_behind(frame: Frame, draws: Iterable[SourceDraw], train: Collection[Function]) -> bool:
    """Whether a call is at a line behind a draw; what a function that trains draws before its loops, it draws once."""
    trains = (frame.file, frame.function) in train
    inside = (one for one in draws if one.line <= frame.line <= one.last_line)
    return is_own(frame) and any(one.in_loop or not trains for one in inside)
