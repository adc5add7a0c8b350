"""Slow hardware told from more work: do the same kernels take longer on the rank that the others wait for?

Kernels of one name and grid do the same work on all ranks. If most of a late rank's time goes to kernels that take
longer there than elsewhere, it is the GPU; if they take as long, there are more of them, or larger ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge.kernels import Work
from perfdoctor.metrics.names import TRACE
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.arrays import median
from perfdoctor.traces.model import DeviceKind

# Shorter kernels are mostly starting and ending.
_SHORTEST_NS = 10_000
# Of a kernel that ran less often the median may be an outlier.
_OFTEN = 3

Paces = Mapping[tuple[str, int], tuple[float, int]]


def measure_paces(account: RankAccount) -> Paces:
    """Name and grid of kernels to what they take in the median, in nanoseconds, and how many there were.

    Nothing for a rank that exchanges nothing with others.
    """
    if not any(len(one.rows) for one in account.exchanges):
        return {}
    device = account.trace.device
    wanted = (device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION) & (account.taken > 0)
    rows = np.flatnonzero(wanted & (device.end - device.start >= _SHORTEST_NS))
    name, blocks, length = device.name[rows], device.blocks[rows], (device.end - device.start)[rows]
    order = np.lexsort((length, blocks, name))
    name, blocks, length = name[order], blocks[order], length[order]
    borders = np.flatnonzero((np.diff(name) != 0) | (np.diff(blocks) != 0)) + 1
    edges = [0, *borders.tolist(), len(rows)]
    return {
        (account.trace.names[name[first]], int(blocks[first])): (float(length[(first + last) // 2]), last - first)
        for first, last in pairwise(edges)
        if last - first >= _OFTEN
    }


def compare_paces(ranks: Sequence[Paces], late: int) -> dict[str, Evidence]:
    """How long the kernels of a late rank take, beside the same ones of the others.

    Args:
        ranks: of a job.
        late: index of the one.

    Returns:
        The number by its name in ``perfdoctor.metrics.names``; nothing without kernels in common.
    """
    times, weights = [], []
    for kernel, (taken, count) in ranks[late].items():
        others = [paces[kernel][0] for index, paces in enumerate(ranks) if index != late and kernel in paces]
        if others:
            times.append(taken / median(others))
            weights.append(taken * count)
    if not times:
        return {}
    order = np.argsort(times)
    middle = int(np.searchsorted(np.cumsum(np.array(weights)[order]), sum(weights) / 2))
    words, unit, probe = TRACE["traced_same_kernels"]
    return {"traced_same_kernels": Evidence(words, round(times[order[middle]], 3), unit, probe)}
