"""Kernels beside a collective: how much longer do they take than the same kernels with the GPU to themselves?

A collective's kernels occupy multiprocessors and memory bandwidth. Hidden behind arithmetic they cost no time of their
own, and still make the arithmetic longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge.kernels import Work
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.arrays import distinct
from perfdoctor.traces.contrast import contrast
from perfdoctor.traces.device import DeviceTime
from perfdoctor.traces.intervals import Floats, Int64s, Intervals
from perfdoctor.traces.model import UNKNOWN, DeviceKind
from perfdoctor.traces.nesting import NONE

# Shorter kernels are mostly starting and ending.
_SHORTEST_NS = 10_000
# Parts of a kernel's time: up to which it counts as alone, and from which as beside something.
ALONE, BESIDE = 0.05, 0.5
# Of the time beside collectives, so much must be in kernels that were also seen alone, before nothing means nothing.
_COMPARED = 0.5


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one device that share it with no other kernel but those of collectives.

    Attributes:
        rows: of the device's table.
        beside: fraction of each one's time that a collective runs.
    """

    rows: Int64s
    beside: Floats


def measure_beside_collectives(account: RankAccount) -> dict[str, float]:
    """Numbers under the names of ``perfdoctor.metrics.names.TRACE``; none where nothing could be compared."""
    if not account.devices or not (account.work == Work.COMMUNICATION).any():
        return {}
    found = [_kernels_of(account, device) for device in account.devices]
    rows, beside = (np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "beside"))
    taken = account.taken[rows]
    compared = contrast(_kinds(account, rows), taken, beside <= ALONE, beside >= BESIDE)
    little = compared.compared < _COMPARED * float(taken[beside >= BESIDE].sum())
    if not compared.kinds or (little and not compared.sure):
        return {}
    whole = account.window.length * len(account.devices)
    numbers = {"traced_lengthened": compared.longer / whole}
    if compared.sure:
        numbers["traced_beside"] = compared.times
        if steps := len(account.window.steps):
            numbers["traced_lengthened_step"] = 1000 * compared.longer / NS_PER_S / (steps * len(account.devices))
    return numbers


def _kernels_of(account: RankAccount, time: DeviceTime) -> _Kernels:
    device = account.trace.device
    here = (device.device == time.device) & (account.taken > 0)
    exchanging = here & (account.work == Work.COMMUNICATION)
    others = np.flatnonzero(here & ~exchanging)
    kernels = others[(device.kind[others] == DeviceKind.KERNEL) & (account.taken[others] >= _SHORTEST_NS)]
    start, end = device.start[kernels], device.end[kernels]
    shared = _shared(device.start[others], device.end[others]).within(start, end)
    single = shared <= ALONE * (end - start)
    times = Intervals.union(device.start[exchanging], device.end[exchanging])
    beside = times.within(start, end) / np.maximum(end - start, 1)
    return _Kernels(kernels[single], beside[single])


def _shared(start: Int64s, end: Int64s) -> Intervals:
    """The times in which at least two run."""
    edges = np.concatenate((start, end))
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
    edges = edges[order]
    return Intervals.union(edges[:-1][depth >= 2], edges[1:][depth >= 2])


def _kinds(account: RankAccount, rows: Int64s) -> Int64s:
    """Numbers for kernels that do the same work: of one name and launch geometry, for one operator with its shapes.

    The outermost operator tells the forward pass from the backward pass; shapes are known of few operators.
    """
    trace = account.trace
    device, calls, host = trace.device, trace.calls, trace.host
    call = account.launches[rows]
    operator = inputs = np.full(len(rows), UNKNOWN, dtype=np.int64)
    if len(calls) and len(host):
        thread = np.where(call == UNKNOWN, UNKNOWN, calls.thread[call])
        within = account.operators
        place = within.innermost(thread, calls.start[call])
        inputs = np.where(place == NONE, UNKNOWN, host.inputs[place]).astype(np.int64)
        operator = np.where(place == NONE, UNKNOWN, host.name[within.outermost(len(host))[place]]).astype(np.int64)
    kind = np.zeros(len(rows), dtype=np.int64)
    for column in (device.name[rows], device.geometry[rows], operator, inputs):
        both = kind * (int(column.max(initial=0)) + 2) + column + 1
        kind = np.searchsorted(distinct(both), both)
    return kind
