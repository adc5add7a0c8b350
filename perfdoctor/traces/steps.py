"""Which part of a trace is analysed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.traces.model import Bools, HostKind, Int64s, Trace, is_among


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """The time that is accounted for.

    Attributes:
        steps: starts and ends of the steps on the host; empty if the trace has none.
        numbers: the steps' numbers, the same for one step on all ranks.
    """

    start: int
    end: int
    steps: tuple[tuple[int, int], ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


def find_window(trace: Trace) -> TraceWindow:
    """The steps, from the first one's start to the end of what the last one did and launched.

    The profiler itself works at the end of the last step; what lies behind all activity is its own. Without steps it is
    all activity of the devices; without devices all of the host.
    """
    numbered = find_steps(trace)
    steps, numbers = tuple(numbered), tuple(numbered.values())
    if not steps:
        if len(trace.device):
            return TraceWindow(_after_unseen_queue(trace), int(trace.device.end.max()))
        table = trace.host if len(trace.host) else trace.calls
        return TraceWindow(int(table.start.min()), int(table.end.max())) if len(table) else TraceWindow(0, 0)
    start, end = steps[0][0], max(step[1] for step in steps)
    launched = is_among(trace.device.correlation, _launched(trace, start, end))
    if not launched.any():
        return TraceWindow(start, end, steps, numbers)
    last = max(int(trace.device.end[launched].max()), _last_operator(trace, start, end))
    return TraceWindow(_after_unseen_work(trace, launched, start), last, steps, numbers)


def _last_operator(trace: Trace, start: int, end: int) -> int:
    ranges = trace.host
    inside = (ranges.kind == HostKind.OPERATOR) & (ranges.start >= start) & (ranges.end <= end)
    return int(ranges.end[inside].max()) if inside.any() else start


def _after_unseen_work(trace: Trace, launched: Bools, start: int) -> int:
    """Where the account begins if a device was still busy with work launched before the profiler looked.

    Such work is not in the trace. It was there if the first event had to queue for it.
    """
    first = int(np.flatnonzero(launched)[0])
    begun = int(trace.device.start[first])
    if len(trace.device) and int(trace.device.start[0]) < begun:
        return start  # work from before is in the trace
    call = np.flatnonzero(trace.calls.correlation == trace.device.correlation[first])
    if len(call) and begun - int(trace.calls.start[call[0]]) > thresholds.QUEUED_BEFORE_NS:
        return max(start, begun)
    return start


def _after_unseen_queue(trace: Trace) -> int:
    """Where a trace without steps begins to show all that its devices do.

    Work that was launched at once, but begins after the devices did nothing for longer than they had worked until then,
    queued for work that the profiler did not see begin.
    """
    device, first = trace.device, int(trace.device.start.min())
    until = np.maximum.accumulate(device.end)
    gaps = np.flatnonzero(device.start[1:] > until[:-1])
    if not len(gaps) or not len(trace.calls):
        return first
    gap = int(gaps[np.argmax(device.start[gaps + 1] - until[gaps])])
    begun, free = int(device.start[gap + 1]), int(until[gap])
    call = np.flatnonzero(trace.calls.correlation == device.correlation[gap + 1])
    if not len(call) or device.correlation[gap + 1] <= 0:
        return first
    queued = begun - max(int(trace.calls.end[call[0]]), free)
    return begun if queued > max(thresholds.QUEUED_BEFORE_NS, free - first) else first


def find_steps(trace: Trace) -> dict[tuple[int, int], int]:
    """The profiler's steps on the host, in order: start and end, to the step's number."""
    numbers = np.array([_number(name) for name in trace.names] or [-1])
    rows = np.flatnonzero(trace.named(numbers >= 0, trace.host.name) & (trace.host.kind != HostKind.PYTHON))
    found = {int(trace.host.start[row]): row for row in rows if trace.host.end[row] > trace.host.start[row]}
    return {
        (start, int(trace.host.end[row])): int(numbers[trace.host.name[row]]) for start, row in sorted(found.items())
    }


def _number(name: str) -> int:
    step = profiler.STEP.match(name)
    return -1 if step is None else int(step[1][-18:])


def _launched(trace: Trace, start: int, end: int) -> Int64s:
    calls = trace.calls
    inside = (calls.start >= start) & (calls.start < end) & (calls.correlation > 0)
    return calls.correlation[inside]
