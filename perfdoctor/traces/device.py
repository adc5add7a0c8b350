"""What each event on a device is for, and each device's wall time, split without a rest.

Where several things run at once, the time goes to the most useful of them (see ``Work``): what is hidden behind
arithmetic costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.hardware import has_tf32
from perfdoctor.knowledge.kernels import Work, name_work
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import UNKNOWN, Bools, DeviceKind, Int8s, Trace, distinct, is_among
from perfdoctor.traces.steps import Window


def classify_work(trace: Trace) -> Int8s:
    """A ``Work`` for each device event."""
    by_name = np.zeros(len(trace.names), dtype=np.int8)
    for name in trace.occurring(trace.device.name):
        by_name[name] = name_work(trace.names[name])
    work = by_name[trace.device.name] if len(trace.device) else np.zeros(0, dtype=np.int8)
    kernels = trace.device.kind == DeviceKind.KERNEL
    copies = (trace.device.kind == DeviceKind.COPY) & (work == Work.ARITHMETIC)
    work = np.where(copies, np.int8(Work.COPY), work)
    for row in trace.messages:
        work[row] = Work.COMMUNICATION
    work[(work == Work.SINGLE_PRECISION) & ~_has_tf32(trace)] = Work.ARITHMETIC
    work[kernels & (work < Work.SMALL) & _is_small(trace)] = Work.SMALL
    return work.astype(np.int8)


def _has_tf32(trace: Trace) -> Bools:
    able = [index for index, device in trace.devices.items() if has_tf32(device.name, device.capability)]
    return is_among(trace.device.device, able)


def _is_small(trace: Trace) -> Bools:
    """Kernels whose grid leaves most multiprocessors without a block; False where that is not known."""
    small = np.zeros(len(trace.device), dtype=np.bool_)
    for index, device in trace.devices.items():
        if device.multiprocessors:
            few = trace.device.blocks < thresholds.SMALL_GRID * device.multiprocessors
            small |= (trace.device.device == index) & few & (trace.device.blocks != UNKNOWN)
    return small


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One device's time in a window.

    Attributes:
        device: its number in the trace.
        alone: kind of work to the times that are given to it; disjoint.
        busy: the times with any work.
        idle: the rest of the window.
        hidden_communication: nanoseconds of communication behind other work.
    """

    device: int
    alone: dict[Work, Intervals]
    busy: Intervals
    idle: Intervals
    hidden_communication: int


def split_devices(trace: Trace, work: Int8s, window: Window) -> list[DeviceTime]:
    """The split of each device that did anything in the window."""
    devices = distinct(trace.device.device)
    found = [_split(trace, work, window, int(device)) for device in devices]
    return [one for one in found if len(one.busy)]


def _split(trace: Trace, work: Int8s, window: Window, device: int) -> DeviceTime:
    start = np.clip(trace.device.start, window.start, window.end)
    end = np.clip(trace.device.end, window.start, window.end)
    here = trace.device.device == device
    alone: dict[Work, Intervals] = {}
    busy = Intervals.none()
    hidden = 0
    for kind in Work:
        rows = here & (work == kind)
        whole = Intervals.union(start[rows], end[rows])
        alone[kind] = whole - busy
        if kind is Work.COMMUNICATION:
            hidden = whole.total - alone[kind].total
        busy = busy | whole
    return DeviceTime(device, alone, busy, Intervals.one(window.start, window.end) - busy, hidden)
