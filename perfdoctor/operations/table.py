"""Reads a table of operations: one row per operation of a rank, step by step; and what each operation waits for.

The columns are those of ByteDance's StragglerAnalysis (OSDI 2025), which Megatron's pipeline schedule gives their
names: ``dp_rank``, ``stage``, ``rank``, ``step``, ``optype``, ``start_ts`` and ``duration`` (seconds; starts count from
the step's), ``seq_id``.

An operation waits for those before it on its own rank, and for the other ranks of its exchange. The order on a rank is
read from the table: an operation follows another if it never began before that one had ended. So blocking and
overlapping schedules need no rules of their own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds

if TYPE_CHECKING:
    import pandas as pd  # takes a third of a second to load, so it waits until a table is read

Floats = npt.NDArray[np.float64]

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
COMPUTING = frozenset(("forward-compute", "backward-compute", "optimizer"))
COLLECTING = "gc"
# Between neighbouring stages: direction, and whether the stage receives.
MESSAGES = {
    "forward-send": (1, False),
    "forward-recv": (1, True),
    "backward-send": (-1, False),
    "backward-recv": (-1, True),
}
# Among the ranks of one stage, of the first and the last stage, and of all.
IN_STAGE = frozenset(("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"))
AT_ENDS = "embedding-grads-all-reduce"
OF_ALL = "optimizer-clip-main-grad"
# Within a group that the table does not show.
INSIDE = "layernorm-grads-all-reduce"
KNOWN = COMPUTING | {COLLECTING} | MESSAGES.keys() | IN_STAGE | {AT_ENDS, OF_ALL, INSIDE}
_HINT = "Export a table with the columns of github.com/ByteDance-Seed/StragglerAnalysis as Parquet or CSV."


class Operation(NamedTuple):
    """One operation of a step, on all ranks of a stage: the third backward pass of stage 1, for instance."""

    stage: int
    kind: str
    number: int

    @property
    def communicates(self) -> bool:
        """Whether it moves data between ranks."""
        return self.kind not in COMPUTING and self.kind != COLLECTING


@dataclass(frozen=True, slots=True)
class OperationTable:
    """The operations of all ranks. Times are seconds since the step began; arrays are steps by data-parallel ranks.

    Attributes:
        ranks: ``(dp_rank, stage)`` to the rank's number.
        left_out: steps that hold other operations than most.
    """

    source: str
    steps: tuple[int, ...]
    stages: int
    ranks: Mapping[tuple[int, int], int]
    start: Mapping[Operation, Floats]
    end: Mapping[Operation, Floats]
    left_out: int = 0

    def of_stage(self, stage: int) -> list[Operation]:
        """The operations of a stage in the order in which they begin."""
        found = [one for one in self.start if one.stage == stage]
        return sorted(found, key=lambda one: (float(np.median(self.start[one])), float(np.median(self.end[one]))))


def read_table(path: Path) -> OperationTable:
    """Reads a table.

    Raises:
        PerfDoctorError: it cannot be read, or is not such a table.
    """
    _require_libraries(path)
    import pandas as pd

    rows = _read(path)
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise PerfDoctorError(f"{path} is not a table of operations: it has no column {missing[0]}.", hint=_HINT)
    rows = rows[list(COLUMNS)].astype({"optype": str})
    unknown = sorted(set(rows["optype"].unique()) - KNOWN)
    if unknown:
        raise PerfDoctorError(f"{path} holds operations that are not known: {', '.join(unknown)}.", hint=_HINT)
    numeric = [name for name in COLUMNS if name != "optype"]
    rows[numeric] = rows[numeric].apply(pd.to_numeric, errors="coerce")
    if not len(rows) or not np.isfinite(rows[numeric].to_numpy(dtype=np.float64)).all() or (rows["duration"] < 0).any():
        raise PerfDoctorError(f"{path} holds no rows, or some without a time.", hint=_HINT)
    return _table(path, rows)


def _require_libraries(path: Path) -> None:
    hint = "pip install 'perfdoctor[tables]'"
    if not importlib.util.find_spec("pandas"):
        raise PerfDoctorError(f"{path} needs pandas to be read.", hint=hint)
    if path.suffix == ".parquet" and not importlib.util.find_spec("pyarrow"):
        raise PerfDoctorError(f"{path} needs pyarrow to be read.", hint=f"{hint}, or give it as CSV.")


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError) as error:  # pyarrow's and pandas' errors for files of other kinds are ValueErrors
        raise PerfDoctorError(f"{path} cannot be read as a table: {error}", hint=_HINT) from None


def _table(path: Path, rows: pd.DataFrame) -> OperationTable:
    """The rows as arrays; steps with other operations than most are left out, since they are of another kind."""
    rows["dp_rank"] = rows["dp_rank"].rank(method="dense").astype(int) - 1  # a table may hold some of them only
    rows["start_ts"] = rows["start_ts"].astype(np.float64)
    rows["end"] = rows["start_ts"] + rows["duration"].astype(np.float64)
    steps, replicas = rows["step"].nunique(), rows["dp_rank"].nunique()
    begun = rows.groupby("step")["start_ts"].transform("min")
    rows["start_ts"] -= begun
    rows["end"] -= begun
    wide = rows.pivot_table(
        index=["step", "dp_rank"], columns=["stage", "optype", "seq_id"], values=["start_ts", "end"]
    )
    # An operation that less than half of the steps have is an accident; a step without one that most have is another.
    usual = wide.notna().mean() >= thresholds.USUAL_OPERATIONS
    wide = wide.loc[:, usual]
    whole = wide.notna().all(axis=1).groupby(level="step").transform("all")
    wide = wide[whole.to_numpy()]
    kept = tuple(int(step) for step in wide.index.get_level_values("step").unique())
    if len(kept) < thresholds.USUAL_OPERATIONS * steps or len(wide) != len(kept) * replicas:
        raise PerfDoctorError(f"{path}: the steps do not hold the same operations.", hint=_HINT)
    shape = (len(kept), replicas)
    operations = [Operation(int(a), str(b), int(c)) for a, b, c in wide["start_ts"].columns]
    start = [np.asarray(column, dtype=np.float64).reshape(shape) for column in wide["start_ts"].to_numpy().T]
    end = [np.asarray(column, dtype=np.float64).reshape(shape) for column in wide["end"].to_numpy().T]
    numbers = rows.groupby(["dp_rank", "stage"])["rank"].first().reset_index()
    return OperationTable(
        source=path.name,
        steps=kept,
        stages=int(rows["stage"].max()) + 1,
        ranks={(one[0], one[1]): one[2] for one in numbers.astype(int).to_numpy().tolist()},
        start=dict(zip(operations, start, strict=True)),
        end=dict(zip([Operation(int(a), str(b), int(c)) for a, b, c in wide["end"].columns], end, strict=True)),
        left_out=steps - len(kept),
    )


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
