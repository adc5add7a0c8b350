"""Recordings of many ranks, made of a real one of a few: its trainers and all that belongs to them, repeated."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from pathlib import Path
from typing import Any

_APART = 1_000_000  # between the process ids of two copies
_IDS = ("pid", "tid", "parent_pid", "gil_tid")


def repeat_ranks(path: Path, times: int) -> None:
    """Makes the ranks of a recording so many times as many, in place; processes that are no part of one stay one.

    Each rank's processes are those of its trainer: it and its descendants.
    """
    database = sqlite3.connect(path)
    processes = database.execute("SELECT pid, parent_pid, environment FROM ProcessSeen").fetchall()
    trainers = {pid: _rank(environment) for pid, _, environment in processes if _rank(environment) is not None}
    ours = set(trainers)
    while more := {pid for pid, parent, _ in processes if parent in ours} - ours:
        ours |= more
    ours |= {tid for tid, pid in database.execute("SELECT tid, pid FROM ThreadSeen") if pid in ours}
    world = len(set(trainers.values())) * times
    for (name,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'meta'"
    ).fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
        rows = [dict(zip(columns, row, strict=True)) for row in database.execute(f'SELECT * FROM "{name}"')]
        copies = [
            _copy(row, number, ours, world) for row in rows for number in range(times if _is_of(row, ours) else 1)
        ]
        database.execute(f'DELETE FROM "{name}"')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [tuple(row.values()) for row in copies])
    database.commit()
    database.close()


def _rank(environment: str | None) -> int | None:
    variables = json.loads(environment or "null") or {}
    return int(variables["RANK"]) if "RANK" in variables else None


def _is_of(row: dict[str, Any], ours: set[int]) -> bool:
    subject = str(row.get("subject", ""))
    return any(row.get(name) in ours for name in ("pid", "tid")) or _pid_of(subject) in ours


def _pid_of(subject: str) -> int | None:
    kind, _, number = subject.partition(":")
    return int(number) if kind == "pid" and number.isdigit() else None


def _copy(row: dict[str, Any], number: int, ours: set[int], world: int) -> dict[str, Any]:
    """A row as that of the copy of a number, from 0."""
    changed = {**row, **{name: row[name] + number * _APART for name in _IDS if row.get(name) in ours}}
    if (pid := _pid_of(str(row.get("subject", "")))) in ours and pid is not None:
        changed["subject"] = f"pid:{pid + number * _APART}"
    if (rank := _rank(row.get("environment"))) is not None:
        local = int(json.loads(row["environment"])["WORLD_SIZE"])
        values = {"RANK": rank + number * local, "LOCAL_RANK": rank + number * local}
        values |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        variables = json.loads(row["environment"]) | {name: str(value) for name, value in values.items()}
        changed["environment"] = json.dumps(variables)
    if "trace" in row and "until_ns" in row and number:
        text = zlib.decompress(row["trace"]).decode()
        changed["trace"] = zlib.compress(
            re.sub(r'"pid":(\d+)', lambda found: f'"pid":{int(found[1]) + number * _APART}', text).encode()
        )
    return changed
