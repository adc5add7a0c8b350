"""A job that trains on the CPU: its main thread's time, from the ranges that the profiler saw."""

from __future__ import annotations

import numpy as np

from perfdoctor.causes import (
    CHECKPOINT_WRITE,
    INPUT_PREPROCESSING,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
    UNATTRIBUTED,
    UNOBSERVED_RANK,
)
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.traces.host import Activity, Host
from perfdoctor.traces.intervals import NONE, Floats, Int64s, Intervals, Nesting
from perfdoctor.traces.model import Trace
from perfdoctor.traces.steps import Window

_CAUSE = {
    Activity.LOADING: INPUT_PREPROCESSING,
    Activity.SAVING: CHECKPOINT_WRITE,
    Activity.COLLECTIVE: UNOBSERVED_RANK,
}


def split_host(trace: Trace, host: Host, operators: Nesting, window: Window, *, compiling: str) -> dict[str, Intervals]:
    """Cause to the times of the window that go to it: disjoint, and without a rest.

    Args:
        trace: what was seen.
        host: its threads.
        operators: how those of the host nest.
        window: what counts.
        compiling: the cause that compiling the model goes to.

    While the main thread is in nothing that the trace shows, it waits for whoever works: a collective or an operator
    (of the backward pass, for instance) on another thread.
    """
    whole = Intervals.one(window.start, window.end)
    found: dict[str, Intervals] = {}
    left = whole
    of, start, end = find_arithmetic(trace, operators)
    on = trace.host.thread[operators.rows[of]]
    for thread in (host.main, None):
        doing = host.activity(thread)
        here = (on == thread) | (thread is None)
        arithmetic = Intervals.union(start[here], end[here])
        for one in (Activity.LOADING, Activity.SAVING, Activity.COLLECTIVE):
            left = _take(found, _CAUSE[one], doing[one], left)
        left = _take(found, compiling, doing[Activity.COMPILING], left)
        left = _take(found, MODEL_COMPUTE, arithmetic, left)
        dispatching = doing[Activity.DISPATCHING] | doing[Activity.OWN_CODE]
        left = _take(found, PYTHON_OVERHEAD, dispatching, left)
    _take(found, UNATTRIBUTED, left, left)
    return found


def fetching_ns(host: Host, times: Intervals) -> Floats:
    """How long fetching took at each of some times, less what the profiler took to record its operators.

    At most half of it is taken off. Overhead needs none of this: what dispatch costs is reckoned per operator.
    """
    ranges = host.trace.host
    begun = np.sort(ranges.start[ranges.thread == host.main])
    recorded = np.searchsorted(begun, times.end) - np.searchsorted(begun, times.start)
    lengths = (times.end - times.start).astype(np.float64)
    taken: Floats = np.maximum(
        lengths - recorded * thresholds.RANGE_RECORDING_NS, lengths * (1 - thresholds.MOST_RECORDING)
    )
    return taken


def _take(found: dict[str, Intervals], cause: str, times: Intervals, left: Intervals) -> Intervals:
    """Gives a cause its times, as far as they are left; returns what is left then."""
    taken = times & left
    found[cause] = found.get(cause, Intervals.none()) | taken
    return left - taken


def find_arithmetic(trace: Trace, operators: Nesting) -> tuple[Int64s, Int64s, Int64s]:
    """The arithmetic of operators: where one calls no other, less what dispatch takes at the beginning.

    Many operators of ATen allocate their result by an operator and then compute by themselves. Nodes of autograd
    compute nothing themselves, or are the user's own in Python, unless they call nothing at all.

    Args:
        trace: what was seen.
        operators: of all threads, or of some.

    Returns:
        Which one, as an index into the rows of ``operators``; start and end. In order of thread and time.
    """
    leaf = np.ones(len(operators), dtype=np.bool_)
    leaf[operators.parent[operators.parent != NONE]] = False
    computes = leaf | trace.matching(profiler.LIBRARY_OPERATOR, trace.host.name[operators.rows])
    of, start, end = operators.stretches()
    start = start + int(thresholds.OPERATOR_DISPATCH_NS)
    long = (end > start) & computes[of]
    return of[long], start[long], end[long]
