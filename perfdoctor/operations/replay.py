"""Plays a step again with other durations: when would it have ended?"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

import numpy as np

from perfdoctor.operations.graph import Graph
from perfdoctor.operations.table import Floats, Operation, OperationTable


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
