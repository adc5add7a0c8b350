"""The ranks' clocks, set by their collectives: each ends at nearly the same moment on all of its ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.traces.arrays import median
from perfdoctor.traces.collectives import Collectives

# The median absolute deviation of normally distributed values, to their standard deviation.
_TO_DEVIATION = 1.4826

# A collective: index of the rank to the row in its table.
Meeting = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Clock:
    """What to add to a rank's times, in nanoseconds.

    Attributes:
        offset: makes them times of the rank with the most collectives.
        error: standard deviation of a single comparison: how far the ends of collectives lie apart.
    """

    offset: float
    error: float


def set_clocks(ranks: Sequence[Collectives], meetings: Sequence[Meeting]) -> dict[int, Clock]:
    """The clocks of all ranks that share collectives with others, by index.

    The offset is the median over all collectives that a rank shares with ranks whose clock is known already: some ends
    do lie apart (the root of a broadcast is done early), most do not. Ranks that no collectives connect have clocks
    that cannot be compared, and need not be.
    """
    attended = Counter(rank for meeting in meetings for rank in meeting)
    clocks: dict[int, Clock] = {}
    while left := attended.keys() - clocks.keys():
        compared = _compare(ranks, meetings, clocks)
        if not compared:
            clocks[max(left, key=lambda rank: (attended[rank], -rank))] = Clock(0.0, 0.0)
            continue
        for rank, offsets in compared.items():
            offset = median(offsets)
            clocks[rank] = Clock(offset, _TO_DEVIATION * median(np.abs(np.array(offsets) - offset)))
    return clocks


def _compare(
    ranks: Sequence[Collectives], meetings: Sequence[Meeting], clocks: Mapping[int, Clock]
) -> dict[int, list[float]]:
    """For each rank whose clock is not known, what its clock would be by each collective."""
    found: dict[int, list[float]] = defaultdict(list)
    for meeting in meetings:
        known = [ranks[rank].end[row] + clocks[rank].offset for rank, row in meeting.items() if rank in clocks]
        if known:
            end = median(known)
            for rank, row in meeting.items():
                if rank not in clocks:
                    found[rank].append(end - float(ranks[rank].end[row]))
    return found
