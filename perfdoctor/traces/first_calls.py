"""First calls of operators that take long by themselves: they call and launch nothing for longer than dispatch takes.

The first call may compile the operator, load its library or choose an algorithm, and later calls do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.traces.intervals import Intervals, Nesting
from perfdoctor.traces.model import Bools, Int32s, Int64s, Trace, distinct, is_among


@dataclass(frozen=True, slots=True)
class Stretches:
    """Times on threads."""

    thread: Int32s
    start: Int64s
    end: Int64s

    @classmethod
    def none(cls) -> Stretches:
        """No times at all."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(0, dtype=np.int32), nothing, nothing)

    def on(self, thread: int | None) -> Intervals:
        """Those of a thread; of all for None."""
        rows = np.ones(len(self.start), dtype=np.bool_) if thread is None else self.thread == thread
        return Intervals.union(self.start[rows], self.end[rows])


def find_first_calls(trace: Trace, operators: Nesting, *, one_step: bool) -> Stretches:
    """The long stretches in which operators do what they do once, and call nothing that the trace shows.

    Args:
        trace: what was seen.
        operators: how they nest, on all threads.
        one_step: whether the trace marks a single step. An operator that is called once in it may be called once in
            every step.
    """
    of, thread, start, end = _without_calls(trace, operators)
    long = end - start > thresholds.SET_UP_CALL_NS
    of, thread, start, end = of[long], thread[long], start[long], end[long]
    once = _done_once(trace, operators, of, end - start, one_step=one_step)
    return Stretches(thread[once], start[once], end[once])


def _without_calls(trace: Trace, operators: Nesting) -> tuple[Int64s, Int32s, Int64s, Int64s]:
    """When each operator is the innermost one, without the calls of the runtime: which one, thread, start and end."""
    of, start, end = operators.stretches()
    thread = trace.host.thread[operators.rows[of]] if len(of) else np.zeros(0, dtype=np.int32)
    long = end - start > thresholds.SET_UP_CALL_NS
    of, thread, start, end = of[long], thread[long], start[long], end[long]
    pieces: list[tuple[Int64s, Int32s, Int64s, Int64s]] = []
    for one in distinct(thread).tolist():
        here, called = np.flatnonzero(thread == one), trace.calls.thread == one
        rest = Intervals.union(start[here], end[here])
        rest -= Intervals.union(trace.calls.start[called], trace.calls.end[called])
        begins, ends = _cut(rest, start[here])
        row = here[np.searchsorted(start[here], begins, side="right") - 1]
        pieces.append((of[row], thread[row], begins, ends))
    if not pieces:
        return of, thread, start, end
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    return columns[0], columns[1], columns[2], columns[3]


def _cut(times: Intervals, at: Int64s) -> tuple[Int64s, Int64s]:
    """The starts and ends of times that are cut at some moments: an operator may begin right where another ends."""
    inside = at[(times.within(at, at + 1) > 0) & ~np.isin(at, times.start)]
    return np.sort(np.concatenate((times.start, inside))), np.sort(np.concatenate((times.end, inside)))


def _done_once(trace: Trace, operators: Nesting, of: Int64s, taken: Int64s, *, one_step: bool) -> Bools:
    """Which stretches are of work that the first calls of an operator do, and later ones do not.

    Of several calls the first ones take long, up to one that does not, and later ones no longer than these in sum.
    """
    once = np.zeros(len(of), dtype=np.bool_)
    name = trace.host.name[operators.rows]
    for one in distinct(name[of]).tolist():
        calls = np.flatnonzero(name == one)
        calls = calls[np.argsort(trace.host.start[operators.rows[calls]], kind="stable")]
        spent = np.bincount(of, weights=taken, minlength=len(operators))[calls]
        leading = int(np.flatnonzero(np.append(spent, 0) == 0)[0])  # the first call that is short
        if len(calls) == 1:
            seen_once = not one_step
        else:
            seen_once = leading < len(calls) and bool(spent[leading:].sum() <= spent[:leading].sum())
        if seen_once:
            once |= is_among(of, calls[:leading])
    return once
