"""How near matrix products, convolutions and attention come to what the GPU can do (the roofline model).

A call cannot take less than its arithmetic at the peak rate of its precision, nor less than its memory traffic at the
peak bandwidth. The larger of the two over the time that its kernels took is the achieved fraction (Williams et al.,
"Roofline: an insightful visual performance model", 2009).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from perfdoctor.traces.flops import COUNTED, count
from perfdoctor.traces.intervals import NONE, nest
from perfdoctor.traces.model import UNKNOWN, HostKind, Trace

_NO_SHAPES = "the trace lacks the operators' shapes, types or settings"
_NO_PEAK = "the table has no peak for their precision, or their kernels do not tell it"
_SHORT = "they take less than 10 us each, mostly starting and ending"
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


# Operator and inputs, by their numbers in the trace, and the precision of the kernels.
_Kind = tuple[int, int, str]


def _calls(account: RankAccount) -> dict[_Kind, list[float]]:
    """Calls of operators whose arithmetic can be counted, as far as they launched anything: nanoseconds of each."""
    trace = account.trace
    wanted = np.array([name in COUNTED for name in trace.names] or [False])
    operators = nest(trace.host, trace.named(wanted, trace.host.name) & (trace.host.kind == HostKind.OPERATOR))
    events = np.flatnonzero((account.launches != UNKNOWN) & (account.taken > 0))
    if not len(events) or not len(operators):
        return {}
    call = account.launches[events]
    rows = operators.innermost(trace.calls.thread[call], trace.calls.start[call])
    events, rows = events[rows != NONE], rows[rows != NONE]
    order = np.lexsort((trace.device.name[events], account.taken[events], rows))
    events, rows = events[order], rows[order]
    longest = np.flatnonzero(np.diff(rows, append=NONE))  # of each call's kernels
    taken = np.diff(np.cumsum(account.taken[events])[longest], prepend=0.0)
    columns = (
        trace.host.name[rows[longest]],
        trace.host.inputs[rows[longest]],
        trace.device.name[events[longest]],
        taken,
    )
    found: dict[_Kind, list[float]] = defaultdict(list)
    for operator, inputs, kernel, one in zip(*(column.tolist() for column in columns), strict=True):
        found[operator, inputs, name_precision(trace.names[kernel])].append(one)
    return found


def _compare(trace: Trace, peak: Peak, calls: Mapping[_Kind, Sequence[float]]) -> Roofline:
    found: dict[tuple[str, bool], list[float]] = {}  # least and taken
    left_out: Amounts[str] = Amounts()
    for kind, taken in calls.items():
        needed = _least(trace, peak, *kind)
        counted = [one for one in taken if one >= thresholds.SHORT_KERNEL_NS] if needed != _NO_SHAPES else taken
        left_out[_SHORT] += sum(taken) - sum(counted)
        if isinstance(needed, str):
            left_out[needed] += sum(counted)
        elif counted:
            sums = found.setdefault((needed.name, needed.traffic > needed.arithmetic), [0.0, 0.0])
            sums[0] += max(needed.traffic, needed.arithmetic) * len(counted)
            sums[1] += sum(counted)
    if left_out.total > thresholds.UNCOMPARED_WORK * sum(map(sum, calls.values())):
        why = max(left_out, key=lambda one: left_out[one])
        return Roofline((), (_missing(why, _WITH_SHAPES),))
    operators = [Achieved(name, least, taken, by_traffic) for (name, by_traffic), (least, taken) in found.items()]
    return Roofline(tuple(sorted(operators, key=lambda one: -one.taken_ns)))


class _Least(NamedTuple):
    """Nanoseconds at the peak, and what needs them: an operator, its input's sizes and the precision."""

    arithmetic: float
    traffic: float
    name: str


def _least(trace: Trace, peak: Peak, operator: int, inputs: int, precision: str) -> _Least | str:
    """What a call needs at the peak, or why that is not known.

    The element type determines the precision, and for single precision the kernel's name whether tensor cores shorten
    it.
    """
    effort = count(trace.names[operator], trace.inputs[inputs]) if inputs != UNKNOWN else None
    if effort is None:
        return _NO_SHAPES
    determined = profiler.SCALAR_PRECISION.get(effort.dtype, "")
    if determined == "fp32":
        determined = precision if precision in ("tf32", "fp32") else ""
    elif precision not in (determined, ""):
        determined = ""
    rate = arithmetic(peak, determined)
    if rate is None:
        return _NO_PEAK
    name = f"{trace.names[operator]} {effort.shapes} {determined}"
    return _Least(effort.flops / rate * NS_PER_S, effort.bytes / (peak.memory * 1e9) * NS_PER_S, name)
