"""What the profiler itself took of the host's time, estimated from how closely what it recorded follows each other.

It writes down where each range begins and ends, and CUPTI intercepts each call of the runtime, also the many that no
trace shows: the numbers that join calls with what they launch count them all. Between two such moments that follow each
other at once hardly anything happens but recording. So the shortest of these pauses tell what one costs:

- from the start of a range to the start of one in it and from end to end, or from start to end and from end to the
  next start: each pause has a part of what one start or end costs,
- between two calls of one operator, by how many calls lie between them that are not shown.

What recording costs within a call (a launch, above all) cannot be separated from the call. It stays, so that the
estimate is rather too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.traces.host import Host
from perfdoctor.traces.intervals import Floats, Intervals
from perfdoctor.traces.model import Bools, HostKind, Int64s, Trace

_START, _END = 0, 1


@dataclass(frozen=True, slots=True)
class _Moments:
    """Starts and ends of ranges and calls, in order of thread and time.

    Attributes:
        what: a ``HostKind`` or ``_CALL``.
        side: ``_START`` or ``_END``.
        until: nanoseconds to the next one of the thread; 0 for the last.
    """

    thread: Int64s
    time: Int64s
    what: Int64s
    side: Int64s
    until: Int64s


_CALL = len(HostKind)


@dataclass(frozen=True, slots=True)
class RecordingCost:
    """What was taken off the host's time, and by which measure.

    Attributes:
        edges: moments of the host, in nanoseconds.
        taken: how much of the time before each of them was the profiler's; in between it grows evenly.
        range_ns: what recording an operator takes; 0 where that is not known.
        call_ns: what intercepting a call takes; 0 where that is not known.
    """

    edges: Floats
    taken: Floats
    range_ns: float
    call_ns: float

    def before(self, times: Int64s) -> Floats:
        """For each time, how much before it was the profiler's."""
        return np.interp(times, self.edges, self.taken)


def estimate_recording(host: Host) -> RecordingCost | None:
    """What the profiler took on the host; None where a trace has too little to tell it from.

    Args:
        host: what was recorded of it.
    """
    moments = _moments(host.trace)
    if not (moments.time % 1000).any():  # whole microseconds, as older profilers wrote them: too coarse for pauses
        return None
    edge_ns = {int(kind): _edge_ns(moments, int(kind)) for kind in (HostKind.OPERATOR, HostKind.PYTHON)}
    if not edge_ns[HostKind.OPERATOR]:
        return None
    edge_ns[HostKind.ANNOTATION] = edge_ns[HostKind.OPERATOR]
    each = np.array([edge_ns.get(what, 0.0) for what in range(_CALL + 1)])[moments.what]
    ranges = _shortened(moments, each)
    start, end, calls = _between_calls(host.trace)
    call_ns = _call_ns(moments, start, end, calls)
    free = end - start - ranges.within(start, end)
    amounts = np.minimum(call_ns * calls, thresholds.MOST_RECORDING_BETWEEN * free)
    return _summed(host, ranges, (start, end, amounts), 2 * edge_ns[HostKind.OPERATOR], call_ns)


def _moments(trace: Trace) -> _Moments:
    ranges, calls = trace.host, trace.calls
    wanted = np.flatnonzero(ranges.end > ranges.start)
    kinds = ranges.kind[wanted].astype(np.int64)
    thread = np.concatenate((ranges.thread[wanted], ranges.thread[wanted], calls.thread, calls.thread)).astype(np.int64)
    time = np.concatenate((ranges.start[wanted], ranges.end[wanted], calls.start, calls.end))
    what = np.concatenate((kinds, kinds, np.full(2 * len(calls), _CALL)))
    side = np.repeat([_START, _END, _START, _END], [len(wanted), len(wanted), len(calls), len(calls)])
    order = np.lexsort((time, thread))
    thread, time, what, side = thread[order], time[order], what[order], side[order]
    until = np.append(np.where(thread[1:] == thread[:-1], np.diff(time), 0), 0)[: len(time)]
    return _Moments(thread, time, what, side, until)


def _edge_ns(moments: _Moments, kind: int) -> float:
    """What the start or the end of a range of some kind costs; 0 where too few follow each other.

    What comes after a start's or an end's time and what comes before it add up to that: in pauses between two starts
    and two ends, and in those from start to end and from end to start. Operators that work long and call no other make
    the latter long, so that the shorter of both counts.
    """
    follows = (moments.what[:-1] == kind) & (moments.what[1:] == kind) & (moments.thread[1:] == moments.thread[:-1])
    found: dict[bool, float] = {True: 0.0, False: 0.0}  # by whether two of a sort follow each other
    for first in (_START, _END):
        for second in (_START, _END):
            pauses = moments.until[:-1][follows & (moments.side[:-1] == first) & (moments.side[1:] == second)]
            if len(pauses) < thresholds.PAUSES_FOR_RECORDING:
                return 0.0
            found[first == second] += float(np.quantile(pauses, thresholds.RECORDING_PAUSE)) / 2
    return min(found.values())


def _shortened(moments: _Moments, each: Floats) -> Intervals:
    """Of what follows each moment, the part that recording it takes."""
    taken = np.minimum(each, thresholds.MOST_RECORDING_BETWEEN * moments.until).astype(np.int64)
    return Intervals.union(moments.time, moments.time + taken)


def _between_calls(trace: Trace) -> tuple[Int64s, Int64s, Int64s]:
    """Stretches from the end of a call to the start of the thread's next, and how many were intercepted in each.

    Half of what either of the two costs lies in between, and all that those cost that are not shown.
    """
    calls = trace.calls
    rows = np.flatnonzero(calls.correlation > 0)
    rows = rows[np.argsort(calls.correlation[rows], kind="stable")]
    first, second = rows[:-1], rows[1:]
    apart = calls.correlation[second] - calls.correlation[first]
    kept = (calls.thread[first] == calls.thread[second]) & (calls.start[second] > calls.end[first]) & (apart > 0)
    first, second, apart = first[kept], second[kept], apart[kept]
    return calls.end[first], calls.start[second], apart


def _call_ns(moments: _Moments, start: Int64s, end: Int64s, calls: Int64s) -> float:
    """What intercepting a call costs, by stretches in which no range begins or ends; 0 where these are too few."""
    ranges = np.sort(moments.time[moments.what != _CALL])
    alone: Bools = np.searchsorted(ranges, start, side="right") == np.searchsorted(ranges, end)
    if alone.sum() < thresholds.PAUSES_FOR_RECORDING:
        return 0.0
    return float(np.quantile((end - start)[alone] / calls[alone], thresholds.RECORDING_PAUSE))


def _summed(
    host: Host, ranges: Intervals, calls: tuple[Int64s, Int64s, Floats], range_ns: float, call_ns: float
) -> RecordingCost:
    """The time taken by both, where threads work at once that of one of them."""
    start, end, amounts = calls
    edges = np.unique(np.concatenate(([host.recorded.start[0]], ranges.start, ranges.end, start, end)))
    free = edges - ranges.before(edges)
    length = np.maximum(end - start - ranges.within(start, end), 1)
    steps = np.zeros(len(edges) + 1)
    np.add.at(steps, np.searchsorted(edges, start), amounts / length)
    np.add.at(steps, np.searchsorted(edges, end), -amounts / length)
    density = np.clip(np.cumsum(steps)[: len(edges) - 1], 0.0, thresholds.MOST_RECORDING_BETWEEN)
    intercepted = np.concatenate(([0.0], np.cumsum(density * np.diff(free))))
    taken = np.asarray(ranges.before(edges) + intercepted, dtype=np.float64)
    return RecordingCost(np.asarray(edges, dtype=np.float64), taken, range_ns, call_ns)
