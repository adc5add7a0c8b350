"""The ranks of one job, put together: who they are, and what each waited for in the others.

Each rank's account keeps its own causes. What it waited for others in collectives is attributed to those who came late,
and to what they did more of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.causes import BANDWIDTH, LATENCY, UNOBSERVED_RANK
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts, sum_by_place
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.unseen_ranks import missing_ranks
from perfdoctor.traces.account import SLICES, slice_edges
from perfdoctor.traces.collectives import Collectives
from perfdoctor.traces.communication import SPLIT, is_short
from perfdoctor.traces.interference import measure_behind_kernels
from perfdoctor.traces.intervals import Floats, spread
from perfdoctor.traces.matching import RankClock, match_collectives
from perfdoctor.traces.model import Bools
from perfdoctor.traces.rank import Rank, mean_evidence
from perfdoctor.traces.stragglers import Attendance, Charge, attend, charge

# The accounts' slices of time are made longer where there would be more of them over all ranks.
_MOST_SLICES = 10_000
_NAMED = 10  # files that a note names
_SEPARATELY = "Analyze the traces of one run together, and other files by themselves."
_ALL = say("cluster.all_traces")


def leave_out_copies(ranks: Sequence[Rank]) -> tuple[list[Rank], list[NotExamined]]:
    """The ranks whose traces are no copies of another one, and what is to be said of the others.

    Copies would agree in every collective, as if no rank ever waited for another.
    """
    first: dict[str, Rank] = {}
    copies: dict[str, list[str]] = defaultdict(list)
    kept = []
    for rank in ranks:
        if rank.content and (original := first.setdefault(rank.content, rank)) is not rank:
            copies[original.source].append(rank.source)
        else:
            kept.append(rank)
    return kept, [
        NotExamined(
            "ranks",
            f"{_listed(others)}: the same as {source} to the nanosecond, so a copy of it and no other rank's trace. "
            "It is left out.",
            "give each rank a file of its own, with its rank in the name",
        )
        for source, others in list(copies.items())[:_NAMED]
    ]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join((*names[:_NAMED], f"and {rest} more") if rest > 0 else names)


def order_ranks(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks in order of their numbers.

    Raises:
        PerfDoctorError: they cannot be of one run.
    """
    counted = Counter(rank.number for rank in ranks if rank.number is not None)
    twice = [number for number, count in counted.items() if count > 1]
    if twice:
        files = " and ".join(rank.source for rank in ranks if rank.number == twice[0])
        raise PerfDoctorError(f"These traces are not of one run: {files} are all of rank {twice[0]}.", hint=_SEPARATELY)
    worlds = {rank.world: rank.source for rank in ranks if rank.world is not None}
    if len(worlds) > 1:
        sizes = ", ".join(f"{source} is of {world} ranks" for world, source in sorted(worlds.items()))
        raise PerfDoctorError(f"These traces are not of one run: {sizes}.", hint=_SEPARATELY)
    return sorted(ranks, key=lambda rank: (rank.number is None, rank.number or 0))


def number_ranks(ranks: Sequence[Rank]) -> list[int]:
    """The ranks' numbers; those of which the file does not say it get the lowest that are free."""
    taken = {rank.number for rank in ranks}
    free = (number for number in range(2 * len(ranks)) if number not in taken)
    return [next(free) if rank.number is None else rank.number for rank in ranks]


@dataclass(frozen=True, slots=True)
class MergedRanks:
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
    clocks: Mapping[int, RankClock]
    matched: int
    parts: Sequence[Attendance]
    exposed: float
    alone: float


def merge_ranks(ranks: Sequence[Rank], numbers: Sequence[int]) -> MergedRanks:
    """Matches the ranks' collectives and attributes what each waits for to those who come late.

    Args:
        ranks: of one job.
        numbers: the ranks' numbers.
    """
    tables = [rank.collectives for rank in ranks]
    shared, clocks = match_collectives(tables, [rank.origin_ns for rank in ranks])
    parts = list(attend(tables, shared, clocks))
    charges = charge(parts)
    by_rank: dict[int, list[Attendance]] = defaultdict(list)
    for part in parts:
        by_rank[part.rank].append(part)
    worlds = [rank.world or 0 for rank in ranks]
    all_seen = len(ranks) >= max(worlds)
    sizes = {} if all_seen else {(rank, row): len(one) for one in shared for rank, row in one.items()}
    together = next((count for count in (1, 2, 4, 5) if len(ranks) * SLICES <= count * _MOST_SLICES), 10)
    accounts = []
    for index, rank in enumerate(ranks):
        mine = by_rank[index]
        complete = np.array([all_seen or _is_whole(rank, part, sizes[index, part.row]) for part in mine], dtype=bool)
        account, alike = _own_account(rank, numbers[index], mine, complete)
        _attribute_waits(account, rank, mine, alike, charges, numbers)
        accounts.append(_with_longer_slices(account, together))
    exposed = float(sum(table.split.sum() for table in tables))
    met = float(sum(tables[part.rank].split[part.row].sum() for part in parts))
    return MergedRanks(accounts, clocks, len(shared), parts, exposed, max(0.0, exposed - met))


def _with_longer_slices(account: Account, together: int) -> Account:
    """The same account with so many slices of its time taken as one."""
    if together == 1:
        return account
    own = sum_by_place((slice_ // together, amounts) for slice_, amounts in account.own.items())
    waits = sum_by_place(((slice_ // together, rank), amounts) for (slice_, rank), amounts in account.waits.items())
    return replace(account, own=own, waits=waits)


def _is_whole(rank: Rank, part: Attendance, seen: int) -> bool:
    """Whether all ranks of a collective were seen in it."""
    return 0 < int(rank.collectives.group_size[part.row]) <= seen


def _own_account(rank: Rank, number: int, parts: Sequence[Attendance], complete: Bools) -> tuple[Account, Floats]:
    """What lies in a rank itself: all but communication, and the transfer in its collectives.

    Args:
        rank: as its own trace shows it.
        number: its number.
        parts: its parts in collectives.
        complete: of which of these all ranks were seen.

    Returns:
        The account, and by slice the nanoseconds of waiting in collectives that were left out of the rank's table: for
        the same ranks as in those that are there, in the same parts.
    """
    pid = rank.pid or 0
    account = Account(Process(pid, 0, 0, None, "trainer", 0, number))
    account.phases["traced"] = rank.window.length / NS_PER_S
    table = rank.collectives
    split = table.split.copy()
    start = table.start.copy()
    rows = [part.row for part in parts]
    split[rows] = _transfers(table, parts, complete)
    start[rows] = [part.until for part in parts]
    # What the rank showed by itself makes room for what all ranks show together.
    before = _sliced(rank, table.split, table.start)
    after = _sliced(rank, split, start)
    kinds, waited = split.sum(axis=0), sum(part.waited for part in parts)
    scale = float(kinds.sum() + waited) if table.left_out else 0.0
    alike = np.zeros(len(rank.slices))
    for index, amounts in enumerate(rank.slices):
        own = Amounts(amounts)
        rest = [max(0.0, own[cause] - float(before[index, column])) for column, cause in enumerate(SPLIT)]
        if scale:
            alike[index] = sum(rest) * waited / scale
            rest = (sum(rest) * kinds / scale).tolist()
        for column, cause in enumerate(SPLIT):
            own[cause] = rest[column] + float(after[index, column])
        account.own[index] = Amounts({cause: amount / NS_PER_S for cause, amount in own.items() if amount > 0})
    return account, alike


def _transfers(table: Collectives, parts: Sequence[Attendance], complete: Bools) -> Floats:
    """Exposed times of collectives, by ``SPLIT``, less what was waited for ranks that were seen.

    If all were seen, the rest is transfer. If not, one that was not may have come later still: then it is transfer only
    as far as the rank's own trace says so.
    """
    rows = [part.row for part in parts]
    alone = dict(zip(SPLIT, table.split[rows].T, strict=True))
    rest = np.maximum(0.0, sum(alone.values()) - np.array([part.waited for part in parts]))
    moving = np.where(complete, rest, np.minimum(rest, alone[BANDWIDTH] + alone[LATENCY]))
    by_size = is_short(table.size[rows], np.array([part.transfer for part in parts]))
    short = np.where(complete | (moving == 0), by_size, alone[LATENCY] > alone[BANDWIDTH])
    found = {LATENCY: moving * short, BANDWIDTH: moving * ~short, UNOBSERVED_RANK: rest - moving}
    return np.stack([found[cause] for cause in SPLIT], axis=1)


def _sliced(rank: Rank, split: Floats, start: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Amounts by slice of the window and ``SPLIT``, each spread from its start to the collective's end."""
    edges = slice_edges(rank.window)
    end = rank.collectives.end
    return np.stack([np.diff(spread(start, end, split[:, column], edges)) for column in range(len(SPLIT))], axis=1)


def _attribute_waits(
    account: Account,
    rank: Rank,
    parts: Iterable[Attendance],
    alike: Floats,
    charges: Mapping[int, Charge],
    numbers: Sequence[int],
) -> None:
    by_late: dict[int, list[Attendance]] = defaultdict(list)
    for part in parts:
        if part.waited:
            by_late[part.late].append(part)
    waited = sum(part.waited for some in by_late.values() for part in some)
    for late, waits in by_late.items():
        start = rank.collectives.start[[part.row for part in waits]]
        until = np.array([part.until for part in waits])
        amounts = np.array([part.waited for part in waits])
        sliced = np.diff(spread(start, until, amounts, slice_edges(rank.window)))
        sliced = sliced + alike * float(amounts.sum()) / waited
        for (culprit, cause), part_of in charges[late].items():
            for index in np.flatnonzero(sliced).tolist():
                if numbers[culprit] == account.rank:  # who waits for a rank that waited for this one
                    attributed = account.own.setdefault(index, Amounts())
                else:
                    attributed = account.waits.setdefault((index, numbers[culprit]), Amounts())
                attributed[cause] += float(sliced[index]) * part_of / NS_PER_S


def measure_job(ranks: Sequence[Rank], merged: MergedRanks) -> dict[str, Evidence]:
    """What only the ranks together tell: how much collectives behind kernels are slowed by them."""
    seen = len(ranks) > 1 and len(ranks) >= max(rank.world or 0 for rank in ranks)
    whole = float(sum(rank.window.length for rank in ranks))
    tables = [rank.collectives for rank in ranks]
    return mean_evidence([measure_behind_kernels(tables, merged.parts if seen else None, whole)])


def missing_in_job(ranks: Sequence[Rank], merged: MergedRanks) -> list[NotExamined]:
    """What is not known because ranks are missing, or do not fit together."""
    world = max((rank.world or 0 for rank in ranks), default=0)
    numbered = all(rank.number is not None for rank in ranks)
    found = missing_ranks(len(ranks), world, _ALL, (rank.number or 0 for rank in ranks) if numbered else ())
    if len(ranks) < 2:
        return found
    if not numbered:
        why = "Not all traces say which rank they are of: the files were numbered in their order."
        found.append(NotExamined("ranks", why, "name the files so that their order is that of the ranks"))
    return [*found, *_apart(ranks), *_uneven(ranks), *_unmatched(merged)]


def _apart(ranks: Sequence[Rank]) -> list[NotExamined]:
    """Traces whose clocks say that they were never recorded at the same time."""
    known = [rank for rank in ranks if rank.origin_ns is not None]
    begin = [(rank.origin_ns or 0) + rank.window.start for rank in known]
    end = [(rank.origin_ns or 0) + rank.window.end for rank in known]
    if len(known) < 2 or max(begin) <= min(end):
        return []
    seconds = (max(begin) - min(end)) / NS_PER_S
    why = f"By their hosts' clocks the traces lie {seconds:.3g} s apart: they may be of different steps, or runs."
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]


def _uneven(ranks: Sequence[Rank]) -> list[NotExamined]:
    steps = {rank.window.numbers for rank in ranks}
    lengths = [rank.window.length for rank in ranks]
    if len(steps) < 2 and max(lengths) <= thresholds.UNEVEN_WINDOWS * min(lengths):
        return []
    why = "The ranks' traces hold different steps; waiting is followed only where their collectives are the same."
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]


def _unmatched(merged: MergedRanks) -> list[NotExamined]:
    if not merged.exposed or merged.alone < thresholds.UNMATCHED_COLLECTIVES * merged.exposed:
        return []
    why = (
        f"{merged.alone / merged.exposed:.0%} of the exposed communication is in collectives that were found in one "
        "rank's trace only, so who came late to them is not known."
    )
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]
