"""From columns as they were collected to tables in order of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Table = dict[str, Numbers]
_DAY_US = 86_400e6


def joined(parts: Iterable[Table]) -> Table:
    """One table of those of all pieces."""
    listed = list(parts)
    return {key: np.concatenate([part[key] for part in listed]) for key in listed[0]} if listed else {}


def without_misplaced(tables: Sequence[Table]) -> tuple[list[Table], int]:
    """The rows that are within a day of most others: one wrong time must not stretch the whole trace.

    Returns:
        The tables, each with its rows numbered as they were, and how many rows are left out.
    """
    starts = np.concatenate([table["start"] for table in tables if table] or [np.zeros(0)])
    middle = float(np.partition(starts, len(starts) // 2)[len(starts) // 2]) if len(starts) else 0.0
    found: list[Table] = []
    for table in tables:
        if table:
            table["row"] = np.arange(len(table["start"]))
            sound = (np.abs(table["start"] - middle) < _DAY_US) & (table["duration"] < _DAY_US)
            found.append({key: column[sound] for key, column in table.items()} if sound.any() else {})
        else:
            found.append({})
    return found, sum(map(_rows, tables)) - sum(map(_rows, found))


def _rows(table: Table) -> int:
    return len(table["start"]) if table else 0


def timed(table: Table, kind: Any, origin: float) -> tuple[Any, Numbers]:
    """The table as an instance of its class, sorted by start, in nanoseconds since the origin."""
    types = {"kind": np.int8, "name": np.int32, "thread": np.int32, "device": np.int32}
    types |= {"stack": np.int32, "inputs": np.int32}
    fields = list(kind.__dataclass_fields__)
    if not table:
        return kind(**{name: np.zeros(0, dtype=types.get(name, np.int64)) for name in fields}), np.zeros(0, np.int64)
    start = np.rint((table.pop("start") - origin) * 1000).astype(np.int64)
    table["end"] = start + np.rint(table.pop("duration") * 1000).astype(np.int64)
    table["start"] = start
    # Of ranges that start together the longest comes first: it encloses the others.
    order = np.lexsort((-table["end"], start))
    rows = table["row"][order]
    return kind(**{name: table[name][order].astype(types.get(name, np.int64), copy=False) for name in fields}), rows
