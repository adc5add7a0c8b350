"""Collectives matched across ranks: which rows of their tables are one and the same; and the ranks' clocks by them.

By number within the group where the file has it. Where it does not name the group, by the streams on which they run, if
those do (``communicators``); else by the step and the place among its kind in that step. What lies outside of the
steps, or in traces without any, has only its order: there the shift is taken with which the ends agree best. In any
case the ranks of one collective must all be in it at some moment; those that are not are separated, so that groups that
share a name (of tensor parallelism, for instance) come out as groups.

A collective ends at nearly the same moment on all of its ranks, which sets their clocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.quantiles import median, robust_deviation
from perfdoctor.traces.collectives import Collectives, on_any_stream
from perfdoctor.traces.communicators import match_by_stream
from perfdoctor.traces.intervals import Floats, Int64s


def match_collectives(
    ranks: Sequence[Collectives], origins: Sequence[int | None]
) -> tuple[list[dict[int, int]], dict[int, RankClock]]:
    """Matches the collectives of all ranks and sets the ranks' clocks by them.

    Args:
        ranks: their collectives.
        origins: the hosts' clocks at each rank's time 0; None where the file does not say.

    Returns:
        The collectives of at least two ranks, in order of time, and the clocks of the ranks in them.
    """
    by_stream = match_by_stream(ranks, origins)
    taken = {(rank, row) for collective in by_stream for rank, row in collective.items()}
    named = [*by_stream, *_by_key(ranks, taken)]
    clocks = align_clocks(ranks, named)
    found = [*named, *_by_order(ranks, _guesses(clocks, origins), taken)]
    clocks = _trusted(align_clocks(ranks, found), origins)
    times = on_one_clock(ranks, clocks)
    together = [part for collective in found for part in _split_apart(times, collective, clocks)]
    clocks = align_clocks(ranks, together)
    starts, _ = on_one_clock(ranks, clocks)
    return sorted(together, key=lambda one: min(starts[rank][row] for rank, row in one.items())), clocks


def _by_key(ranks: Sequence[Collectives], taken: Collection[tuple[int, int]]) -> list[dict[int, int]]:
    found: dict[Hashable, dict[int, int]] = defaultdict(dict)
    for rank, one in enumerate(ranks):
        for row, key in enumerate(one.keys):
            if key is not None and (rank, row) not in taken:
                found[key][rank] = row
    return [collective for collective in found.values() if len(collective) > 1]


def _guesses(clocks: Mapping[int, RankClock], origins: Sequence[int | None]) -> list[float | None]:
    """What each rank's clock should be, on one scale: by collectives, or as its host's clock says."""
    known = [rank for rank in clocks if origins[rank] is not None and clocks[rank].error <= thresholds.UNSURE_CLOCK_NS]
    # What to add to the hosts' clocks to get times of the rank that the others are compared with.
    bases = [clocks[rank].offset - float(origins[rank] or 0) for rank in known]
    base = median(bases) if bases else -float(next((one for one in origins if one is not None), 0))
    guesses: list[float | None] = []
    for rank, origin in enumerate(origins):
        if rank in clocks and (clocks[rank].error <= thresholds.UNSURE_CLOCK_NS or origin is None):
            guesses.append(clocks[rank].offset)
        else:
            guesses.append(None if origin is None else origin + base)
    return guesses


def _trusted(clocks: Mapping[int, RankClock], origins: Sequence[int | None]) -> dict[int, RankClock]:
    """The clocks; where the ends of collectives do not agree on one, that of the host.

    So it is where ranks were taken for one group that are none: they do not end together.
    """
    guesses = _guesses(clocks, origins)
    found = dict(clocks)
    for rank, clock in clocks.items():
        guess = guesses[rank] if origins[rank] is not None else None
        if clock.error > thresholds.UNSURE_CLOCK_NS and guess is not None:
            found[rank] = RankClock(guess, 0.0)
    return found


def _by_order(
    ranks: Sequence[Collectives], guesses: Sequence[float | None], taken: Collection[tuple[int, int]]
) -> list[dict[int, int]]:
    """Matches what has no key: per kind, all ranks against the one with the most of it."""
    kinds: dict[Hashable, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, one in enumerate(ranks):
        for row, (key, kind) in enumerate(zip(one.keys, one.kinds, strict=True)):
            if key is None and (rank, row) not in taken:
                kinds[on_any_stream(kind)][rank].append(row)
    found: list[dict[int, int]] = []
    for by_rank in kinds.values():
        first = max(by_rank, key=lambda rank: (len(by_rank[rank]), -rank))
        shared: list[dict[int, int]] = [{first: row} for row in by_rank[first]]
        for rank, rows in by_rank.items():
            if rank == first:
                continue
            guess, base = guesses[rank], guesses[first]
            expected = None if guess is None or base is None else guess - base
            shift = _shift(ranks[first].end[by_rank[first]], ranks[rank].end[rows], expected)
            for place, row in enumerate(rows):
                if 0 <= place + shift < len(shared):
                    shared[place + shift][rank] = row
        found += [collective for collective in shared if len(collective) > 1]
    return found


def _shift(reference: Int64s, ends: Int64s, expected: float | None) -> int:
    """How many places later in the reference's order a rank's collectives stand.

    Args:
        reference: ends on the rank that has the most of them.
        ends: on the other rank.
        expected: reference clock less the rank's; without it, the last ones of both are taken for one.
    """
    longer = len(reference) - len(ends)
    shifts = [
        shift
        for shift in range(
            max(1 - len(ends), longer - int(thresholds.FARTHEST_SHIFT)),
            min(len(reference), longer + int(thresholds.FARTHEST_SHIFT)),
        )
        if _overlap(reference, ends, shift) >= min(len(ends), max(2, len(ends) // 2))
    ]
    apart = {shift: _apart(reference, ends, shift) for shift in shifts}
    middles = {shift: median(values) for shift, values in apart.items()}
    spreads = {shift: median(np.abs(values - middles[shift])) for shift, values in apart.items()}
    limit = 2 * min(spreads.values()) + thresholds.COLLECTIVE_END_NS
    likely = [shift for shift in shifts if spreads[shift] <= limit]
    if expected is None:
        return min(likely, key=lambda shift: abs(shift - longer))
    return min(likely, key=lambda shift: abs(middles[shift] - expected))


def _overlap(reference: Int64s, ends: Int64s, shift: int) -> int:
    return min(len(reference), len(ends) + shift) - max(0, shift)


def _apart(reference: Int64s, ends: Int64s, shift: int) -> Floats:
    first, count = max(0, shift), _overlap(reference, ends, shift)
    return (reference[first : first + count] - ends[first - shift : first - shift + count]).astype(np.float64)


# By index of the rank, a time of each collective in its table.
_Times = Mapping[int, Sequence[float]]


def on_one_clock(ranks: Sequence[Collectives], clocks: Mapping[int, RankClock]) -> tuple[_Times, _Times]:
    """Starts and ends of the collectives of all ranks that have a clock."""
    starts = {rank: (ranks[rank].start + clock.offset).tolist() for rank, clock in clocks.items()}
    ends = {rank: (ranks[rank].end + clock.offset).tolist() for rank, clock in clocks.items()}
    return starts, ends


def _split_apart(
    times: tuple[_Times, _Times], collective: MatchedCollective, clocks: Mapping[int, RankClock]
) -> list[dict[int, int]]:
    """The ranks of a collective; if some had left before others came, they are of several, each with its own end."""
    start, end = ({rank: some[rank][row] for rank, row in collective.items()} for some in times)
    tolerance = {
        rank: thresholds.COLLECTIVE_END_NS + thresholds.CLOCK_ERRORS * clocks[rank].error for rank in collective
    }
    first_end = min(end.values())
    if all(start[rank] <= first_end + tolerance[rank] for rank in collective):
        return [dict(collective)]
    parts: list[dict[int, int]] = []
    first_end = -np.inf
    for rank in sorted(collective, key=lambda rank: end[rank]):
        if end[rank] > first_end + tolerance[rank]:
            parts.append({})
            first_end = end[rank]
        parts[-1][rank] = collective[rank]
    return [part for part in parts if len(part) > 1]


# A collective: index of the rank to the row in its table.
MatchedCollective = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RankClock:
    """What to add to a rank's times, in nanoseconds.

    Attributes:
        offset: makes them times of the rank with the most collectives.
        error: standard deviation of a single comparison: how far the ends of collectives lie apart.
    """

    offset: float
    error: float


def align_clocks(ranks: Sequence[Collectives], shared: Sequence[MatchedCollective]) -> dict[int, RankClock]:
    """The clocks of all ranks that share collectives with others, by index.

    The offset is the median over all collectives that a rank shares with ranks whose clock is known already: some ends
    do lie apart (the root of a broadcast is done early), most do not. Ranks that no collectives connect have clocks
    that cannot be compared, and need not be.
    """
    attended = Counter(rank for collective in shared for rank in collective)
    clocks: dict[int, RankClock] = {}
    while left := attended.keys() - clocks.keys():
        compared = _compare(ranks, shared, clocks)
        if not compared:
            clocks[max(left, key=lambda rank: (attended[rank], -rank))] = RankClock(0.0, 0.0)
            continue
        for rank, offsets in compared.items():
            clocks[rank] = RankClock(median(offsets), robust_deviation(offsets))
    return clocks


def _compare(
    ranks: Sequence[Collectives], shared: Sequence[MatchedCollective], clocks: Mapping[int, RankClock]
) -> dict[int, list[float]]:
    """For each rank whose clock is not known, what its clock would be by each collective."""
    found: dict[int, list[float]] = defaultdict(list)
    for collective in shared:
        known = [ranks[rank].end[row] + clocks[rank].offset for rank, row in collective.items() if rank in clocks]
        if known:
            end = median(known)
            for rank, row in collective.items():
                if rank not in clocks:
                    found[rank].append(end - float(ranks[rank].end[row]))
    return found
