"""Dumps of torch's Flight Recorder as NCCL's jobs leave them, in the format of version 2.10 (torch 2.13).

Source: ``getCollectiveTrace`` and ``getPgConfig`` in torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, and a dump
of gloo's that was made with torch 2.13.
"""

import pickle
from collections.abc import Sequence
from typing import Any

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.stuck.dumps import Dump, read_dump

WRITTEN_NS = 1_700_000_000 * NS_PER_S
ALL = ("0", "default_pg")
FRAMES = (
    {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 3000},
    {"name": "main", "filename": "/home/me/train.py", "line": 40},
)


def call(
    sequence: int, name: str = "all_reduce", *, group: tuple[str, str] = ALL, ended: bool = False, size: int = 1024,
    dtype: str = "Float", ago_s: float = 700.0, timeout_s: float = 600.0, **other: Any,
) -> dict[str, Any]:  # fmt: skip
    """One entry: a collective, or a message where its name has two ends (``send 0->1``)."""
    message = "->" in name or "<-" in name
    return {
        "record_id": sequence,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": 0 if message else sequence,
        "p2p_seq_id": sequence if message else 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": WRITTEN_NS - int(ago_s * NS_PER_S),
        "input_sizes": [[size]],
        "input_dtypes": [dtype],
        "output_sizes": [[size]],
        "output_dtypes": [dtype],
        "state": "completed" if ended else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": ended,
        "timeout_ms": int(timeout_s * 1000),
        "is_p2p": message,
        "frames": list(FRAMES),
        **other,
    }


def written(calls: Sequence[dict[str, Any]], groups: dict[tuple[str, str], Sequence[int]]) -> bytes:
    """The file of one rank."""
    config = {name: {"name": name, "desc": text, "ranks": str(list(ranks))} for (name, text), ranks in groups.items()}
    entries = [{**one, "record_id": number} for number, one in enumerate(calls)]
    found = {"version": "2.10", "pg_config": config, "pg_status": {}, "comm_lib_version": "2.29", "entries": entries}
    return pickle.dumps(found, protocol=2)


def dumps(*of_ranks: Sequence[dict[str, Any]] | None, **groups: Sequence[int]) -> dict[int, Dump]:
    """Dumps of ranks, in order; None for a rank that has left none.

    Args:
        of_ranks: what each has called.
        groups: members by description; the group of all ranks is there anyway.
    """
    every = {ALL: range(len(of_ranks)), **{named(text): ranks for text, ranks in groups.items()}}
    return {
        rank: read_dump(
            rank, WRITTEN_NS, written(calls, {name: ranks for name, ranks in every.items() if rank in ranks})
        )
        for rank, calls in enumerate(of_ranks)
        if calls is not None
    }


def named(description: str) -> tuple[str, str]:
    """Name and description of a group: one of few names, always the same for the same description."""
    return str(1 + sum(map(ord, description))), description
