"""What a job would gain if its ranks were equal, and which rank or stage stands in the way.

The measures are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): the
slowdown is the length of a step, without the pauses between operations, over what it would be if every operation took
what its kind takes on average (the median for transfers, whose accidents are long). Steps are replayed with these
times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.operations.table import Floats, Graph, Operation, OperationTable


@dataclass(frozen=True, slots=True)
class WhatIf:
    """How much longer a step takes than with equal ranks, and whose fault it is.

    Attributes:
        slowdown: step over ideal step, without pauses.
        pauses: step as it was over step without pauses.
        kind: ``rank``, ``stage``, ``changing`` (another one in each step, or several) or ``none``.
        culprit: the rank or stage; None for the other kinds.
        explained: the part of the loss that vanishes if the worst rank, or if the worst stage, is made like the mean.
    """

    slowdown: float
    pauses: float
    kind: str
    culprit: int | None
    explained: dict[str, float]


def ask_what_if(table: OperationTable, graph: Graph) -> WhatIf:
    """Replays the table's steps as they were, with equal ranks, and with each rank and each stage made equal."""
    real = own_durations(table, graph)
    ideal = _equal(real)
    whole = float(np.maximum.reduce([end.max(axis=1) for end in table.end.values()]).mean())
    lasts, best = float(replay(graph, real).mean()), float(replay(graph, ideal).mean())
    ranks = {key: _won(graph, real, ideal, _is_rank(*key)) for key in table.ranks}
    stages = {stage: _won(graph, real, ideal, _is_stage(stage)) for stage in range(table.stages)}
    rank, stage = max(ranks, key=lambda key: ranks[key]), max(stages, key=lambda key: stages[key])
    lost = max(lasts - best, 1e-12)
    explained = {"rank": ranks[rank] / lost, "stage": stages[stage] / lost}
    kind, culprit = "changing", None
    if lasts < thresholds.STRAGGLING * best:
        kind = "none"
    elif explained["rank"] >= thresholds.EXPLAINED_LOSS:
        kind, culprit = "rank", table.ranks[rank]
    elif table.stages > 1 and explained["stage"] >= thresholds.EXPLAINED_LOSS:
        kind, culprit = "stage", stage
    return WhatIf(lasts / best, whole / lasts, kind, culprit, explained)


def _equal(real: dict[Operation, Floats]) -> dict[Operation, Floats]:
    """Every operation takes what its kind takes over all ranks and steps."""
    kinds: dict[str, list[Operation]] = defaultdict(list)
    for one in real:
        kinds[one.kind].append(one)
    ideal: dict[Operation, Floats] = {}
    for members in kinds.values():
        values = np.stack([real[one] for one in members])
        usual = float(np.median(values)) if members[0].communicates else float(values.mean())
        ideal |= {one: np.full_like(real[one], usual) for one in members}
    return ideal


_Chooses = Callable[[Operation], slice | int | None]


def _is_rank(replica: int, stage: int) -> _Chooses:
    return lambda one: replica if one.stage == stage else None


def _is_stage(stage: int) -> _Chooses:
    return lambda one: slice(None) if one.stage == stage else None


def _won(graph: Graph, real: dict[Operation, Floats], ideal: dict[Operation, Floats], chooses: _Chooses) -> float:
    """Seconds that a step gets shorter if some ranks' operations took what they take on average."""
    changed = dict(real)
    for one, durations in real.items():
        columns = chooses(one)
        if columns is not None:
            changed[one] = durations.copy()
            changed[one][:, columns] = ideal[one][:, columns]
    return float((replay(graph, real) - replay(graph, changed)).mean())


def own_durations(table: OperationTable, graph: Graph) -> dict[Operation, Floats]:
    """What each operation takes by itself, in seconds: of an exchange what it takes when all have begun."""
    found: dict[Operation, Floats] = {}
    for one, start in table.start.items():
        if one in graph.exchanges:
            start = _last(graph, one, table.start)
        found[one] = np.maximum(table.end[one] - start, 0.0)
    return found


def replay(graph: Graph, durations: Mapping[Operation, Floats]) -> Floats:
    """The length of each step if operations took these times, and nothing lay between them; in seconds."""
    starts: dict[Operation, Floats] = {}
    ends: dict[Operation, Floats] = {}
    for node in _order(graph):
        for one in node:
            before = [ends[other] for other in graph.after[one]]
            starts[one] = np.maximum.reduce(before) if before else np.zeros_like(durations[one])
        for one in node:
            begun = _last(graph, one, starts) if one in graph.exchanges else starts[one]
            ends[one] = begun + durations[one]
    return np.asarray(np.maximum.reduce(list(ends.values())).max(axis=1))


def _last(graph: Graph, one: Operation, starts: Mapping[Operation, Floats]) -> Floats:
    """When the last member of an exchange begins."""
    exchange = graph.exchanges[one]
    last = np.maximum.reduce([starts[member] for member in exchange.members])
    return np.broadcast_to(last.max(axis=1, keepdims=True), last.shape) if exchange.everywhere else last


def _order(graph: Graph) -> list[tuple[Operation, ...]]:
    """Operations in an order in which they can be played; those of one exchange come together."""
    node = {one: graph.exchanges[one].members if one in graph.exchanges else (one,) for one in graph.after}
    sorter: TopologicalSorter[tuple[Operation, ...]] = TopologicalSorter()
    for one, before in graph.after.items():
        sorter.add(node[one], *(node[other] for other in before))
    return list(sorter.static_order())
