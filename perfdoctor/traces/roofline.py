"""How near matrix products, convolutions and attention come to what the GPU can do (the roofline model).

A call cannot take less than its arithmetic at the peak rate of its precision, nor less than its memory traffic at the
peak bandwidth. The larger of the two over the time that its kernels took is the achieved fraction (Williams et al.,
"Roofline: an insightful visual performance model", 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.hardware import Peak, arithmetic, find_peak
from perfdoctor.knowledge.profiler import name_precision
from perfdoctor.metrics.names import ROOFLINE
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.flops import COUNTED, Effort, count
from perfdoctor.traces.intervals import NONE, nest
from perfdoctor.traces.model import UNKNOWN, HostKind, Trace

_NO_SHAPES = "the trace lacks the operators' shapes, types or settings"
_WITH_SHAPES = "torch.profiler.profile(record_shapes=True), of a recent PyTorch"


@dataclass(frozen=True, slots=True)
class Achieved:
    """All calls of one operator with one kind of input.

    Attributes:
        name: the operator, its input's sizes, and the precision.
        least_ns: what they need at the peak.
        taken_ns: what they took.
        by_traffic: memory traffic is the limit, not arithmetic.
    """

    name: str
    least_ns: float
    taken_ns: float
    by_traffic: bool


@dataclass(frozen=True, slots=True)
class Roofline:
    """What could be compared of one rank.

    Attributes:
        operators: those that took longest come first.
        missing: why nothing could be compared though there was something.
    """

    operators: tuple[Achieved, ...] = ()
    missing: tuple[NotExamined, ...] = ()

    def numbers(self) -> dict[str, Evidence]:
        """The whole, and the operators that took longest, under the names of ``perfdoctor.metrics.names.ROOFLINE``."""
        if not self.operators:
            return {}
        taken = sum(one.taken_ns for one in self.operators)
        values: list[float | str] = [round(sum(one.least_ns for one in self.operators) / taken, 4)]
        values += [_describe(one, taken) for one in self.operators]
        return {
            name: Evidence(words, value, unit, probe)
            for (name, (words, unit, probe)), value in zip(ROOFLINE.items(), values, strict=False)
        }


def _describe(one: Achieved, taken: float) -> str:
    limit = "memory bandwidth" if one.by_traffic else "peak arithmetic"
    return f"{one.name}: {one.least_ns / one.taken_ns:.0%} of {limit} ({one.taken_ns / taken:.0%} of their time)"


def compare_with_peak(account: RankAccount) -> Roofline:
    """Compares what one rank's GPU did with what it could do."""
    if not account.devices:
        return Roofline()
    if not any(account.trace.names[name] in COUNTED for name in account.trace.occurring(account.trace.host.name)):
        return Roofline()  # nothing of the kind, so nothing is missing
    if not account.trace.inputs:
        return Roofline((), (_missing(_NO_SHAPES, _WITH_SHAPES),))
    calls = _calls(account)
    if not calls:
        return Roofline()
    device = account.trace.devices.get(account.devices[0].device)
    peak = None if device is None else find_peak(device.name)
    if peak is None:
        name = device.name if device is not None and device.name else "its name is not in the trace"
        return Roofline((), (_missing(f"its limits are not known here ({name})", "an issue with its data sheet"),))
    return _compare(account.trace, peak, calls)


def _missing(why: str, enable: str) -> NotExamined:
    return NotExamined("roofline", f"How near operators come to the GPU's peak is not reported: {why}.", enable)


@dataclass(frozen=True, slots=True)
class _OperatorCall:
    """One call of an operator: its row, nanoseconds and precision of its kernels."""

    row: int
    taken: float
    precision: str


def _calls(account: RankAccount) -> list[_OperatorCall]:
    """Calls of operators whose arithmetic can be counted, as far as they launched anything."""
    trace = account.trace
    wanted = np.array([name in COUNTED for name in trace.names] or [False])
    operators = nest(trace.host, trace.named(wanted, trace.host.name) & (trace.host.kind == HostKind.OPERATOR))
    events = np.flatnonzero((account.launches != UNKNOWN) & (account.taken > 0))
    if not len(events) or not len(operators):
        return []
    call = account.launches[events]
    rows = operators.innermost(trace.calls.thread[call], trace.calls.start[call])
    taken: dict[int, float] = {}
    longest: dict[int, tuple[float, int]] = {}
    for row, event in zip(rows.tolist(), events.tolist(), strict=True):
        if row != NONE:
            one = float(account.taken[event])
            taken[row] = taken.get(row, 0.0) + one
            longest[row] = max(longest.get(row, (0.0, 0)), (one, int(trace.device.name[event])))
    return [_OperatorCall(row, taken[row], name_precision(trace.names[name])) for row, (_, name) in longest.items()]


def _compare(trace: Trace, peak: Peak, calls: Sequence[_OperatorCall]) -> Roofline:
    efforts: dict[tuple[int, int], Effort | None] = {}
    found: dict[tuple[str, bool], list[float]] = {}  # least and taken
    left_out: Amounts[str] = Amounts()
    for call in calls:
        kind = int(trace.host.name[call.row]), int(trace.host.inputs[call.row])
        if kind not in efforts:
            efforts[kind] = count(trace.names[kind[0]], trace.inputs[kind[1]]) if kind[1] != UNKNOWN else None
        effort = efforts[kind]
        if effort is None:
            left_out[_NO_SHAPES] += call.taken
        elif call.taken < thresholds.SHORT_KERNEL_NS:
            left_out["they take less than 10 us each, mostly starting and ending"] += call.taken
        elif (needed := _least(effort, peak, call.precision)) is None:
            left_out["the table has no peak for their precision, or their kernels do not tell it"] += call.taken
        else:
            by_traffic = needed.traffic > needed.arithmetic
            name = f"{trace.names[kind[0]]} {effort.shapes} {needed.precision}"
            sums = found.setdefault((name, by_traffic), [0.0, 0.0])
            sums[0] += max(needed.traffic, needed.arithmetic)
            sums[1] += call.taken
    if left_out.total > thresholds.UNCOMPARED_WORK * sum(call.taken for call in calls):
        why = max(left_out, key=lambda one: left_out[one])
        return Roofline((), (_missing(why, _WITH_SHAPES),))
    operators = [Achieved(name, least, taken, by_traffic) for (name, by_traffic), (least, taken) in found.items()]
    return Roofline(tuple(sorted(operators, key=lambda one: -one.taken_ns)))


class _Least(NamedTuple):
    """Nanoseconds at the peak."""

    arithmetic: float
    traffic: float
    precision: str


def _least(effort: Effort, peak: Peak, precision: str) -> _Least | None:
    """What a call needs at the peak; None if that is not known.

    The element type determines the precision, and for single precision the kernel's name whether tensor cores shorten
    it.
    """
    determined = profiler.SCALAR_PRECISION.get(effort.dtype, "")
    if determined == "fp32":
        determined = precision if precision in ("tf32", "fp32") else ""
    elif precision not in (determined, ""):
        return None
    rate = arithmetic(peak, determined)
    if rate is None:
        return None
    return _Least(effort.flops / rate * NS_PER_S, effort.bytes / (peak.memory * 1e9) * NS_PER_S, determined)
