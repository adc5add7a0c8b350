"""The accounts of all ranks of a job, put together: each rank's own causes, and those of the ranks it waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.amounts import Amounts
from perfdoctor.attribution.account import Account
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.processes import Process
from perfdoctor.traces.account import slice_edges
from perfdoctor.traces.clocks import Clock
from perfdoctor.traces.collectives import SPLIT
from perfdoctor.traces.intervals import Floats, spread
from perfdoctor.traces.matching import match
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.stragglers import Attended, Charge, attend, charge
from perfdoctor.traces.waiting import BANDWIDTH, LATENCY, WAIT, is_short


@dataclass(frozen=True, slots=True)
class Settled:
    """The job's accounts.

    Attributes:
        accounts: one per rank, in seconds.
        clocks: by index of the rank; ranks that share no collective with others have none.
        matched: collectives that at least two ranks were seen in.
        parts: every rank's part in each of them.
        exposed: nanoseconds of exposed communication, over all ranks.
        alone: of that, in collectives that were seen on one rank only.
    """

    accounts: list[Account]
    clocks: Mapping[int, Clock]
    matched: int
    parts: Sequence[Attended]
    exposed: float
    alone: float


def settle(ranks: Sequence[Rank], numbers: Sequence[int]) -> Settled:
    """Matches the ranks' collectives and books what each waits for on those who are at fault.

    Args:
        ranks: of one job.
        numbers: the ranks' numbers.
    """
    tables = [rank.collectives for rank in ranks]
    meetings, clocks = match(tables, [rank.origin_ns for rank in ranks])
    parts = list(attend(tables, meetings, clocks))
    sizes = {(rank, row): len(meeting) for meeting in meetings for rank, row in meeting.items()}
    charges = charge(parts)
    by_rank: dict[int, list[Attended]] = defaultdict(list)
    for part in parts:
        by_rank[part.rank].append(part)
    worlds = [rank.world or 0 for rank in ranks]
    all_seen = len(ranks) >= max(worlds)
    accounts = []
    for index, rank in enumerate(ranks):
        mine = by_rank[index]
        complete = {part.row for part in mine if all_seen or _is_whole(rank, part, sizes[index, part.row])}
        account = _own_account(rank, numbers[index], mine, complete)
        _book_waits(account, rank, mine, charges, numbers)
        accounts.append(account)
    exposed = float(sum(table.split.sum() for table in tables))
    met = float(sum(tables[part.rank].split[part.row].sum() for part in parts))
    return Settled(accounts, clocks, len(meetings), parts, exposed, max(0.0, exposed - met))


def _is_whole(rank: Rank, part: Attended, seen: int) -> bool:
    """Whether all ranks of a collective were seen in it."""
    return 0 < int(rank.collectives.group_size[part.row]) <= seen


def _own_account(rank: Rank, number: int, parts: Sequence[Attended], complete: set[int]) -> Account:
    """What lies in a rank itself: all but communication, and the transfer in its collectives."""
    pid = rank.pid or 0
    account = Account(Process(pid, 0, 0, None, "trainer", 0, number))
    account.phases["traced"] = rank.window.length / NS_PER_S
    table = rank.collectives
    split = table.split.copy()
    start = table.start.copy()
    for part in parts:
        split[part.row] = _transfer(rank, part, complete=part.row in complete)
        start[part.row] = part.until
    # What the rank showed by itself makes room for what all ranks show together.
    before = _sliced(rank, table.split, table.start)
    after = _sliced(rank, split, start)
    for index, amounts in enumerate(rank.slices):
        own = Amounts(amounts)
        for column, cause in enumerate(SPLIT):
            own[cause] = max(0.0, own[cause] - float(before[index, column])) + float(after[index, column])
        account.own[index] = Amounts({cause: amount / NS_PER_S for cause, amount in own.items() if amount > 0})
    return account


def _transfer(rank: Rank, part: Attended, *, complete: bool) -> Floats:
    """A collective's exposed time, by ``SPLIT``, less what was waited for ranks that were seen.

    If all were seen, the rest is transfer. If not, one that was not may have come later still: then it is transfer only
    as far as the rank's own trace says so.
    """
    table = rank.collectives
    alone = dict(zip(SPLIT, table.split[part.row].tolist(), strict=True))
    rest = max(0.0, sum(alone.values()) - part.waited)
    moving = rest if complete else min(rest, alone[BANDWIDTH] + alone[LATENCY])
    if complete or not moving:
        short = bool(is_short(table.size[[part.row]], np.array([part.transfer]))[0])
    else:
        short = alone[LATENCY] > alone[BANDWIDTH]
    found = {LATENCY: moving if short else 0.0, BANDWIDTH: 0.0 if short else moving, WAIT: rest - moving}
    return np.array([found[cause] for cause in SPLIT])


def _sliced(rank: Rank, split: Floats, start: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Amounts by slice of the window and ``SPLIT``, each spread from its start to the collective's end."""
    edges = slice_edges(rank.window)
    end = rank.collectives.end
    return np.stack([np.diff(spread(start, end, split[:, column], edges)) for column in range(len(SPLIT))], axis=1)


def _book_waits(
    account: Account, rank: Rank, parts: Iterable[Attended], charges: Mapping[int, Charge], numbers: Sequence[int]
) -> None:
    by_late: dict[int, list[Attended]] = defaultdict(list)
    for part in parts:
        if part.waited:
            by_late[part.late].append(part)
    for late, waits in by_late.items():
        start = rank.collectives.start[[part.row for part in waits]]
        until = np.array([part.until for part in waits])
        amounts = np.array([part.waited for part in waits])
        sliced = np.diff(spread(start, until, amounts, slice_edges(rank.window)))
        for (culprit, cause), part_of in charges[late].items():
            for index in np.flatnonzero(sliced).tolist():
                if numbers[culprit] == account.trainer.rank:  # who waits for a rank that waited for this one
                    booked = account.own.setdefault(index, Amounts())
                else:
                    booked = account.waits.setdefault((index, numbers[culprit]), Amounts())
                booked[cause] += float(sliced[index]) * part_of / NS_PER_S
