"""What an operation waits for: those before it on its own rank, and the other ranks of its exchange.

The order on a rank is read from the table: an operation follows another if it never began before that one had ended.
So blocking and overlapping schedules need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.operations.table import AT_ENDS, IN_STAGE, MESSAGES, OF_ALL, Operation, OperationTable


@dataclass(frozen=True, slots=True)
class Exchange:
    """Operations that move data together: none is done before all have begun.

    Attributes:
        everywhere: whether the data-parallel ranks take part together, or each by itself.
    """

    members: tuple[Operation, ...]
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The dependencies of one step; the same for all steps and data-parallel ranks.

    Attributes:
        after: an operation to those on its own rank that must have ended before.
        exchanges: a communicating operation to its exchange.
    """

    after: dict[Operation, tuple[Operation, ...]]
    exchanges: dict[Operation, Exchange]


def build_graph(table: OperationTable) -> Graph:
    """The dependencies of a table's operations.

    Raises:
        PerfDoctorError: sends and receives of neighbouring stages do not pair.
    """
    after: dict[Operation, tuple[Operation, ...]] = {}
    for stage in range(table.stages):
        after |= _follow(table, table.of_stage(stage))
    return Graph(after, _exchanges(table))


def _follow(table: OperationTable, operations: Sequence[Operation]) -> dict[Operation, tuple[Operation, ...]]:
    """Each operation to the ones that it directly follows."""
    found: dict[Operation, tuple[Operation, ...]] = {}
    implied: dict[Operation, set[Operation]] = {}
    for place, one in enumerate(operations):
        direct: list[Operation] = []
        known: set[Operation] = set()
        for other in reversed(operations[:place]):
            if other not in known and _follows(table, one, other):
                direct.append(other)
                known |= {other} | implied[other]
        found[one], implied[one] = tuple(direct), known
    return found


def _follows(table: OperationTable, one: Operation, other: Operation) -> bool:
    tolerance = np.minimum(thresholds.OPERATION_OVERLAP_S, (table.end[other] - table.start[other]) / 2)
    return bool((table.start[one] >= table.end[other] - tolerance).mean() >= thresholds.ALWAYS_AFTER)


def _exchanges(table: OperationTable) -> dict[Operation, Exchange]:
    found: dict[Operation, Exchange] = {}
    for one in table.start:
        if one.kind in IN_STAGE:
            found[one] = Exchange((one,), everywhere=True)
        elif one.kind in MESSAGES:
            found[one] = Exchange(tuple(sorted((one, _peer(table, one)))), everywhere=False)
        elif one.kind in (AT_ENDS, OF_ALL):
            members = tuple(other for other in table.start if other[1:] == one[1:])
            found[one] = Exchange(members, everywhere=one.kind == OF_ALL)
        elif one.communicates:
            found[one] = Exchange((one,), everywhere=False)
    return found


def _peer(table: OperationTable, one: Operation) -> Operation:
    """The other end of a message between neighbouring stages."""
    direction, receives = MESSAGES[one.kind]
    stage = one.stage - direction if receives else one.stage + direction
    verb = "send" if receives else "recv"
    peer = Operation(stage, f"{one.kind.split('-')[0]}-{verb}", one.number)
    if peer not in table.start:
        raise PerfDoctorError(
            f"{table.source}: {one.kind} {one.number} of stage {one.stage} has no other end.",
            hint="Interleaved pipeline schedules are not read yet.",
        )
    return peer
