"""Each device's wall time, split without a rest: working on what, moving what, or idle.

Where several things run at once, the time goes to the most useful of them (see ``Work``): what is hidden behind
arithmetic costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge.kernels import Work
from perfdoctor.traces.arrays import distinct
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import Int8s, Trace
from perfdoctor.traces.steps import Window


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
