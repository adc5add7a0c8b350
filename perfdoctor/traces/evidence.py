"""Numbers measured from a trace, under the names of ``perfdoctor.metrics.names``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from perfdoctor.diagnosis import Evidence
from perfdoctor.knowledge.kernels import Work
from perfdoctor.metrics.names import TRACE
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.arrays import median
from perfdoctor.traces.beside_collectives import measure_beside_collectives
from perfdoctor.traces.host import Doing
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.kernel_evidence import measure_kernels
from perfdoctor.traces.model import DeviceKind
from perfdoctor.traces.nesting import NONE

_SHORT_NS = 10_000


def measure_trace(account: RankAccount) -> dict[str, float]:
    """What could be measured on one rank."""
    measured = {**_of_devices(account), **_of_host(account), **measure_kernels(account)}
    measured |= measure_beside_collectives(account)
    return {name: value for name, value in measured.items() if value is not None}


def mean_evidence(ranks: Iterable[Mapping[str, float]]) -> dict[str, Evidence]:
    """Means over the ranks of what was measured; a number that no rank has is absent."""
    found: dict[str, list[float]] = {}
    for numbers in ranks:
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
    return {name: _evidence(name, float(np.mean(values))) for name, values in found.items()}


def _evidence(name: str, value: float) -> Evidence:
    words, unit, probe = TRACE[name]
    return Evidence(words, round(value, 4), unit, probe)


def _of_devices(account: RankAccount) -> dict[str, float | None]:
    if not account.devices or not account.window.length:
        return {}
    length = account.window.length
    device = account.trace.device
    inside = (device.start >= account.window.start) & (device.start < account.window.end)
    kernels = inside & (device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION)
    taken = (device.end - device.start)[kernels]
    collectives = inside & (account.work == Work.COMMUNICATION)
    count = len(account.devices)
    found = {
        "traced_busy": sum(one.busy.total for one in account.devices) / count / length,
        "traced_kernels": int(inside.sum()) / count / (length / NS_PER_S),
        "traced_copies": sum(one.alone[Work.COPY].total for one in account.devices) / count / length,
        "traced_kernel_time": median(taken) / 1000 if len(taken) else None,
        "traced_short_kernels": float((taken < _SHORT_NS).mean()) if len(taken) else None,
        "traced_launch_delay": _launch_delay(account),
        "traced_memory": _memory(account),
    }
    if collectives.any():
        exposed = sum(one.alone[Work.COMMUNICATION].total for one in account.devices)
        hidden = sum(one.hidden_communication for one in account.devices)
        found["traced_collectives"] = int(collectives.sum()) / count / (length / NS_PER_S)
        found["traced_exposed"] = exposed / count / length
        found["traced_hidden"] = hidden / count / length
    return found


def _launch_delay(account: RankAccount) -> float | None:
    """Microseconds; None also where the host's and the device's clocks disagree, and the delay comes out negative."""
    delays = [gaps.launch_delay_ns for gaps in account.gaps if gaps.launch_delay_ns is not None]
    return min(delays) / 1000 if delays and min(delays) >= 0 else None


def _memory(account: RankAccount) -> float | None:
    """Of the fullest device; None where allocations or sizes are not told."""
    trace = account.trace
    sizes = {device: one.memory_bytes for device, one in trace.devices.items() if one.memory_bytes}
    known = sizes.keys() & trace.reserved.keys()
    return max((trace.reserved[device] / sizes[device] for device in known), default=None)


def _of_host(account: RankAccount) -> dict[str, float | None]:
    length = account.window.length
    calls = account.trace.calls
    if not length or not len(account.trace.host) + len(calls):
        return {}
    whole = Intervals.one(account.window.start, account.window.end)
    everywhere = account.host.doing(None)
    inside = (calls.start >= account.window.start) & (calls.start < account.window.end)
    per_second = NS_PER_S / length
    found: dict[str, float | None] = {}
    found["traced_loading"] = account.loading
    compiling = (everywhere[Doing.COMPILING] & whole).total
    if compiling and account.recompiles:
        found["traced_compiling"] = compiling / length
    if account.window.steps:
        outermost = account.operators.inside(account.window.start, account.window.end)
        outermost &= account.operators.parent == NONE
        found["traced_operators"] = float(outermost.sum()) / len(account.window.steps) or None
    if len(calls):
        found["traced_waits"] = int((inside & account.host.draining).sum()) * per_second
        found["traced_waiting"] = (everywhere[Doing.SYNCHRONIZING] & whole).total / length
        if account.host.copying_in.any():
            blocked = Intervals.union(calls.start[account.host.blocked], calls.end[account.host.blocked])
            found["traced_blocked"] = (blocked & whole).total / length
        found["traced_allocations"] = int((inside & account.host.allocating).sum()) * per_second
    return found
