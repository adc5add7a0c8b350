"""What kernels show: which take the time, whether they use what GPU and PyTorch offer, and how fast they are.

Read from names that libraries give. A number that no kernel of the trace speaks about is absent, not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.profiler import (
    FUNCTOR,
    FUSED_ATTENTION,
    LAYOUT,
    MATRIX,
    ON_TENSOR_CORES,
    PRECISIONS,
    SOFTMAX,
    Work,
    name_precision,
)
from perfdoctor.metrics.names import TRACE
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.quantiles import median
from perfdoctor.traces.account import CAUSE_OF_WORK, RankAccount
from perfdoctor.traces.communication import SPLIT
from perfdoctor.traces.intervals import NONE, nest
from perfdoctor.traces.loop import own_updates
from perfdoctor.traces.model import Bools, DeviceKind, is_among, names_matching

_SHOWN = 3  # kernels or operators of each cause that a finding names
_IN_PRECISION = {precision: f"traced_matrix_{precision}" for precision in PRECISIONS}


def time_kernels(account: RankAccount) -> dict[str, Amounts[str]]:
    """Cause to the kernels that it consists of, in nanoseconds by name."""
    found: dict[str, Amounts[str]] = {}
    taken = account.taken
    for work in Work:
        causes = SPLIT if work is Work.COMMUNICATION else (CAUSE_OF_WORK[work],)
        rows = account.work == work
        summed = np.bincount(account.trace.device.name[rows], weights=taken[rows])
        for cause in causes:
            amounts = found.setdefault(cause, Amounts())
            for name in np.flatnonzero(summed):
                amounts[shorten(account.trace.names[name])] += float(summed[name])
    return found


def top_named(ranks: Iterable[Mapping[str, Amounts[str]]]) -> dict[str, tuple[tuple[str, float], ...]]:
    """Cause to what takes longest over all ranks (kernels, operators, lines), each with its fraction of the time."""
    found: dict[str, Amounts[str]] = {}
    for rank in ranks:
        for cause, amounts in rank.items():
            found[cause] = Amounts.summed([found.get(cause, {}), amounts])
    return {cause: _largest(amounts) for cause, amounts in found.items() if amounts.total}


def _largest(amounts: Amounts[str]) -> tuple[tuple[str, float], ...]:
    fractions = amounts.fractions()
    named = [(name, part) for name, part in fractions.items() if name]
    return tuple(sorted(named, key=lambda one: -one[1])[:_SHOWN])


@lru_cache(maxsize=4096)
def shorten(name: str) -> str:
    """A kernel's name without return type and arguments, and not longer than a line."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    base = _base(name)
    inner = FUNCTOR.search(name, len(base))
    return (f"{base} [{inner.group()}]" if inner else base)[:100]


@lru_cache(maxsize=4096)
def _base(name: str) -> str:
    return re.split(r"[<(]", name, maxsplit=1)[0].strip() or name


def measure_kernels(account: RankAccount) -> dict[str, float]:
    """Numbers under the names of ``perfdoctor.metrics.names.TRACE``; absent where no event speaks about them."""
    trace, taken = account.trace, account.taken
    if not len(trace.device):
        return {}
    kernels = (trace.device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION)
    matrix = kernels & _named(account, MATRIX, only_base=True)
    copies = trace.device.kind == DeviceKind.COPY
    found = {
        "traced_tensor_cores": _part(taken, matrix & _named(account, ON_TENSOR_CORES), matrix),
        "traced_layout": _part(taken, kernels & _named(account, LAYOUT), kernels),
        "traced_softmax": _part(taken, kernels & _named(account, SOFTMAX), kernels),
        "traced_fused_attention": _part(taken, kernels & _named(account, FUSED_ATTENTION), kernels),
        "traced_pageable": _part(
            np.ones(len(taken)),
            copies & _named(account, profiler.PAGEABLE_COPY),
            copies & _named(account, profiler.HOST_DEVICE_COPY),
        ),
        "traced_optimizer_kernels": _optimizer_kernels(account),
        "traced_recomputed": measure_recomputation(account),
        **_precisions(account, matrix),
    }
    measured = {name: value for name, value in found.items() if value is not None}
    small = ("traced_recomputed", "traced_layout", "traced_softmax", "traced_fused_attention")
    for name in (*small, *_IN_PRECISION.values()):
        if measured.get(name, 1.0) < thresholds.REPORTED_PART:
            del measured[name]
    return measured


def _precisions(account: RankAccount, matrix: Bools) -> dict[str, float | None]:
    """How much of the matrix kernels' time goes to each precision; what their names do not tell is left out."""
    trace = account.trace
    number = {precision: index for index, precision in enumerate(PRECISIONS)}
    by_name = np.full(max(len(trace.names), 1), -1)
    for name in trace.occurring(trace.device.name[matrix]):
        by_name[name] = number.get(name_precision(trace.names[name]), -1)
    return {
        name: _part(account.taken, matrix & trace.named(by_name == number[precision], trace.device.name), matrix)
        for precision, name in _IN_PRECISION.items()
    }


def _part(weight: npt.NDArray[np.float64], some: Bools, whole: Bools) -> float | None:
    total = float(weight[whole].sum())
    return float(weight[some & whole].sum()) / total if total else None


def _named(account: RankAccount, pattern: re.Pattern[str], *, only_base: bool = False) -> Bools:
    """Which device events have a name that matches in lower case, its template arguments included or not."""
    trace, rows, found = account.trace, account.trace.device.name, names_matching(pattern)
    wanted = np.zeros(max(len(trace.names), 1), dtype=np.bool_)
    for name in trace.occurring(rows):
        whole = trace.names[name].lower()
        wanted[name] = found[_base(whole.removeprefix("void ")) if only_base else whole]
    return trace.named(wanted, rows)


def _optimizer_kernels(account: RankAccount) -> float | None:
    """Kernels that one optimizer step launches, in the median: a few if it is fused, one or more per tensor if not.

    What a closure launches in it is left out.
    """
    trace, calls, updates = account.trace, account.trace.calls, own_updates(account.trace)
    if not len(updates.name):
        return None
    launching = np.sort(calls.start[is_among(calls.correlation, trace.device.correlation) & (calls.correlation > 0)])
    launched = np.searchsorted(launching, updates.end) - np.searchsorted(launching, updates.start)
    return median(launched)


def measure_recomputation(account: RankAccount) -> float | None:
    """Fraction of the kernels' time that is forward work done again; None where the trace shows none."""
    trace = account.trace
    host = trace.host
    again = trace.matching(profiler.RECOMPUTING, host.name)
    own = (trace.device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION)
    kernels = np.flatnonzero(own & (account.taken > 0))
    if not again.any() or not len(kernels) or not len(trace.calls):
        return None
    passes = nest(host, again | trace.matching(profiler.BACKWARD, host.name))
    inside = passes.innermost(*account.launched_at(kernels))
    repeated = (inside != NONE) & again[inside]
    taken = account.taken[kernels]
    return float(taken[repeated].sum() / taken.sum())


# Name and grid of kernels to what they take in the median, in nanoseconds, and how many there are.
KernelTimes = Mapping[tuple[str, int], tuple[float, int]]


def time_same_kernels(account: RankAccount) -> KernelTimes:
    """What a rank's kernels take, but for short ones, to compare with the same kernels on other ranks.

    Kernels of one name and grid do the same work on all ranks. Nothing for a rank that exchanges nothing with others.
    """
    if not any(len(one.rows) for one in account.collectives):
        return {}
    device = account.trace.device
    wanted = (device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION) & (account.taken > 0)
    rows = np.flatnonzero(wanted & (device.end - device.start >= thresholds.SHORT_KERNEL_NS))
    name, blocks, length = device.name[rows], device.blocks[rows], (device.end - device.start)[rows]
    order = np.lexsort((length, blocks, name))
    name, blocks, length = name[order], blocks[order], length[order]
    borders = np.flatnonzero((np.diff(name) != 0) | (np.diff(blocks) != 0)) + 1
    edges = [0, *borders.tolist(), len(rows)]
    return {
        (account.trace.names[name[first]], int(blocks[first])): (float(length[(first + last) // 2]), last - first)
        for first, last in pairwise(edges)
        if last - first >= thresholds.REPEATED_KERNELS
    }


def compare_same_kernels(ranks: Sequence[KernelTimes], late: int) -> dict[str, Evidence]:
    """Slow hardware or more work: how long a late rank's kernels take, beside the same ones of the others.

    If most of its time goes to kernels that take longer there than elsewhere, it is the GPU; if they take as long,
    there are more of them, or larger ones.

    Args:
        ranks: of a job.
        late: index of the one.

    Returns:
        The number by its name in ``perfdoctor.metrics.names``; nothing without kernels in common.
    """
    slowdowns, weights = [], []
    for kernel, (taken, count) in ranks[late].items():
        others = [times[kernel][0] for index, times in enumerate(ranks) if index != late and kernel in times]
        if others:
            slowdowns.append(taken / median(others))
            weights.append(taken * count)
    if not slowdowns:
        return {}
    order = np.argsort(slowdowns)
    middle = int(np.searchsorted(np.cumsum(np.array(weights)[order]), sum(weights) / 2))
    words, unit, probe = TRACE["traced_same_kernels"]
    return {"traced_same_kernels": Evidence(words, round(slowdowns[order[middle]], 3), unit, probe)}
