"""Collectives of groups that the file does not name, matched by the streams on which they run.

Each process group has a stream of its own. So those of one name and stream are of one group on each rank, and on
several ranks of the same one where there are as many of them and each ends at the same moment, by the hosts' clocks.
Groups that always end together come out as one, which changes little: their ranks wait as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.traces.collectives import Collectives, is_of_stream
from perfdoctor.traces.intervals import Int64s


class _Sequence(NamedTuple):
    """The collectives of a name and stream on one rank: index of the rank, rows of its table, and ends by its host."""

    rank: int
    rows: tuple[int, ...]
    ends: Int64s


def match_by_stream(ranks: Sequence[Collectives], origins: Sequence[int | None]) -> list[dict[int, int]]:
    """Collectives of at least two ranks, as index of the rank to the row in its table, as far as streams match them.

    Args:
        ranks: their collectives.
        origins: the hosts' clocks at each rank's time 0; None where the file does not say.
    """
    named: dict[Hashable, list[_Sequence]] = defaultdict(list)
    for rank, (table, origin) in enumerate(zip(ranks, origins, strict=True)):
        if origin is None:
            continue
        on_stream: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
        for row, kind in enumerate(table.kinds):
            if is_of_stream(kind):
                on_stream[kind].append(row)
        for kind, rows in on_stream.items():
            named[kind[0]].append(_Sequence(rank, tuple(rows), table.end[rows] + origin))
    found: list[dict[int, int]] = []
    for sequences in named.values():
        found += _match(sequences)
    return found


def _match(sequences: Sequence[_Sequence]) -> Iterator[dict[int, int]]:
    """The collectives of one name: those of the longest sequence first, and of whoever goes along with it best."""
    left = sorted(sequences, key=lambda one: (-len(one.rows), int(one.ends[0])))
    while left:
        longest, *others = left
        together = {longest.rank: (longest, 0)}
        for _, place, shift in sorted(_beside(longest, others)):
            together.setdefault(others[place].rank, (others[place], shift))
        members = list(together.values())
        left = [one for one in others if together.get(one.rank, (None,))[0] is not one]
        for place in range(len(longest.rows)):
            there = {one.rank: one.rows[place - shift] for one, shift in members if 0 <= place - shift < len(one.rows)}
            if len(there) > 1:
                yield there


def _beside(longest: _Sequence, others: Sequence[_Sequence]) -> list[tuple[int, int, int]]:
    """Which of the others go along with a sequence: how far apart their ends are, which one, and by how many later.

    A rank may have recorded fewer at the beginning or end.
    """
    if not others:
        return []
    first = np.array([one.ends[0] for one in others])
    shifts = np.searchsorted((longest.ends[1:] + longest.ends[:-1]) // 2, first)  # where the nearest one stands
    close = np.flatnonzero(np.abs(longest.ends[shifts] - first) <= thresholds.UNSURE_CLOCK_NS)
    found = []
    for place in close.tolist():
        shift, ends = int(shifts[place]), others[place].ends
        if 2 * len(ends) <= len(longest.ends) or shift + len(ends) > len(longest.ends):
            continue
        apart = int(np.abs(longest.ends[shift : shift + len(ends)] - ends).max())
        if apart <= thresholds.UNSURE_CLOCK_NS and others[place].rank != longest.rank:
            found.append((apart, place, shift))
    return found
