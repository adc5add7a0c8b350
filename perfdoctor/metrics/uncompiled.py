"""How much of what torch.compile was given runs as it was written, since a part of it could not be compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, is_own, package_of
from perfdoctor.knowledge.libraries import RUNS_COMPILED, calls_compiled
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import place_of
from perfdoctor.timeline.stacks import Stacks


class Uncompiled(NamedTuple):
    """What is left out.

    Attributes:
        place: the job's own line that most of it is called at, ``file.py:12 function``.
        part: fraction of the main threads' time.
    """

    place: str
    part: float


def find_uncompiled(stacks: Stacks, trainers: Collection[int]) -> Uncompiled | None:
    """What runs operation by operation below a compiled model's call; None where that is not most of it.

    Args:
        stacks: the job's.
        trainers: process ids.
    """
    spent = stacks.spent_ns(trainers)
    given, places = 0.0, Amounts[str]()
    for number, amount in spent.items():
        frames = stacks.frames[number]
        begun = next((depth for depth, frame in enumerate(frames) if calls_compiled(frame)), None)
        if begun is None:
            continue
        given += amount
        if line := _left_out(frames[begun:]):
            places[line] += amount
    least = max(thresholds.REPORTED_SHARE * spent.total, thresholds.MOSTLY * given)
    if not given or places.total < least:
        return None
    return Uncompiled(max(places, key=places.__getitem__), places.total / spent.total)


def _left_out(frames: Sequence[Frame]) -> str:
    """The job's own line that calls torch by itself below a compiled model's call; "" where compiled code runs."""
    if any(row.matches(frame) for row in RUNS_COMPILED for frame in frames):
        return ""
    own = [depth for depth, frame in enumerate(frames) if is_own(frame)]
    below = frames[own[-1] + 1 :] if own else ()
    return place_of(frames[own[-1]]) if any(package_of(frame.file) == "torch" for frame in below) else ""
