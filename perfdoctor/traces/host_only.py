"""A job that trains on the CPU: its main thread's time, from the ranges that the profiler saw."""

from __future__ import annotations

import numpy as np

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.traces.host import Doing, Host
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import HostKind, Trace
from perfdoctor.traces.steps import Window

_CAUSE = {
    Doing.LOADING: "cpu.input_preprocessing",
    Doing.SAVING: "io.checkpoint_write",
    Doing.COLLECTIVE: "communication.unattributed_wait",
}
# What an operator costs beside its arithmetic: choosing a kernel, allocating, the autograd node, and the profiler's own
# record. ATen needs 1 to 5 us for an operator on a single element.
DISPATCH_NS = 5_000


def split_host(trace: Trace, host: Host, window: Window, *, compiling: str) -> dict[str, Intervals]:
    """Cause to the times of the window that go to it: disjoint, and without a rest.

    Args:
        trace: what was seen.
        host: its threads.
        window: what counts.
        compiling: the cause that compiling the model goes to.

    While the main thread is in nothing that the trace shows, it waits for whoever works: a collective or an operator
    (of the backward pass, for instance) on another thread.
    """
    whole = Intervals.one(window.start, window.end)
    found: dict[str, Intervals] = {}
    left = whole
    arithmetic = _arithmetic(trace, host.main)
    for thread in (host.main, None):
        doing = host.doing(thread)
        if thread is None:
            arithmetic = _arithmetic(trace, None)
        for one in (Doing.LOADING, Doing.SAVING, Doing.COLLECTIVE):
            left = _take(found, _CAUSE[one], doing[one], left)
        left = _take(found, compiling, doing[Doing.COMPILING], left)
        left = _take(found, "cpu.model_compute", arithmetic, left)
        dispatching = doing[Doing.DISPATCHING] | doing[Doing.OWN_CODE]
        left = _take(found, "cpu.python_overhead", dispatching, left)
    _take(found, UNATTRIBUTED, left, left)
    return found


def _take(found: dict[str, Intervals], cause: str, times: Intervals, left: Intervals) -> Intervals:
    """Gives a cause its times, as far as they are left; returns what is left then."""
    taken = times & left
    found[cause] = found.get(cause, Intervals.none()) | taken
    return left - taken


def _arithmetic(trace: Trace, thread: int | None) -> Intervals:
    """The times of operators that call no other operator, less what each costs beside its arithmetic."""
    ranges = trace.host
    rows = np.flatnonzero((ranges.kind == HostKind.OPERATOR) & ((ranges.thread == thread) | (thread is None)))
    rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows], ranges.thread[rows]))]
    # Sorted like this, whatever an operator calls comes right behind it.
    start, end, on = ranges.start[rows], ranges.end[rows], ranges.thread[rows]
    calls = np.zeros(len(rows), dtype=np.bool_)
    calls[:-1] = (on[1:] == on[:-1]) & (start[1:] < end[:-1])
    leaf = ~calls
    return Intervals.union(start[leaf] + DISPATCH_NS, end[leaf])
