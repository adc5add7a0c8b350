"""Collectives behind kernels: how much longer do they take than the same collectives by themselves?

A collective that shares the GPU with kernels may be slow although the network is not. What it reaches alone is what
the network gives: if that is more, neither fewer bytes nor a faster network is the first remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from perfdoctor.diagnosis import Evidence
from perfdoctor.traces.beside_collectives import ALONE, BESIDE
from perfdoctor.traces.collectives import Collectives
from perfdoctor.traces.contrast import Contrast, contrast
from perfdoctor.traces.evidence import mean_evidence
from perfdoctor.traces.intervals import Floats, Int64s
from perfdoctor.traces.model import Bools
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.stragglers import Attended

# What the fastest of some took is transfer, where nothing tells how long each waited (as in ``waiting``).
_FASTEST, _SOME = 0.10, 5


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


def measure_behind_kernels(ranks: Sequence[Rank], parts: Sequence[Attended]) -> dict[str, Evidence]:
    """Numbers by their names in ``perfdoctor.metrics.names``; none where nothing could be compared.

    Args:
        ranks: of the job.
        parts: every rank's part in the collectives that several were seen in. If all ranks were seen, they tell
            transfer from waiting; otherwise only the fastest of a kind do.
    """
    seen = len(ranks) > 1 and len(ranks) >= max(rank.world or 0 for rank in ranks)
    transfers = _gather([rank.collectives for rank in ranks], parts if seen else None)
    alone, behind = (transfers.counts & one for one in (transfers.hidden <= ALONE, transfers.hidden >= BESIDE))
    compare = contrast if seen else partial(contrast, fraction=_FASTEST, enough=_SOME)
    found = compare(transfers.kind, transfers.taken, alone, behind)
    if not found.kinds:
        return {}
    whole = float(sum(rank.window.length for rank in ranks))
    numbers = {"traced_held_up": _saved(transfers, found) / whole if whole else 0.0}
    if found.sure:
        numbers |= {"traced_behind": found.times, **_bandwidths(transfers, found)}
    return mean_evidence([numbers])


def _gather(tables: Sequence[Collectives], parts: Sequence[Attended] | None) -> _Transfers:
    """All collectives of known size: of each its transfer where that is known, else all that it took."""
    kinds: dict[tuple[object, float], int] = {}
    names: list[tuple[str, int, float]] = []
    rows: list[tuple[float, ...]] = []
    if parts is None:
        spans = [(table, row, int(table.start[row]), True) for table in tables for row in range(len(table))]
    else:
        spans = [(tables[part.rank], part.row, part.until, part.rank == part.late) for part in parts]
    for table, row, start, counts in spans:
        taken, size = float(table.end[row] - start), float(table.size[row])
        if taken <= 0 or np.isnan(size):
            continue
        kind = (table.kinds[row], size)
        if kind not in kinds:
            kinds[kind] = len(kinds)
            names.append((str(table.kinds[row][0]), int(table.group_size[row]), size))
        exposed = table.alone_within(start, int(table.end[row]))
        rows.append((kinds[kind], taken, 1 - exposed / taken, exposed, counts))
    number, taken_, hidden, exposed_, counted = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return _Transfers(number.astype(np.int64), names, taken_, hidden, exposed_, counted.astype(np.bool_))


def _saved(transfers: _Transfers, found: Contrast) -> float:
    """Nanoseconds of exposed transfer that these would not take if they were as fast as alone."""
    if not found.sure:
        return 0.0
    saved = 0.0
    for kind in found.kinds:
        here = (transfers.kind == kind.number) & (transfers.hidden >= BESIDE)
        saved += float(np.minimum(transfers.exposed[here], max(kind.beside - kind.alone, 0.0)).sum())
    return saved


def _bandwidths(transfers: _Transfers, found: Contrast) -> dict[str, float]:
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
