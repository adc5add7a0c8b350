"""A rank's training loop: its steps, and the phases of each on the thread that trains.

Scripts that use the profiler themselves mark their steps. Where nobody did, as in a trace that was taken from outside,
they are found by what PyTorch marks of its own accord, the first of these that comes twice:

- a batch is asked for, after a backward pass or an optimizer's step,
- an optimizer's step ends; of several optimizers that with the fewest steps,
- a backward pass ends.

Between two backward passes the main thread's operators are the forward pass of the next one, if nothing else but
``zero_grad`` comes between; all others, such as metrics and the clipping of gradients, are of no phase. Of what
``zero_grad`` separates, the forward pass is where the most operators are, with what follows: a loss that is scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.steps import describe_steps
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.call_sites import SourceLines
from perfdoctor.traces.host import Host
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import UNKNOWN, HostKind, Int8s, Int32s, Int64s, Trace, is_among

DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = "data", "forward", "backward", "optimizer", "other"
_SHOWN = 5  # lines


class Doing(IntEnum):
    """What the main thread does, in the order in which time is given where ranges nest."""

    FETCHING = 0
    PASSING_BACK = 1
    UPDATING = 2
    ZEROING = 3
    OPERATING = 4


@dataclass(frozen=True, slots=True)
class WholeSteps:
    """The whole steps of a rank.

    Attributes:
        lengths: of each, in nanoseconds; empty where the trace has none.
        marked: the script told the profiler where they end.
        phases: phase to nanoseconds of the main thread in each step; they sum to the lengths.
        on_device: phase to nanoseconds of a step in which devices work on what was launched in it, as a mean over
            steps and devices; empty without devices.
        lines: functions of the job's own (``file.py:12 function``), and in which fraction of all steps' time the main
            thread was in them or in libraries that they called; those with most, where functions were recorded.
    """

    lengths: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    marked: bool = False
    phases: Mapping[str, Int64s] = field(default_factory=dict)
    on_device: Mapping[str, float] = field(default_factory=dict)
    lines: Sequence[tuple[str, float]] = ()

    def summary(self) -> dict[str, Any]:
        """What reports show: as of observed steps, and ``marked``, ``device`` and ``lines``; {} without steps."""
        if not len(self.lengths):
            return {}
        spent = {name: times / NS_PER_S for name, times in self.phases.items()}
        found = {**describe_steps(self.lengths / NS_PER_S, spent), "marked": self.marked}
        if self.on_device:
            found["device"] = {"phases": {name: time / NS_PER_S for name, time in self.on_device.items()}}
        if self.lines:
            found["lines"] = [{"line": line, "share": share} for line, share in self.lines]
        return found


def find_loop(account: RankAccount, lines: SourceLines) -> WholeSteps:
    """The whole steps of a rank, as marked or as found."""
    runs = _find_runs(account.host)
    marked = np.array(account.window.steps, dtype=np.int64).reshape(-1, 2)
    steps = marked if len(marked) else _find_steps(account.trace, runs)
    if not len(steps):
        return WholeSteps()
    start, end = steps[:, 0], steps[:, 1]
    whole = Intervals.union(start, end)
    phases = runs.phases()
    phases[OTHER] = whole
    for name in (DATA, FORWARD, BACKWARD, OPTIMIZER):
        phases[OTHER] -= phases[name]
    spent = sorted(lines.spent(account.host.on_main, whole).items(), key=lambda item: -item[1])
    return WholeSteps(
        lengths=end - start,
        marked=bool(len(marked)),
        phases={name: within for name, times in phases.items() if (within := times.within(start, end)).any()},
        on_device=_on_device(account, {name: times & whole for name, times in phases.items()}, len(steps)),
        lines=[(line, time / whole.total) for line, time in spent[:_SHOWN]],
    )


def find_phases(host: Host) -> dict[str, Intervals]:
    """When the main thread is in each phase but ``OTHER``, in whole steps or not; disjoint."""
    return _find_runs(host).phases()


@dataclass(frozen=True, slots=True)
class _Runs:
    """What the main thread does, one after the other; columns of equal length.

    Attributes:
        doing: a ``Doing``, never the same as in the run before.
        end: of the last thing that it does in a run; pauses in between belong to it.
        things: how many it does in a run.
    """

    doing: Int8s
    start: Int64s
    end: Int64s
    things: Int64s

    def of(self, *doing: Doing) -> Intervals:
        """The times of runs of some kinds."""
        rows = is_among(self.doing, doing)
        return Intervals.union(self.start[rows], self.end[rows])

    def phases(self) -> dict[str, Intervals]:
        """The times of all phases; disjoint."""
        forward = self._forward()
        return {
            DATA: self.of(Doing.FETCHING),
            FORWARD: Intervals.union(self.start[forward], self.end[forward]),
            BACKWARD: self.of(Doing.PASSING_BACK),
            OPTIMIZER: self.of(Doing.UPDATING, Doing.ZEROING),
        }

    def _forward(self) -> Int64s:
        """The runs of operators that lead to a backward pass with nothing but ``zero_grad`` in between."""
        others = np.flatnonzero(self.doing != Doing.ZEROING)
        operating = self.doing[others] == Doing.OPERATING
        # By stretch of runs of operators: where each begins in ``others``, and what comes after it.
        begins = np.flatnonzero(operating & ~np.append(False, operating[:-1]))
        ends = np.flatnonzero(operating & ~np.append(operating[1:], False)) + 1
        found: list[Int64s] = [np.zeros(0, dtype=np.int64)]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if end < len(others) and self.doing[others[end]] == Doing.PASSING_BACK:
                stretch = others[begin:end]
                found.append(stretch[int(self.things[stretch].argmax()) :])
        return np.concatenate(found)


def _find_runs(host: Host) -> _Runs:
    trace, ranges, here = host.trace, host.trace.host, host.on_main
    backward, updates = trace.matching(profiler.BACKWARD, ranges.name), own_updates(trace)
    rows = {
        Doing.FETCHING: here & host.fetching,
        Doing.PASSING_BACK: backward,  # also on autograd's threads, for which the main one waits
        Doing.ZEROING: here & trace.matching(profiler.ZERO_GRAD, ranges.name),
        Doing.OPERATING: here & (ranges.kind == HostKind.OPERATOR),
    }
    times = {doing: Intervals.union(ranges.start[some], ranges.end[some]) for doing, some in rows.items()}
    times[Doing.UPDATING] = Intervals.union(updates.start, updates.end)
    first = trace.matching(profiler.FIRST_GRADIENT, ranges.name)
    times[Doing.OPERATING] -= Intervals.union(ranges.start[first], ranges.end[first])  # behind a late zero_grad
    taken = Intervals.none()
    for one in Doing:
        times[one], taken = times[one] - taken, taken | times[one]
    doing = np.repeat(np.array(Doing, dtype=np.int8), [len(times[one]) for one in Doing])
    start = np.concatenate([times[one].start for one in Doing])
    end = np.concatenate([times[one].end for one in Doing])
    order = np.argsort(start, kind="stable")
    doing, start, end = doing[order], start[order], end[order]
    begins = np.flatnonzero(np.diff(doing, prepend=np.int8(UNKNOWN)))
    last = np.append(begins[1:], len(doing))[: len(begins)] - 1
    return _Runs(doing[begins], start[begins], end[last], last - begins + 1)


@dataclass(frozen=True, slots=True)
class Updates:
    """Steps of optimizers, in order of their ends; columns of equal length."""

    start: Int64s
    end: Int64s
    name: Int32s


def own_updates(trace: Trace) -> Updates:
    """What optimizers do themselves in their steps.

    A step that is given a closure, as under Lightning, holds forward and backward passes too: its own part follows.
    """
    host = trace.host
    rows = np.flatnonzero(trace.matching(profiler.OPTIMIZER_STEP, host.name) & (host.kind == HostKind.ANNOTATION))
    rows = rows[np.argsort(host.end[rows], kind="stable")]
    passed = np.concatenate([[0], np.sort(host.end[trace.matching(profiler.BACKWARD_NODE, host.name)])])
    start = np.maximum(host.start[rows], passed[np.searchsorted(passed, host.end[rows], side="right") - 1])
    return Updates(start, host.end[rows], host.name[rows])


def _find_steps(trace: Trace, runs: _Runs) -> Int64s:
    """Starts and ends of whole steps that nobody marked, one row each."""
    fetches = runs.of(Doing.FETCHING).start
    worked = runs.start[is_among(runs.doing, (Doing.PASSING_BACK, Doing.UPDATING))]
    after_work = np.diff(np.searchsorted(worked, fetches), prepend=0) > 0
    for borders in (fetches[after_work], _ends_of_turns(own_updates(trace)), runs.of(Doing.PASSING_BACK).end):
        if len(borders) > 1:
            return np.stack((borders[:-1], borders[1:]), axis=1)
    return np.zeros((0, 2), dtype=np.int64)


def _ends_of_turns(updates: Updates) -> Int64s:
    """The ends of those optimizers' steps that come once in each turn of the loop: a critic has several."""
    if not len(updates.name):
        return updates.end
    names, counts = np.unique(updates.name, return_counts=True)
    regular = counts * thresholds.CRITIC_TURNS >= counts.max()  # what comes more rarely belongs to no turn
    once = names[regular][np.argmin(counts[regular])]
    ends: Int64s = updates.end[updates.name == once]
    return ends


def _on_device(account: RankAccount, phases: Mapping[str, Intervals], steps: int) -> dict[str, float]:
    """By phase, for how many nanoseconds of a step devices work on what was launched in it; as a mean over them."""
    device = account.trace.device
    launched = account.launched_at(np.arange(len(device)))[1]
    found: dict[str, float] = {}
    for name, times in phases.items():
        rows = times.within(launched, launched + 1) > 0
        busy = 0
        for one in account.devices:
            its = rows & (device.device == one.device)
            busy += Intervals.union(device.start[its], device.end[its]).total
        if busy:
            found[name] = busy / len(account.devices) / steps
    return found
