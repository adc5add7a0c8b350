"""The ranks of a table of operations, in the form in which those of profiler traces are put together."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from perfdoctor.causes import GARBAGE_COLLECTION, GPU_COMPUTE, UNATTRIBUTED, UNOBSERVED_RANK
from perfdoctor.operations.table import COLLECTING, COMPUTING, Graph, Operation, OperationTable
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.account import SLICES, slice_edges
from perfdoctor.traces.collectives import COLUMNS, Collectives, are_blocking
from perfdoctor.traces.communication import SPLIT, exposed_times
from perfdoctor.traces.intervals import Int64s, Intervals
from perfdoctor.traces.loop import WholeSteps
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.steps import TraceWindow


def list_ranks(table: OperationTable, graph: Graph) -> list[Rank]:
    """One for each row of ``table.ranks``, in the order of their numbers.

    The steps, which need not follow each other in the job, are laid one behind the other.
    """
    begins = _begins(table)
    places = sorted(table.ranks, key=lambda place: table.ranks[place])
    return [_rank(table, graph, begins, replica, stage) for replica, stage in places]


def _begins(table: OperationTable) -> Int64s:
    """Where each step begins, and the last one ends; nanoseconds."""
    lengths = np.maximum.reduce([end.max(axis=1) for end in table.end.values()])
    return np.asarray(np.rint(np.concatenate(([0.0], np.cumsum(lengths))) * NS_PER_S), dtype=np.int64)


def _rank(table: OperationTable, graph: Graph, begins: Int64s, replica: int, stage: int) -> Rank:
    spans = tuple(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    window = TraceWindow(0, int(begins[-1]), spans, table.steps)
    operations = table.of_stage(stage)
    start = np.array([_times(table.start[one], begins, replica) for one in operations])
    end = np.array([_times(table.end[one], begins, replica) for one in operations])
    kinds = {
        GPU_COMPUTE: np.array([one.kind in COMPUTING for one in operations]),
        GARBAGE_COLLECTION: np.array([one.kind == COLLECTING for one in operations]),
        UNOBSERVED_RANK: np.array([one.communicates for one in operations]),
    }
    times: dict[str, Intervals] = {}
    left = Intervals.one(window.start, window.end)
    for cause, rows in kinds.items():
        times[cause] = Intervals.union(start[rows].ravel(), end[rows].ravel()) & left
        left = left - times[cause]
    times[UNATTRIBUTED] = left
    moving = kinds[UNOBSERVED_RANK]
    members = [one for one in operations if one.communicates]
    keys = [_keys(table, graph, one, replica) for one in members]
    collectives = _collectives(start[moving], end[moving], members, keys, times)
    return _summary(table, window, times, collectives, table.ranks[replica, stage])


def _times(values: npt.NDArray[np.float64], begins: Int64s, replica: int) -> Int64s:
    return np.rint(values[:, replica] * NS_PER_S).astype(np.int64) + begins[:-1]


def _keys(table: OperationTable, graph: Graph, one: Operation, replica: int) -> list[Hashable]:
    """What names an exchange on all ranks, step by step."""
    exchange = graph.exchanges[one]
    where = "all" if exchange.everywhere else replica
    return [(exchange.members, where, step) for step in table.steps]


def _collectives(
    start: Int64s, end: Int64s, members: list[Operation], keys: list[list[Hashable]], times: dict[str, Intervals]
) -> Collectives:
    """The exchanges of a rank, from arrays of operations by steps."""
    steps = start.shape[1]
    order = np.argsort(start.ravel(), kind="stable")
    start, end = start.ravel()[order], end.ravel()[order]
    alone = times[UNOBSERVED_RANK]
    split = np.zeros((len(order), len(SPLIT)))
    split[:, SPLIT.index(UNOBSERVED_RANK)] = exposed_times(alone, start, end)
    nothing = Intervals.none()
    return Collectives(
        keys=tuple(keys[place // steps][place % steps] for place in order.tolist()),
        kinds=tuple((members[place // steps].kind,) for place in order.tolist()),
        group_size=np.zeros(len(order), dtype=np.int64),
        start=start,
        end=end,
        size=np.full(len(order), np.nan),
        split=split,
        alone=alone.summed(),
        blocking=are_blocking(alone, start, end),
        before=np.stack([times.get(cause, nothing).before(start) for cause in COLUMNS], axis=1).astype(np.float64),
        after=np.stack([times.get(cause, nothing).before(end) for cause in COLUMNS], axis=1).astype(np.float64),
    )


def _summary(
    table: OperationTable, window: TraceWindow, times: dict[str, Intervals], collectives: Collectives, number: int
) -> Rank:
    edges = slice_edges(window)
    slices: list[Amounts[str]] = [Amounts() for _ in range(SLICES)]
    for cause, spent in times.items():
        for amounts, amount in zip(slices, spent.within(edges[:-1], edges[1:]).tolist(), strict=True):
            if amount:
                amounts[cause] = float(amount)
    return Rank(
        source=table.source,
        number=number,
        events=len(table.steps) * len(table.start) // table.stages,
        window=window,
        slices=slices,
        collectives=collectives,
        loop=WholeSteps(np.diff(np.array(window.steps, dtype=np.int64).reshape(-1, 2))[:, 0], marked=True),
    )
