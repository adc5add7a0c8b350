"""What each event on a device is for, and each device's wall time, split without a rest.

Where several things run at once, the time goes to the most useful of them (see ``Work``): what is hidden behind
arithmetic costs nothing.

Why a device was idle: what did the thread do that launched what came next?

A gap ends with an event on the device. Its launch call says which thread brought it, and when. If the call was over
before the gap began, the work was queued, and the device itself was not ready for it. Otherwise the host was late,
and the gap goes to what that thread did in a span as long as the gap that ends with the launch: loading, allocating,
waiting for the device, copying, or launching operators one by one.

A host that waits for the device (``.item()``), loads, saves or does whatever else launches nothing loses its lead: it
could have launched more work meanwhile. So later idle time in which it launches is the fault of what it did then, as
far as the device was busy during it. Beyond that the host is slow by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.hardware import has_tf32
from perfdoctor.knowledge.profiler import Work, name_work
from perfdoctor.timeline.quantiles import median
from perfdoctor.traces.host import Host, HostActivity
from perfdoctor.traces.intervals import Floats, Intervals
from perfdoctor.traces.model import UNKNOWN, Bools, DeviceKind, Int8s, Int64s, Trace, distinct, is_among
from perfdoctor.traces.steps import TraceWindow


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


def split_devices(trace: Trace, work: Int8s, window: TraceWindow) -> list[DeviceTime]:
    """The split of each device that did anything in the window."""
    devices = distinct(trace.device.device)
    found = [_split(trace, work, window, int(device)) for device in devices]
    return [one for one in found if len(one.busy)]


def _split(trace: Trace, work: Int8s, window: TraceWindow, device: int) -> DeviceTime:
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


class IdleReason(Enum):
    """Why a device was idle."""

    LOADING = "fetching a batch"
    SAVING = "saving a checkpoint"
    COMPILING = "compiling the model"
    ALLOCATING = "allocating or freeing device memory"
    SYNCHRONIZING = "waiting for the device"
    COPYING_IN = "copying from the host"
    COLLECTIVE = "in a collective on the host"
    SPREADING = "spreading the model over the GPUs and collecting from them"
    SETTING_UP = "setting up what is used for the first time"
    IN_OPERATOR = "in operators that launch nothing"
    DISPATCHING = "launching work"
    OWN_CODE = "running Python code that launches nothing"
    OUTSIDE = "in nothing that PyTorch records"
    SWITCHING = "going from one queued kernel to the next"
    UNEXPLAINED = "nothing that the trace shows"


_REASON = {one: IdleReason[one.name] for one in HostActivity}


@dataclass(frozen=True, slots=True)
class Gaps:
    """A device's idle times and their reasons.

    Attributes:
        start: where each begins.
        end: where each ends.
        thread: which one launched what came next; the main one where that is not known.
        until: when it had done so, or should have.
        reasons: nanoseconds per gap by reason; over all reasons they sum to the gap's length.
        launch_delay_ns: median time from a launch call's start to its kernel's on an empty device; None without any.
    """

    start: Int64s
    end: Int64s
    thread: Int64s
    until: Int64s
    reasons: dict[IdleReason, Floats]
    launch_delay_ns: float | None


def explain_idle(host: Host, launches: Int64s, time: DeviceTime) -> Gaps:
    """Gives every idle moment of a device to a reason.

    Args:
        host: what the host did.
        launches: the rows of the calls that launched what the trace's devices did.
        time: the device's.
    """
    start, end = time.idle.start, time.idle.end
    length = end - start
    called, ready, thread = _launches(host, launches, time, end)
    known = ready != UNKNOWN
    latency = _latency(start, end, ready, known)
    until = np.where(known, np.minimum(ready, end), end - latency)
    queued = known & (ready + latency <= start)
    reasons = {reason: np.zeros(len(start)) for reason in IdleReason}
    _explain_queued(host, reasons, time, queued)
    late = np.flatnonzero(~queued)
    spent = _spent(host, thread[late], until[late] - length[late], until[late])
    for one in HostActivity:
        reasons[_REASON[one]][late] += spent[:, one]
    rest = length[late] - spent.sum(axis=1)
    outside = np.where(known[late], _outside(host, until[late] - length[late], until[late], rest), 0.0)
    reasons[IdleReason.OUTSIDE][late] += outside
    reasons[IdleReason.UNEXPLAINED][late] += rest - outside
    _charge_lost_lead(host, time, reasons, until)
    if host.sees_operators:
        in_call = np.where(known, until - np.maximum(called, until - length), 0).astype(np.float64)
        _part_from_launching(reasons, late[length[late] > thresholds.LAUNCHING_PAUSE_NS], in_call)
    delays = (end - called)[known & (called >= start)]
    return Gaps(start, end, thread, until, reasons, median(delays) if len(delays) else None)


def _launches(host: Host, launches: Int64s, time: DeviceTime, ends: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """For the event that ends each gap: start and end of its launch call (``UNKNOWN`` if unseen), and the thread."""
    device, calls = host.trace.device, host.trace.calls
    main = np.full(len(ends), UNKNOWN if host.main is None else host.main, dtype=np.int64)
    unknown = np.full(len(ends), UNKNOWN, dtype=np.int64)
    here = np.flatnonzero(device.device == time.device)
    if not len(here) or not len(calls):
        return unknown, unknown, main
    event = _next_at(device.start, here, ends)
    call = launches[event]
    found = (call != UNKNOWN) & (device.start[event] == ends)
    return (
        np.where(found, calls.start[call], UNKNOWN),
        np.where(found, calls.end[call], UNKNOWN),
        np.where(found, calls.thread[call], main),
    )


def _next_at(times: Int64s, rows: Int64s, moments: Int64s) -> Int64s:
    """Of some rows in the order of their times the first at each moment or after it; the last where none is."""
    found: Int64s = rows[np.minimum(np.searchsorted(times[rows], moments), len(rows) - 1)]
    return found


def _latency(start: Int64s, end: Int64s, ready: Int64s, known: Bools) -> int:
    empty = known & (ready > start) & (ready <= end)
    if not empty.any():
        return int(thresholds.LAUNCH_LATENCY_NS)
    return int(np.clip(median((end - ready)[empty]), 0, thresholds.MOST_LAUNCH_LATENCY_NS))


def _explain_queued(host: Host, reasons: dict[IdleReason, Floats], time: DeviceTime, queued: Bools) -> None:
    """Gaps before work that was launched already: the device's own switching, or a stream that waits.

    If it waits long, and the host waits for the device meanwhile, then neither works. Between two kernels of one stream
    some more is still the device's own: a profiler may slow it down, and a host that waits has nothing to do with it.
    """
    start, end = time.idle.start, time.idle.end
    length = (end - start).astype(np.float64)
    short = queued & (length <= thresholds.KERNEL_SWITCH_NS)
    reasons[IdleReason.SWITCHING][short] = length[short]
    long = np.flatnonzero(queued & ~short)
    waiting = host.activity(host.main)[HostActivity.SYNCHRONIZING].within(start[long], end[long])
    reasons[IdleReason.SYNCHRONIZING][long] = waiting
    reasons[IdleReason.UNEXPLAINED][long] = length[long] - waiting
    slow = long[(waiting > 0) & (length[long] <= thresholds.SLOW_SWITCH_NS)]
    if len(slow):
        own = slow[_in_one_stream(host.trace, time.device, start[slow], end[slow])]
        reasons[IdleReason.SWITCHING][own] = reasons[IdleReason.SYNCHRONIZING][own]
        reasons[IdleReason.SYNCHRONIZING][own] = 0.0


def _in_one_stream(trace: Trace, number: int, starts: Int64s, ends: Int64s) -> Bools:
    """Which of some gaps of a device lie between two kernels of one stream."""
    device = trace.device
    here = np.flatnonzero(device.device == number)
    ending = here[np.argsort(device.end[here], kind="stable")]
    before, after = _next_at(device.end, ending, starts), _next_at(device.start, here, ends)
    kernels = (device.kind[before] == DeviceKind.KERNEL) & (device.kind[after] == DeviceKind.KERNEL)
    found: Bools = kernels & (device.stream[before] == device.stream[after])
    return found


def _spent(host: Host, thread: Int64s, start: Int64s, end: Int64s) -> Floats:
    """What was done in each span, seen from the thread that launched."""
    found = np.zeros((len(start), len(HostActivity)))
    for one in distinct(thread):
        rows = thread == one
        found[rows] = host.spent(int(one) if one != UNKNOWN else None, start[rows], end[rows])
    return found


def _outside(host: Host, start: Int64s, end: Int64s, rest: Floats) -> Floats:
    """Of what no thread shows in each span, how much the host spent in code that PyTorch does not record.

    The launch came late, and all operators, calls and fetches were recorded: what was done before it lies outside of
    PyTorch.
    """
    if not host.sees_operators:
        return np.zeros(len(start))
    unseen = (end - start) - host.recorded.within(start, end)
    return np.clip(rest - unseen, 0.0, None)


def _part_from_launching(reasons: dict[IdleReason, Floats], long: Int64s, in_call: Floats) -> None:
    """In a long gap the host is in operators all the time and launches nothing: they work on the host.

    What the call takes that launches what comes next, a graph of many kernels for instance, is launching.
    """
    launching = np.minimum(reasons[IdleReason.DISPATCHING][long], in_call[long])
    reasons[IdleReason.IN_OPERATOR][long] += reasons[IdleReason.DISPATCHING][long] - launching
    reasons[IdleReason.DISPATCHING][long] = launching


def _charge_lost_lead(host: Host, time: DeviceTime, reasons: dict[IdleReason, Floats], until: Int64s) -> None:
    """Moves idle time from launching to what cost the host its lead before."""
    for reason, lost in _leads_lost(host, time):
        charged = _charged(reasons[IdleReason.DISPATCHING], until, lost, time.busy)
        reasons[reason] += charged
        reasons[IdleReason.DISPATCHING] -= charged


def _leads_lost(host: Host, time: DeviceTime) -> Iterator[tuple[IdleReason, Intervals]]:
    """When the host launched nothing, and why: the most specific reasons first, since they are charged first.

    A launch that takes long is none of them: it waits while the device's queue is full, which is all the lead there
    is. A copy to the device is one if the call lasts until the device gets to it.
    """
    calls = host.trace.calls
    for reason, rows in ((IdleReason.SYNCHRONIZING, host.draining), (IdleReason.COPYING_IN, host.blocked)):
        yield reason, Intervals.union(calls.start[rows], calls.end[rows])
    main, everywhere = host.activity(host.main), host.activity(None)
    for one in (
        HostActivity.LOADING,
        HostActivity.SAVING,
        HostActivity.COMPILING,
        HostActivity.ALLOCATING,
        HostActivity.COLLECTIVE,
    ):
        yield _REASON[one], main[one]
    yield IdleReason.OWN_CODE, everywhere[HostActivity.OWN_CODE]
    if host.sees_operators:
        yield IdleReason.IN_OPERATOR, everywhere[HostActivity.DISPATCHING] & _without_calls(host)
    seen = Intervals.union(
        np.concatenate([times.start for times in everywhere.values()]),
        np.concatenate([times.end for times in everywhere.values()]),
    )
    unseen = (time.busy | time.idle) - seen
    if host.sees_operators:
        yield IdleReason.OUTSIDE, unseen & host.recorded
        unseen -= host.recorded
    yield IdleReason.UNEXPLAINED, unseen


def _without_calls(host: Host) -> Intervals:
    """When no call of the runtime was made for so long that the host launches nothing, from then on."""
    calls = Intervals.union(host.trace.calls.start, host.trace.calls.end)
    start, end = calls.end[:-1] + int(thresholds.LAUNCHING_PAUSE_NS), calls.start[1:]
    long = end > start
    return Intervals.union(start[long], end[long])


def _charged(launching: Floats, until: Int64s, lost: Intervals, busy: Intervals) -> Floats:
    """How much of each gap's launching goes to earlier spans in which the host launched nothing.

    A span adds to the lead that was lost, as far as the device worked meanwhile; idle time while launching takes from
    it. What is taken beyond is the host's own.
    """
    if not len(lost) or not len(until):
        return np.zeros(len(launching))
    gained = busy.within(lost.start, lost.end).astype(np.float64)
    order = np.argsort(np.concatenate((lost.end, until)), kind="stable")
    balance = np.cumsum(np.concatenate((gained, -launching))[order])
    lowest = np.minimum.accumulate(np.minimum(balance, 0.0))
    beyond = np.empty(len(order))
    beyond[order] = -np.diff(lowest, prepend=0.0)
    return np.clip(launching - beyond[len(lost) :], 0.0, launching)
