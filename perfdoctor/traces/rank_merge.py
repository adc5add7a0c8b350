"""The ranks of one job, put together: who they are, and what each waited for in the others.

Each rank's account keeps its own causes. What it waited for others in collectives is attributed to those who came late,
and to what they did more of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.causes import BANDWIDTH, LATENCY, UNOBSERVED_RANK
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process
from perfdoctor.traces.account import slice_edges
from perfdoctor.traces.communication import SPLIT, is_short
from perfdoctor.traces.interference import measure_behind_kernels
from perfdoctor.traces.intervals import Floats, spread
from perfdoctor.traces.matching import RankClock, match_collectives
from perfdoctor.traces.rank import Rank, mean_evidence
from perfdoctor.traces.stragglers import Attendance, Charge, attend, charge

_SEPARATELY = "Analyze the traces of one run together, and other files by themselves."
_ALL = "give the traces of all ranks: perfdoctor analyze FOLDER"


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
    notes = [
        NotExamined(
            "ranks",
            f"{', '.join(others)}: the same as {source} to the nanosecond, so a copy of it and no other rank's trace. "
            "It is left out.",
            "give each rank a file of its own, with its rank in the name",
        )
        for source, others in copies.items()
    ]
    return kept, notes


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
    sizes = {(rank, row): len(collective) for collective in shared for rank, row in collective.items()}
    charges = charge(parts)
    by_rank: dict[int, list[Attendance]] = defaultdict(list)
    for part in parts:
        by_rank[part.rank].append(part)
    worlds = [rank.world or 0 for rank in ranks]
    all_seen = len(ranks) >= max(worlds)
    accounts = []
    for index, rank in enumerate(ranks):
        mine = by_rank[index]
        complete = {part.row for part in mine if all_seen or _is_whole(rank, part, sizes[index, part.row])}
        account = _own_account(rank, numbers[index], mine, complete)
        _attribute_waits(account, rank, mine, charges, numbers)
        accounts.append(account)
    exposed = float(sum(table.split.sum() for table in tables))
    met = float(sum(tables[part.rank].split[part.row].sum() for part in parts))
    return MergedRanks(accounts, clocks, len(shared), parts, exposed, max(0.0, exposed - met))


def _is_whole(rank: Rank, part: Attendance, seen: int) -> bool:
    """Whether all ranks of a collective were seen in it."""
    return 0 < int(rank.collectives.group_size[part.row]) <= seen


def _own_account(rank: Rank, number: int, parts: Sequence[Attendance], complete: set[int]) -> Account:
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


def _transfer(rank: Rank, part: Attendance, *, complete: bool) -> Floats:
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
    found = {LATENCY: moving if short else 0.0, BANDWIDTH: 0.0 if short else moving, UNOBSERVED_RANK: rest - moving}
    return np.array([found[cause] for cause in SPLIT])


def _sliced(rank: Rank, split: Floats, start: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Amounts by slice of the window and ``SPLIT``, each spread from its start to the collective's end."""
    edges = slice_edges(rank.window)
    end = rank.collectives.end
    return np.stack([np.diff(spread(start, end, split[:, column], edges)) for column in range(len(SPLIT))], axis=1)


def _attribute_waits(
    account: Account, rank: Rank, parts: Iterable[Attendance], charges: Mapping[int, Charge], numbers: Sequence[int]
) -> None:
    by_late: dict[int, list[Attendance]] = defaultdict(list)
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
    found = []
    if len(ranks) < world:
        why = f"{len(ranks)} of {world} ranks were seen: waiting for the others is not followed."
        found.append(NotExamined("ranks", why, _ALL))
    if len(ranks) < 2:
        return found
    if not all(rank.number is not None for rank in ranks):
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
