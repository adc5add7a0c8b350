"""A trace as it would be without a profiler: the host is earlier by what recording took, and devices follow.

Host time is shortened by what ``recording_cost`` found. Then the calls are gone through in order, each with what it
launched: an event on a device begins when its stream is free, when it has been launched, and, if it had waited for
another stream, when that is done; how long it takes stays. A call that waited for the device lasts until the device is
done, which may now be longer. Batches of loader workers come when they came: a trainer that is earlier waits longer.

Ranks that meet in collectives wait for each other, and one trace does not show how much earlier the others would have
been. So traces with communication stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.profiler import Work
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.quantiles import median
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.intervals import Floats, Int64s
from perfdoctor.traces.model import UNKNOWN, DeviceKind, Trace, distinct
from perfdoctor.traces.recording_cost import RecordingCost, estimate_recording


@dataclass(frozen=True, slots=True)
class WithoutProfiler:
    """A trace as it would be without a profiler.

    Attributes:
        account: of it.
        numbers: what the profiler cost, under the names of ``perfdoctor.metrics.names.TRACE``.
    """

    account: RankAccount
    numbers: dict[str, float]


def without_profiler(account: RankAccount) -> WithoutProfiler | None:
    """The same job without a profiler; None where that cannot be told, or where the trace would be as long.

    Args:
        account: of the trace as it was taken.
    """
    if not _is_alone(account):
        return None
    cost = estimate_recording(account.host)
    if cost is None:
        return None
    replayed = account_for(_Replay(account, cost).run())
    longer = account.window.length - replayed.window.length
    if longer < thresholds.PROFILER_LENGTHENS * account.window.length:
        return None
    begun, ended = cost.before(np.array([account.window.start, account.window.end])).tolist()
    numbers = {
        "traced_recording": (ended - begun) / account.window.length,
        "traced_shorter": longer / account.window.length,
    }
    if steps := len(account.window.steps):
        numbers["traced_step_alone"] = 1000 * replayed.window.length / NS_PER_S / steps
    return WithoutProfiler(replayed, numbers)


def _is_alone(account: RankAccount) -> bool:
    """Whether a trace shows one device's work for one process, with the host's part in all of it."""
    trace = account.trace
    return (
        len(account.devices) == 1
        and (trace.world or 1) == 1
        and account.host.sees_operators
        and not (account.work == Work.COMMUNICATION).any()
    )


@dataclass
class _Clock:
    """Which moment of the replayed host a moment of the traced host becomes.

    Attributes:
        cost: by which its own work is shorter.
        knots: moments of the traced host at which waits began and ended.
        later: by how much the replayed host is later there than by its own work alone; negative if it is earlier.
    """

    cost: RecordingCost
    knots: list[float] = field(default_factory=lambda: [0.0])
    later: list[float] = field(default_factory=lambda: [0.0])

    def own(self, times: Int64s) -> Floats:
        """What moments become by the host's own work, without waits."""
        found: Floats = times - self.cost.before(times)
        return found

    def at(self, time: int, own: float) -> float:
        """What a moment becomes.

        Args:
            time: of the traced host.
            own: what it becomes without waits.
        """
        if time >= self.knots[-1]:
            return own + self.later[-1]
        return own + float(np.interp(time, self.knots, self.later))

    def of(self, times: Int64s) -> Int64s:
        """What many moments become, when all waits are known."""
        return np.rint(self.own(times) + np.interp(times, self.knots, self.later)).astype(np.int64)

    def ends(self, start: int, end: int, own: float, until: float) -> None:
        """Notes when a wait ends.

        Args:
            start: of the wait, on the traced host.
            end: likewise.
            own: what its end becomes without waits.
            until: what it becomes.
        """
        begun = max(float(start), self.knots[-1])
        if end > begun:
            self.later += [float(np.interp(begun, self.knots, self.later)), until - own]
            self.knots += [begun, float(end)]


class _Replay:
    def __init__(self, account: RankAccount, cost: RecordingCost) -> None:
        self._trace, self._host, self._clock = account.trace, account.host, _Clock(cost)
        device, calls, launches = account.trace.device, account.trace.calls, account.launches
        seen = launches != UNKNOWN
        # What was launched before the trace has no call that it could be earlier by.
        called = np.where(seen, calls.start[launches], 0)
        returned = np.where(seen, calls.end[launches], 0)
        self._called, self._own_called = called.tolist(), self._clock.own(called).tolist()
        self._returned = returned.tolist()
        self._start: list[int] = device.start.tolist()
        self._end: list[int] = device.end.tolist()
        self._stream: list[int] = device.stream.tolist()
        self._begins: list[float] = [0.0] * len(device)  # in the replay
        self._placed = [False] * len(device)
        self._last: dict[int, int] = {}  # by stream, the event placed last
        self._by_end: list[int] = np.argsort(device.end, kind="stable").tolist()
        self._ends: list[int] = device.end[self._by_end].tolist()
        copies = np.flatnonzero((device.kind == DeviceKind.COPY) & seen)
        self._copies: dict[int, int] = dict(zip(launches[copies].tolist(), copies.tolist(), strict=True))  # by call
        self._latency = _usual_latency(account)
        self._arrived: tuple[int, float] | None = None  # the last batch that was waited for, in the trace and replayed

    def run(self) -> Trace:
        """The trace that would have been."""
        calls, ranges, host = self._trace.calls, self._trace.host, self._host
        waits = np.flatnonzero(host.draining | host.freeing | (host.blocked & ~host.from_pinned))
        fetches = np.flatnonzero(
            host.on_main
            & self._trace.matching(profiler.FROM_WORKERS, ranges.name)
            & (ranges.end - ranges.start > thresholds.DISPATCH_PAUSE_NS)
        )
        turns = self._turns()
        # At one moment launches come before waits that end then.
        items = sorted(
            [(turn, start, row, self._place) for row, (turn, start) in enumerate(zip(turns, self._start, strict=True))]
            + [(end, end, row, self._wait) for row, end in zip(waits.tolist(), calls.end[waits].tolist(), strict=True)]
            + [
                (end, end, row, self._fetch)
                for row, end in zip(fetches.tolist(), ranges.end[fetches].tolist(), strict=True)
            ],
            key=lambda item: item[:3],
        )
        for _, _, row, do in items:
            do(row)
        return self._made()

    def _turns(self) -> list[int]:
        """When each event is placed: not after what follows it on its stream."""
        turns, stream = np.array(self._called), np.array(self._stream)
        for one in distinct(stream):
            rows = np.flatnonzero(stream == one)
            turns[rows] = np.minimum.accumulate(turns[rows][::-1])[::-1]
        found: list[int] = turns.tolist()
        return found

    def _ended(self, row: int) -> float:
        return self._begins[row] + self._end[row] - self._start[row]

    def _place(self, row: int) -> None:
        """Lets an event on the device begin."""
        start, called = self._start[row], self._called[row]
        before = self._last.get(self._stream[row])
        free = self._end[before] if before is not None else 0
        at_once = free <= self._returned[row] and start - self._returned[row] <= thresholds.MOST_LAUNCH_LATENCY_NS
        latency = start - called if at_once else min(self._returned[row] - called + self._latency, start - called)
        ready = max(free, called + latency)
        begins = self._clock.at(called, self._own_called[row]) + latency
        if before is not None:
            begins = max(begins, self._ended(before))
        if start - ready > thresholds.KERNEL_SWITCH_NS:
            other = self._ended_last(ready, start)
            if other is not None and self._stream[other] != self._stream[row]:
                ready, begins = self._end[other], max(begins, self._ended(other))
        self._begins[row] = begins + max(0, start - ready)
        self._placed[row] = True
        self._last[self._stream[row]] = row

    def _ended_last(self, after: float, until: float) -> int | None:
        """The event that ended last in a span, of those that are placed."""
        place = bisect_right(self._ends, until) - 1
        while place >= 0 and self._ends[place] > after:
            if self._placed[self._by_end[place]]:
                return self._by_end[place]
            place -= 1
        return None

    def _wait(self, row: int) -> None:
        """Lets a call return when the device is as far as it was when the call returned.

        A copy to the host ends then, one to the device begins. For those of pinned memory nobody waits.
        """
        start, end = int(self._trace.calls.start[row]), int(self._trace.calls.end[row])
        begun, returns = self._clock.own(np.array([start, end])).tolist()
        copy = self._copies.get(row)
        event = self._ended_last(start, end) if copy is None else copy
        if event is None or not self._placed[event] or (self._host.freeing[row] and self._works_at(end)):
            return
        to_device = bool(self._host.blocked[row])
        awaited = self._start[event] if to_device else self._end[event]
        if awaited <= end:
            done = self._begins[event] if to_device else self._ended(event)
            until = max(self._clock.at(start, begun), done) + end - max(start, awaited)
            self._clock.ends(start, end, returns, until)

    def _works_at(self, time: int) -> bool:
        """Whether the device still has work at a moment of the trace, of what was launched until then."""
        return any(self._end[row] > time for row in self._last.values())

    def _fetch(self, row: int) -> None:
        """Lets a batch from workers arrive as long after the one before as it did."""
        start, end = int(self._trace.host.start[row]), int(self._trace.host.end[row])
        begun, returns = self._clock.own(np.array([start, end])).tolist()
        arrives = self._clock.at(end, returns)
        if self._arrived is not None:
            before, arrived = self._arrived
            arrives = max(self._clock.at(start, begun), arrived + end - before)
            self._clock.ends(start, end, returns, arrives)
        self._arrived = end, arrives

    def _made(self) -> Trace:
        trace = self._trace
        begins = np.rint(np.array(self._begins)).astype(np.int64)
        device = replace(trace.device, start=begins, end=begins + trace.device.end - trace.device.start)
        order = np.lexsort((np.arange(len(device)), device.start))
        return replace(
            trace,
            device=type(device)(**{name: getattr(device, name)[order] for name in device.__dataclass_fields__}),
            host=replace(trace.host, start=self._clock.of(trace.host.start), end=self._clock.of(trace.host.end)),
            calls=replace(trace.calls, start=self._clock.of(trace.calls.start), end=self._clock.of(trace.calls.end)),
        )


def _usual_latency(account: RankAccount) -> float:
    """From the end of a launch call to its event's start on a device that has nothing else to do."""
    device, calls, launches = account.trace.device, account.trace.calls, account.launches
    latency = device.start - np.where(launches == UNKNOWN, device.start, calls.end[launches])
    idle = (launches != UNKNOWN) & (np.append(0, np.maximum.accumulate(device.end)[:-1]) <= calls.start[launches])
    if not idle.any():
        return float(thresholds.LAUNCH_LATENCY_NS)
    return min(median(latency[idle]), float(thresholds.MOST_LAUNCH_LATENCY_NS))
