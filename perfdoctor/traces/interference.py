"""Collectives and kernels that share a GPU: how much longer does each take beside the other than by itself?

A collective's kernels occupy multiprocessors and memory bandwidth: hidden behind arithmetic they cost no time of their
own, and still make the arithmetic longer. And a collective that shares the GPU with kernels may be slow although the
network is not: what it reaches alone is what the network gives, and if that is more, neither fewer bytes nor a faster
network is the first remedy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.profiler import Work
from perfdoctor.metrics.statistics import WorkComparison, compare_kinds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.collectives import Collectives
from perfdoctor.traces.device import DeviceTime
from perfdoctor.traces.intervals import NONE, Floats, Int64s, Intervals
from perfdoctor.traces.model import UNKNOWN, Bools, DeviceKind, distinct
from perfdoctor.traces.stragglers import Attendance


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one device that share it with no other kernel but those of collectives.

    Attributes:
        rows: of the device's table.
        beside: fraction of each one's time that a collective runs.
    """

    rows: Int64s
    beside: Floats


def measure_beside_collectives(account: RankAccount) -> dict[str, float]:
    """Numbers under the names of ``perfdoctor.metrics.names.TRACE``; none where nothing could be compared."""
    if not account.devices or not (account.work == Work.COMMUNICATION).any():
        return {}
    found = [_kernels_of(account, device) for device in account.devices]
    rows, beside = (np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "beside"))
    taken = account.taken[rows]
    compared = compare_kinds(
        _kinds(account, rows), taken, beside <= thresholds.RUNS_ALONE, beside >= thresholds.RUNS_BESIDE
    )
    little = compared.compared < thresholds.COMPARED_WORK * float(taken[beside >= thresholds.RUNS_BESIDE].sum())
    if not compared.kinds or (little and not compared.sure):
        return {}
    whole = account.window.length * len(account.devices)
    numbers = {"traced_lengthened": compared.longer / whole}
    if compared.sure:
        numbers["traced_beside"] = compared.times
        if steps := len(account.window.steps):
            numbers["traced_lengthened_step"] = 1000 * compared.longer / NS_PER_S / (steps * len(account.devices))
    return numbers


def _kernels_of(account: RankAccount, time: DeviceTime) -> _Kernels:
    device = account.trace.device
    here = (device.device == time.device) & (account.taken > 0)
    exchanging = here & (account.work == Work.COMMUNICATION)
    others = np.flatnonzero(here & ~exchanging)
    kernels = others[(device.kind[others] == DeviceKind.KERNEL) & (account.taken[others] >= thresholds.SHORT_KERNEL_NS)]
    start, end = device.start[kernels], device.end[kernels]
    shared = _shared(device.start[others], device.end[others]).within(start, end)
    single = shared <= thresholds.RUNS_ALONE * (end - start)
    times = Intervals.union(device.start[exchanging], device.end[exchanging])
    beside = times.within(start, end) / np.maximum(end - start, 1)
    return _Kernels(kernels[single], beside[single])


def _shared(start: Int64s, end: Int64s) -> Intervals:
    """The times in which at least two run."""
    edges = np.concatenate((start, end))
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
    edges = edges[order]
    return Intervals.union(edges[:-1][depth >= 2], edges[1:][depth >= 2])


def _kinds(account: RankAccount, rows: Int64s) -> Int64s:
    """Numbers for kernels that do the same work: of one name and launch geometry, for one operator with its shapes.

    The outermost operator distinguishes the forward pass from the backward pass; shapes are known of few operators.
    """
    trace = account.trace
    device, host = trace.device, trace.host
    operator = inputs = np.full(len(rows), UNKNOWN, dtype=np.int64)
    if len(trace.calls) and len(host):
        within = account.operators
        place = within.innermost(*account.launched_at(rows))
        inputs = np.where(place == NONE, UNKNOWN, host.inputs[place]).astype(np.int64)
        operator = np.where(place == NONE, UNKNOWN, host.name[within.outermost(len(host))[place]]).astype(np.int64)
    kind = np.zeros(len(rows), dtype=np.int64)
    for column in (device.name[rows], device.geometry[rows], operator, inputs):
        both = kind * (int(column.max(initial=0)) + 2) + column + 1
        kind = np.searchsorted(distinct(both), both)
    return kind


@dataclass(frozen=True, slots=True)
class _Transfers:
    """Transfers of all ranks, one row each.

    Attributes:
        kind: number of what is alike: operation, group and bytes.
        names: of each kind: the operation, the group's size (0 where it is not known) and the bytes.
        taken: nanoseconds.
        hidden: fraction of them in which kernels run, too.
        exposed: nanoseconds in which nothing else runs.
        counts: whether it is compared: of the ranks that were in one collective only the one that came last.
    """

    kind: Int64s
    names: list[tuple[str, int, float]]
    taken: Floats
    hidden: Floats
    exposed: Floats
    counts: Bools


def measure_behind_kernels(
    tables: Sequence[Collectives], parts: Sequence[Attendance] | None, whole_ns: float
) -> dict[str, float]:
    """Slowed collectives, under names of ``perfdoctor.metrics.names``; none where nothing could be compared.

    Args:
        tables: the collectives of the job's ranks.
        parts: if all ranks were seen, every rank's part in the collectives, which sets transfer apart from waiting.
            Without them only the fastest of a kind show what transfer takes.
        whole_ns: the time accounted for, over all ranks.
    """
    transfers = _gather(tables, parts)
    alone, behind = (
        transfers.counts & one
        for one in (transfers.hidden <= thresholds.RUNS_ALONE, transfers.hidden >= thresholds.RUNS_BESIDE)
    )
    compare = (
        partial(compare_kinds, fraction=thresholds.FASTEST_COLLECTIVES, enough=thresholds.ALIKE_COLLECTIVES)
        if parts is None
        else compare_kinds
    )
    found = compare(transfers.kind, transfers.taken, alone, behind)
    if not found.kinds:
        return {}
    numbers = {"traced_held_up": _saved(transfers, found) / whole_ns if whole_ns else 0.0}
    if found.sure:
        numbers |= {"traced_behind": found.times, **_bandwidths(transfers, found)}
    return numbers


def _gather(tables: Sequence[Collectives], parts: Sequence[Attendance] | None) -> _Transfers:
    """All collectives of known size: of each its transfer where that is known, else all that it took."""
    if parts is None:
        spans = [
            (rank, row, int(one), True) for rank, table in enumerate(tables) for row, one in enumerate(table.start)
        ]
    else:
        spans = [(part.rank, part.row, part.until, part.rank == part.late) for part in parts]
    of_rank: dict[int, list[int]] = defaultdict(list)
    for place, (rank, *_) in enumerate(spans):
        of_rank[rank].append(place)
    taken, size, exposed = np.zeros((3, len(spans)))
    for rank, places in of_rank.items():
        rows, start = np.array([spans[place][1:3] for place in places], dtype=np.int64).T
        end = tables[rank].end[rows]
        taken[places], size[places] = end - start, tables[rank].size[rows]
        exposed[places] = tables[rank].alone_within(start, end)
    known = np.flatnonzero((taken > 0) & ~np.isnan(size))
    kinds: dict[tuple[object, float], int] = {}
    names: list[tuple[str, int, float]] = []
    number = np.zeros(len(known), dtype=np.int64)
    for index, place in enumerate(known.tolist()):
        rank, row, *_ = spans[place]
        kind = (tables[rank].kinds[row], float(size[place]))
        if kind not in kinds:
            kinds[kind] = len(kinds)
            names.append((str(kind[0][0]), int(tables[rank].group_size[row]), kind[1]))
        number[index] = kinds[kind]
    taken, exposed = taken[known], exposed[known]
    counts = np.array([spans[place][3] for place in known.tolist()], dtype=np.bool_)
    return _Transfers(number, names, taken, 1 - exposed / taken, exposed, counts)


def _saved(transfers: _Transfers, found: WorkComparison) -> float:
    """Nanoseconds of exposed transfer that these would not take if they were as fast as alone."""
    if not found.sure:
        return 0.0
    saved = 0.0
    for kind in found.kinds:
        here = (transfers.kind == kind.number) & (transfers.hidden >= thresholds.RUNS_BESIDE)
        saved += float(np.minimum(transfers.exposed[here], max(kind.beside - kind.alone, 0.0)).sum())
    return saved


def _bandwidths(transfers: _Transfers, found: WorkComparison) -> dict[str, float]:
    """Bus bandwidths in GB/s of the kind that takes most, alone and behind kernels, if its group's size is known."""
    most = max(found.kinds, key=lambda kind: kind.beside * kind.count)
    operation, ranks, size = transfers.names[most.number]
    if ranks < 2:
        return {}
    moved = size * bus_factor(operation, ranks)
    return {"traced_bus_alone": moved / most.alone, "traced_bus_behind": moved / most.beside}


def bus_factor(operation: str, ranks: int) -> float:
    """What a link carries for each byte of a collective, as nccl-tests count it (PERFORMANCE.md).

    Args:
        operation: as the profiler writes it: ``allreduce``, ``_allgather_base``, ``reduce_scatter`` …
        ranks: of the group.
    """
    name = operation.lower().replace("_", "")
    if "allreduce" in name:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if any(word in name for word in ("gather", "scatter", "alltoall")) else 1.0
