"""Where a rank's wall time went, by cause: the same causes as everywhere, from exact intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from perfdoctor.causes import (
    CHECKPOINT_WRITE,
    DATA_PARALLEL,
    GPU_COMPUTE,
    HOST_TRANSFER,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    LOW_OCCUPANCY,
    MEMORY_BANDWIDTH,
    MEMORY_PRESSURE,
    MODEL_COMPUTE,
    NO_TENSOR_CORES,
    PYTHON_OVERHEAD,
    STARTUP,
    SYNCHRONIZATION,
    UNATTRIBUTED,
    UNOBSERVED_RANK,
)
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.profiler import Work
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.communication import CollectiveTimes, time_collectives, time_host_collectives
from perfdoctor.traces.device import DeviceTime, Gaps, IdleReason, classify_work, explain_idle, split_devices
from perfdoctor.traces.host import Host, HostActivity
from perfdoctor.traces.intervals import NONE, Floats, Intervals, Nesting, sum_up
from perfdoctor.traces.model import UNKNOWN, Int8s, Int64s, Trace, find_launches
from perfdoctor.traces.steps import TraceWindow, find_window

CAUSE_OF_WORK = {
    Work.ARITHMETIC: GPU_COMPUTE,
    Work.SINGLE_PRECISION: NO_TENSOR_CORES,
    Work.MEMORY: MEMORY_BANDWIDTH,
    Work.SMALL: LOW_OCCUPANCY,
    Work.COPY: HOST_TRANSFER,
}
CAUSE_OF_IDLENESS = {
    IdleReason.LOADING: INPUT_PREPROCESSING,
    IdleReason.SAVING: CHECKPOINT_WRITE,
    IdleReason.COMPILING: PYTHON_OVERHEAD,
    IdleReason.ALLOCATING: MEMORY_PRESSURE,
    IdleReason.SYNCHRONIZING: SYNCHRONIZATION,
    IdleReason.COPYING_IN: HOST_TRANSFER,
    IdleReason.COLLECTIVE: UNOBSERVED_RANK,
    IdleReason.SPREADING: DATA_PARALLEL,
    IdleReason.DISPATCHING: KERNEL_LAUNCH,
    IdleReason.OWN_CODE: PYTHON_OVERHEAD,
    IdleReason.SWITCHING: LOW_OCCUPANCY,
    IdleReason.SETTING_UP: KERNEL_LAUNCH,
    IdleReason.IN_OPERATOR: PYTHON_OVERHEAD,
    IdleReason.OUTSIDE: PYTHON_OVERHEAD,
    IdleReason.UNEXPLAINED: UNATTRIBUTED,
}
# What may be done once, at the job's start.
_AT_START = (IdleReason.COMPILING, IdleReason.SETTING_UP, IdleReason.ALLOCATING)
# The window is cut into this many equal slices, to see how much the account varies from one to the next.
SLICES = 20


@dataclass
class RankAccount:
    """One trace, accounted for.

    Attributes:
        devices: the devices' time; empty for a job on the CPU.
        gaps: their idle times, in the same order.
        work: a ``Work`` for each device event.
        collectives: of each device, and what of them is exposed.
        attributed: by cause, when it took how many nanoseconds: ``(start, end, amount)``.
    """

    trace: Trace
    window: TraceWindow
    host: Host
    work: Int8s
    devices: list[DeviceTime] = field(default_factory=list)
    gaps: list[Gaps] = field(default_factory=list)
    collectives: list[CollectiveTimes] = field(default_factory=list)
    attributed: dict[str, list[tuple[Int64s, Int64s, Floats]]] = field(default_factory=dict)

    @cached_property
    def launches(self) -> Int64s:
        """For each device event, the row of the call that launched it, or ``UNKNOWN``."""
        return find_launches(self.trace)

    def launched_at(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Thread and start of the calls that launched some device events; ``UNKNOWN`` where the trace has no call."""
        calls, call = self.trace.calls, self.launches[rows]
        if not len(calls):
            return call, call
        seen = call != UNKNOWN
        thread = np.where(seen, calls.thread[call], UNKNOWN).astype(np.int64)
        return thread, np.where(seen, calls.start[call], UNKNOWN)

    @cached_property
    def recompiles(self) -> bool:
        """Whether the model is compiled again and again; otherwise compiling belongs to the job's start."""
        steps = self._steps
        spent = self.host.activity(None)[HostActivity.COMPILING].within(steps[:, 0], steps[:, 1])
        return _recurs(spent.astype(np.float64))

    @cached_property
    def done_once(self) -> frozenset[IdleReason]:
        """What the GPU waits for that belongs to the job's start, and not to its steps.

        First allocations are set-up as well: loading code and trying algorithms allocate, and a call that allocates
        or frees may be what sets the device up. A job that allocates because its memory is full sets up next to
        nothing, and has run kernels.
        """
        once = {reason for reason in _AT_START if not _recurs(self._waited_by_step(reason))}
        if self.recompiles:
            once.discard(IdleReason.COMPILING)
        setting_up = self.idle_for(IdleReason.SETTING_UP) if IdleReason.SETTING_UP in once else 0.0
        allocating = self.idle_for(IdleReason.ALLOCATING)
        early = self._allocating_before_kernels >= thresholds.MOSTLY * allocating
        if not early and setting_up < thresholds.SET_UP_BESIDE_ALLOCATING * allocating:
            once.discard(IdleReason.ALLOCATING)
        return frozenset(once)

    @property
    def _allocating_before_kernels(self) -> float:
        """The part of ``idle_for`` allocating that lies before the first kernel of a trace that may be of a first pass.

        Where steps are marked the profiler was started in a job that runs.
        """
        device = self.trace.device
        kernels = ~self.trace.matching(profiler.NO_KERNEL, device.name)
        if self.window.steps or not kernels.any():
            return 0.0
        first = int(device.start[kernels].min())
        length = self.window.length * max(len(self.gaps), 1)
        found = sum(float(gaps.reasons[IdleReason.ALLOCATING][gaps.until <= first].sum()) for gaps in self.gaps)
        return found / max(length, 1)

    @property
    def _steps(self) -> Int64s:
        return np.array(self.window.steps, dtype=np.int64).reshape(-1, 2)

    def _waited_by_step(self, reason: IdleReason) -> Floats:
        """In each step, for how many nanoseconds devices were idle for a reason."""
        starts = self._steps[:, 0]
        found = np.zeros(len(starts) + 1)
        for gaps in self.gaps:
            found += np.bincount(
                np.searchsorted(starts, gaps.until), weights=gaps.reasons[reason], minlength=len(found)
            )[: len(found)]
        return found[1:]

    @property
    def operators(self) -> Nesting:
        """How the operators on the host nest."""
        return self.host.operators

    @cached_property
    def taken(self) -> Floats:
        """Nanoseconds of each device event within the window."""
        device, window = self.trace.device, self.window
        inside = np.minimum(device.end, window.end) - np.maximum(device.start, window.start)
        taken: Floats = np.maximum(inside, 0).astype(np.float64)
        return taken

    @cached_property
    def slices(self) -> list[Amounts[str]]:
        """Nanoseconds by cause in each slice of the window, over all devices."""
        edges = slice_edges(self.window)
        found: list[Amounts[str]] = [Amounts() for _ in range(SLICES)]
        for cause, summed in self.before(edges).items():
            for amounts, amount in zip(found, np.diff(summed), strict=True):
                if amount > 0:
                    amounts[cause] = float(amount)
        return found

    @property
    def shares(self) -> Mapping[str, float]:
        """Cause to fraction of the window; sums to 1, empty where nothing was accounted for."""
        return Amounts.summed(self.slices).fractions()

    @cached_property
    def loading(self) -> float:
        """Fraction of the window in which the main thread fetches batches."""
        if not self.devices:
            return self.shares.get(INPUT_PREPROCESSING, 0.0)
        times = self.host.activity(self.host.main)[HostActivity.LOADING]
        return (times & Intervals.one(self.window.start, self.window.end)).total / max(self.window.length, 1)

    def idle_for(self, reason: IdleReason) -> float:
        """Fraction of the devices' time that was idle for a reason."""
        length = self.window.length * max(len(self.gaps), 1)
        return float(sum(gaps.reasons[reason].sum() for gaps in self.gaps)) / max(length, 1)

    def cause_of(self, reason: IdleReason) -> str:
        """What idleness for a reason is attributed to."""
        return STARTUP if reason in self.done_once else CAUSE_OF_IDLENESS[reason]

    def attribute(self, cause: str, start: Int64s, end: Int64s, amounts: Floats) -> None:
        """Attributes amounts of time to a cause, each evenly over its span."""
        given = amounts > 0
        if given.any():
            self.attributed.setdefault(cause, []).append((start[given], end[given], amounts[given]))

    def attribute_times(self, cause: str, times: Intervals) -> None:
        """Attributes a set of times to a cause."""
        self.attribute(cause, times.start, times.end, (times.end - times.start).astype(np.float64))

    def before(self, times: Int64s) -> dict[str, Floats]:
        """By cause, how many nanoseconds of it lie before each of some times."""
        return {
            cause: sum((np.interp(times, *one) for one in summed), np.zeros(len(times)))
            for cause, summed in self._summed.items()
        }

    @cached_property
    def _summed(self) -> dict[str, list[tuple[Int64s, Floats]]]:
        """By cause, what was attributed at once: moments, and how much of it lies before each."""
        return {cause: [sum_up(*parts) for parts in attributed] for cause, attributed in self.attributed.items()}


def _recurs(spent: Floats) -> bool:
    """Whether something is done again and again, by how much of it each step has.

    At the start the first steps do it, and those that follow do not. That takes at least two steps to tell.
    """
    first = int(np.flatnonzero(np.append(spent, 0) == 0)[0])  # the first step that does nothing of it
    return len(spent) > 1 and (2 * first > len(spent) or bool(spent[first:].sum() > spent[:first].sum()))


def slice_edges(window: TraceWindow) -> Int64s:
    """Where the slices of a window begin and end."""
    return np.linspace(window.start, window.end, SLICES + 1).astype(np.int64)


def account_for(trace: Trace) -> RankAccount:
    """Accounts for all wall time of a trace."""
    window = find_window(trace)
    host = Host(trace, window.steps)
    account = RankAccount(trace, window, host, classify_work(trace))
    if not len(trace.device):
        split = split_host(trace, host, account.operators, window, compiling=account.cause_of(IdleReason.COMPILING))
        fetched = split.pop(INPUT_PREPROCESSING)
        account.attribute(INPUT_PREPROCESSING, fetched.start, fetched.end, fetching_ns(host, fetched))
        for cause, times in split.items():
            account.attribute_times(cause, times)
        account.collectives.append(time_host_collectives(host, split[UNOBSERVED_RANK]))
        return account
    account.devices = _at_work(split_devices(trace, account.work, window))
    account.gaps = [explain_idle(host, account.launches, device) for device in account.devices]
    for device, gaps in zip(account.devices, account.gaps, strict=True):
        _attribute_device(account, device, gaps)
    return account


def _attribute_device(account: RankAccount, device: DeviceTime, gaps: Gaps) -> None:
    for work, cause in CAUSE_OF_WORK.items():
        account.attribute_times(cause, device.alone[work])
    collectives = time_collectives(account.trace, account.work, device)
    account.collectives.append(collectives)
    spread_out = account.host.has_data_parallel and not account.trace.messages
    for cause, amounts in collectives.amounts.items():
        # Collectives of a process that reports no other ranks, and copies between its GPUs, are nn.DataParallel's.
        account.attribute(DATA_PARALLEL if spread_out else cause, collectives.start, collectives.end, amounts)
    for reason, amounts in gaps.reasons.items():
        account.attribute(account.cause_of(reason), gaps.start, gaps.end, amounts)


def _at_work(devices: list[DeviceTime]) -> list[DeviceTime]:
    most = max((device.busy.total for device in devices), default=0)
    return [device for device in devices if device.busy.total >= thresholds.HELPER_DEVICE * most]


_CAUSE = {
    HostActivity.LOADING: INPUT_PREPROCESSING,
    HostActivity.SAVING: CHECKPOINT_WRITE,
    HostActivity.COLLECTIVE: UNOBSERVED_RANK,
}


def split_host(
    trace: Trace, host: Host, operators: Nesting, window: TraceWindow, *, compiling: str
) -> dict[str, Intervals]:
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
        for one in (HostActivity.LOADING, HostActivity.SAVING, HostActivity.COLLECTIVE):
            left = _take(found, _CAUSE[one], doing[one], left)
        left = _take(found, compiling, doing[HostActivity.COMPILING], left)
        left = _take(found, MODEL_COMPUTE, arithmetic, left)
        dispatching = doing[HostActivity.DISPATCHING] | doing[HostActivity.OWN_CODE]
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
