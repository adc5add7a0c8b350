"""Waiting separated from transfer, and followed to the rank that came last and to what it did more of.

A collective cannot begin before its last rank is there: until then the others wait, and only from then on data moves.
What made the last one late lies before: since the ranks last met, it spent more time on something than those who wait
for it (its local excess). That something is the cause. If its own excess is waiting for yet another rank, the wait
is attributed to that one, as along the stages of a pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.causes import UNATTRIBUTED, UNOBSERVED_RANK
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.collectives import COLUMNS, Collectives
from perfdoctor.traces.intervals import Floats
from perfdoctor.traces.matching import MatchedCollective, RankClock, on_one_clock

_WAITING = np.array([name.startswith("communication.") for name in COLUMNS])
_NOTHING: Floats = np.zeros(len(COLUMNS))
_UNKNOWN = np.array([name == UNATTRIBUTED for name in COLUMNS])

# Who is at fault and for what, to how much of it: fractions that sum to 1.
Charge = Mapping[tuple[int, str], float]


@dataclass(frozen=True, slots=True)
class Attendance:
    """One rank's part in one collective that others were seen in.

    Attributes:
        rank, row: index of the rank, row of its table.
        late: index of the rank that came last.
        until: when that one came, on this rank's clock.
        waited: exposed nanoseconds before that.
        transfer: nanoseconds that the collective took from then on, on the fastest rank.
        excess: by ``COLUMNS``, what the late rank had spent more than this one since they last met, to the part that
            was exposed; None if they met in what was left out of the late rank's table.
        met: whether they had met before in what was recorded; otherwise one may have been late from the beginning.
    """

    rank: int
    row: int
    late: int
    until: int
    waited: float
    transfer: float
    excess: Floats | None
    met: bool


def attend(
    ranks: Sequence[Collectives], shared: Sequence[MatchedCollective], clocks: Mapping[int, RankClock]
) -> Iterator[Attendance]:
    """Every rank's part in every collective, in order of time."""
    past: dict[int, list[MatchedCollective]] = defaultdict(list)
    starts, ends = on_one_clock(ranks, clocks)
    blocking = [table.blocking.tolist() for table in ranks]
    for collective in shared:
        start = {rank: starts[rank][row] for rank, row in collective.items()}
        end = {rank: ends[rank][row] for rank, row in collective.items()}
        late = max(start, key=lambda rank: start[rank])
        transfer = max(0.0, min(end.values()) - start[late])
        for rank, row in collective.items():
            wait = min(start[late], end[rank]) - start[rank]
            if wait <= thresholds.CLOCK_ERRORS * max(clocks[rank].error, clocks[late].error):
                wait = 0.0
            until = int(ranks[rank].start[row] + wait)
            waited = ranks[rank].exposed(row, until) if wait else 0.0
            excess: Floats | None = _NOTHING
            together = _last_together(ranks, past[rank], late)
            if together is None and ranks[late].left_out:
                excess = None
            elif waited:
                excess = _excess(ranks, collective, together, rank, late) * waited / wait
            yield Attendance(rank, row, late, until, waited, transfer, excess, together is not None)
        for rank, row in collective.items():
            if blocking[rank][row]:
                past[rank].append(collective)


def _last_together(
    ranks: Sequence[Collectives], past: Sequence[MatchedCollective], late: int
) -> MatchedCollective | None:
    """The last collective that both ranks left with nothing else to do; None if the traces hold none."""
    return next((one for one in reversed(past) if late in one and ranks[late].blocking[one[late]]), None)


def _excess(
    ranks: Sequence[Collectives],
    collective: MatchedCollective,
    together: MatchedCollective | None,
    rank: int,
    late: int,
) -> Floats:
    """What the late rank spent more than the other since both last left a collective together with nothing else to do.

    Clocks do not matter here: each rank's own times are compared.
    """
    spent = [ranks[one].spent_before(collective[one]) for one in (late, rank)]
    if together is not None:
        until = [ranks[one].spent_after(together[one]) for one in (late, rank)]
        spent = [amounts - then for amounts, then in zip(spent, until, strict=True)]
    return np.asarray(spent[0] - spent[1])


def charge(parts: Sequence[Attendance]) -> dict[int, Charge]:
    """For each rank that came last in some collective: on whom and what waiting for it is to be attributed."""
    waited: dict[int, Amounts[int]] = defaultdict(Amounts)  # rank to those that it waits for
    excess: dict[int, Floats] = {}
    wanted: Amounts[int] = Amounts()
    unmet: Amounts[int] = Amounts()
    for part in parts:
        if part.waited:
            waited[part.rank][part.late] += part.waited
        if part.waited and part.excess is not None:
            wanted[part.late] += part.waited
            unmet[part.late] += 0.0 if part.met else part.waited
            excess[part.late] = excess.get(part.late, np.zeros(len(COLUMNS))) + part.excess
    own = {rank: _own_charge(rank, excess[rank], wanted[rank], unmet[rank]) for rank in excess}
    charges: dict[int, Charge] = {part.late: {(part.late, UNATTRIBUTED): 1.0} for part in parts}
    charges |= {rank: found for rank, (found, _) in own.items()}
    weights = {rank: waited[rank].fractions() for rank, (_, passed) in own.items() if passed and waited[rank]}
    for _ in weights:  # a wait is passed on at most once through all ranks
        before = charges
        charges = {**charges, **{rank: _passed_on(own[rank], weights[rank], before) for rank in weights}}
        if all(_alike(charges[rank], before[rank]) for rank in weights):
            break
    return charges


def _alike(one: Charge, other: Charge) -> bool:
    """Whether two are the same but for what is too small to matter."""
    keys = one.keys() | other.keys()
    return all(abs(one.get(key, 0.0) - other.get(key, 0.0)) < thresholds.SMALLEST_CHARGE for key in keys)


def _own_charge(rank: int, excess: Floats, waited: float, unmet: float) -> tuple[Charge, float]:
    """What of a rank's lateness is its own, and the part that is its waiting for others.

    What the trace does not explain of lateness at the first meeting lies before the trace, where the rank was not seen.
    """
    more = np.maximum(excess, 0.0)
    if more[~_UNKNOWN].sum() < thresholds.EXPLAINED_WAIT * waited:
        before = unmet / waited
        return {(rank, UNOBSERVED_RANK): before, (rank, UNATTRIBUTED): 1 - before}, 0.0
    passed = float(more[_WAITING].sum() / more.sum())
    mine = np.where(_WAITING, 0.0, more)
    total = float(mine.sum())
    if not total:
        return {(rank, UNATTRIBUTED): 1.0}, passed
    return {(rank, COLUMNS[one]): float(mine[one]) / total for one in np.flatnonzero(mine)}, passed


def _passed_on(own: tuple[Charge, float], waits_for: Mapping[int, float], charges: Mapping[int, Charge]) -> Charge:
    mine, passed = own
    found: Amounts[tuple[int, str]] = Amounts({key: part * (1 - passed) for key, part in mine.items()})
    for other, weight in waits_for.items():
        for key, part in charges[other].items():
            found[key] += passed * weight * part
    large = Amounts({key: part for key, part in found.items() if part >= thresholds.SMALLEST_CHARGE})
    return large.fractions() if large else found
