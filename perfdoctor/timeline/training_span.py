"""From when to when a process was seen training: what its job does before and after that is no training.

A job imports, builds its model and reads its lists before it trains, and takes itself apart afterwards. Whoever watches
meanwhile sees Python, the collector and the disk, and none of it is in a training step.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, is_import
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.code_location import TRAINING_PHASES, CodeLocation
from perfdoctor.timeline.stacks import STACK_REACH_NS, StackSeries

# A job that waits for its first batch, or saves its last state, has begun and not yet ended.
_OF_TRAINING = TRAINING_PHASES | {"data", "transfer", "saving", "logging"}


def training_span(
    series: StackSeries,
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    span: tuple[int, int],
    *,
    started_ns: int,
    ended: bool,
) -> tuple[int, int]:
    """The part of the watched time in which a process trained, in ns; empty where it had not begun.

    Args:
        series: the stacks of its main thread.
        stacks: the distinct ones, outermost call first.
        locations: of each.
        span: from when to when the job was watched.
        started_ns: when the process was started; one that is older than a minute has begun.
        ended: whether it has ended by now.
    """
    start, end = span
    entries = list(series.entries())
    training = [
        (at, at + lasted)
        for at, lasted, number in entries
        if locations[number].phase in _OF_TRAINING and not is_import(stacks[number])
    ]
    is_young = start - started_ns < thresholds.YOUNG_S * NS_PER_S
    if not training:
        return (
            (end, end) if is_young and entries and any(is_import(stacks[number]) for _, _, number in entries) else span
        )
    first, last = training[0][0], training[-1][1]
    # What was seen of the start, not what is seen at all: sampling stacks begins a little later than the watching.
    if is_young and first - entries[0][0] > STACK_REACH_NS:
        start = first
    if ended and end - last > STACK_REACH_NS:
        end = last
    return start, end
