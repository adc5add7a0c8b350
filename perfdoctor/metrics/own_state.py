"""Whether batches are made of what the training loop changes itself."""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.own_source import SourceState
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import PREPARES
from perfdoctor.timeline.stacks import Stacks


def made_of_state(stacks: Stacks, statements: Iterable[SourceState]) -> str:
    """Where a loop makes most of its batches of what it changes; "" where it does not.

    Args:
        stacks: the job's.
        statements: in its source.
    """
    lines = {(one.file, line) for one in statements for line in range(one.line, one.last_line + 1)}
    whole, made = 0.0, Amounts[str]()
    for number, amount_ns in stacks.spent_ns().items():
        if stacks.locations[number].detail != PREPARES:
            continue
        whole += amount_ns
        frames = [frame for frame in stacks.frames[number] if (frame.file, frame.line) in lines]
        if frames:
            made[f"{frames[0].file}:{frames[0].line} {frames[0].function}"] += amount_ns
    if not whole or made.total < thresholds.MOSTLY * whole:
        return ""
    return max(made, key=lambda place: made[place])
