"""Who brought each cause about: the operator, and the line of Python, that the host was in.

Work of a device leads back to the call that launched it, idle time to what the host did in it. So each cause becomes a
list of instants on host threads with the nanoseconds that they brought about; the operator and the frame that enclose
an instant are its call site. Idle time of which the trace shows no reason has a mark of the job around it, at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.frames import is_library_in_trace
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.account import CAUSE_OF_IDLENESS, CAUSE_OF_WORK, RankAccount, find_arithmetic
from perfdoctor.traces.device import Gaps, IdleReason
from perfdoctor.traces.host import Host, HostActivity
from perfdoctor.traces.intervals import NONE, Floats, Intervals, Nesting, nest
from perfdoctor.traces.model import UNKNOWN, Bools, HostKind, Int32s, Int64s, Trace

# Where time goes whose call site is not in the trace.
NOT_SEEN = ""
# Idle time that the host's own doing brings about: calls of a kind, or what the main thread is in.
_OF_ITS_OWN: dict[IdleReason, HostActivity | Callable[[Host], Bools]] = {
    IdleReason.SYNCHRONIZING: lambda host: host.draining,
    IdleReason.ALLOCATING: lambda host: host.allocating,
    IdleReason.COPYING_IN: lambda host: host.copying_in,
    IdleReason.LOADING: HostActivity.LOADING,
    IdleReason.SAVING: HostActivity.SAVING,
    IdleReason.COMPILING: HostActivity.COMPILING,
    IdleReason.SETTING_UP: HostActivity.SETTING_UP,
    IdleReason.OWN_CODE: HostActivity.OWN_CODE,
}
_SAMPLES = 1000  # instants that are looked up: fractions to about a hundredth
_PER_GAP = 16  # of them in each gap in which operators launch nothing


class HostInstants(NamedTuple):
    """Instants on host threads.

    Attributes:
        thread: index into ``Trace.threads``; ``UNKNOWN`` where the call site is not in the trace.
        time: nanoseconds.
        amount: nanoseconds that each brought about.
        operator: row of the operator, where it is known beforehand.
        since: when each thing of which an instant is a part began: what its thread was in before is no line of it.
    """

    thread: Int32s | Int64s
    time: Int64s
    amount: Floats
    operator: Int64s | None = None
    since: Int64s | None = None


@dataclass(frozen=True, slots=True)
class CallSites:
    """By cause, nanoseconds by the name of an operator, and by source line (``file.py:12 function``)."""

    operators: dict[str, Amounts[str]] = field(default_factory=dict)
    lines: dict[str, Amounts[str]] = field(default_factory=dict)


def find_call_sites(account: RankAccount, lines: SourceLines) -> CallSites:
    """The call sites of all causes of one rank, as far as the trace shows them."""
    trace = account.trace
    operators = account.operators
    found = CallSites()
    for cause, moments in _instants(account, operators):
        rows = moments.operator
        if rows is None:
            rows = operators.innermost(moments.thread, moments.time)
        names = np.where(rows == NONE, NONE, trace.host.name[rows]) if len(trace.host) else rows
        _add(found.operators, cause, trace.names, names, moments.amount)
        _add(found.lines, cause, lines.texts, lines.at(moments.thread, moments.time, moments.since), moments.amount)
    return found


def _add(found: dict[str, Amounts[str]], cause: str, texts: Sequence[str], numbers: Int64s, amount: Floats) -> None:
    """Sums up by number; nothing is noted of a cause without any call site."""
    if not (numbers != NONE).any():
        return
    summed = np.bincount(numbers + 1, weights=amount)
    amounts = found.setdefault(cause, Amounts())
    for number in np.flatnonzero(summed):
        amounts[texts[number - 1] if number else NOT_SEEN] += float(summed[number])


class SourceLines:
    """The job's own source lines in a trace: frames that the profiler saw, or stacks that operators carry.

    A frame's line is where its function begins; older profilers tell the line of the call.

    Attributes:
        texts: ``file.py:12 function``.
    """

    def __init__(self, trace: Trace, main: int | None) -> None:
        self.texts: list[str] = []
        self._main = main
        host = trace.host
        self._by_name = np.full(max(len(trace.names), 1), NONE)
        for name in trace.occurring(host.name[host.kind == HostKind.PYTHON]):
            self._by_name[name] = self._number(own_line(trace.names[name]))
        self._by_stack = np.array([self._number(_innermost_line(stack)) for stack in trace.stacks] or [NONE])
        self._trace = trace
        python = (host.kind == HostKind.PYTHON) & (trace.named(self._by_name != NONE, host.name))
        self._frames = nest(host, python)
        stacked = (host.stack != UNKNOWN) & (host.kind == HostKind.OPERATOR)
        self._stacks = nest(host, stacked & trace.named(self._by_stack != NONE, host.stack))

    def _number(self, text: str) -> int:
        if not text:
            return NONE
        self.texts.append(text)
        return len(self.texts) - 1

    def at(self, thread: Int64s | Int32s, time: Int64s, since: Int64s | None = None) -> Int64s:
        """For each moment an index into ``texts``, or ``NONE``.

        A thread without frames of its own, such as autograd's, does what the main one waits for at that moment. Frames
        that began before ``since`` do not count.
        """
        host = self._trace.host
        frame, stack = self._frames.innermost(thread, time), self._stacks.innermost(thread, time)
        if self._main is not None:
            main = self._frames.innermost(np.full(len(time), self._main), time)
            frame = np.where((frame == NONE) & (thread != UNKNOWN), main, frame)
        if not len(host):
            return frame
        if since is not None:
            frame = np.where(host.start[frame] < since, NONE, frame)
        by_stack = np.where(stack == NONE, NONE, self._by_stack[host.stack[stack]])
        return np.where(frame == NONE, by_stack, self._by_name[host.name[frame]])

    def spent(self, wanted: Bools, times: Intervals) -> Amounts[str]:
        """Nanoseconds in which each function is the innermost of the job's own; what libraries do below is its, too.

        Args:
            wanted: which ranges of the host count: those of one thread.
            times: when.
        """
        of, start, end = self._frames.stretches()
        rows = self._frames.rows[of]
        here = wanted[rows]
        numbers = self._by_name[self._trace.host.name[rows[here]]]
        summed = np.bincount(numbers, weights=times.within(start[here], end[here]), minlength=len(self.texts))
        return Amounts({self.texts[number]: float(summed[number]) for number in np.flatnonzero(summed).tolist()})


def own_line(frame: str) -> str:
    """``file.py:12 function`` of a frame as the profiler writes it; "" if it is not Python, or a library's."""
    match = profiler.FRAME.fullmatch(frame)
    if match is None or is_library_in_trace(match["file"]):
        return ""
    return f"{match['file']}:{match['line']} {match['function']}"


def _innermost_line(stack: str) -> str:
    return next((line for frame in stack.split(";") if (line := own_line(frame))), "")


def _instants(account: RankAccount, operators: Nesting) -> Iterator[tuple[str, HostInstants]]:
    if account.devices:
        yield from _of_work(account)
        yield from _of_idleness(account)
    elif not len(account.trace.device):
        yield from _of_host(account, operators)


def _of_work(account: RankAccount) -> Iterator[tuple[str, HostInstants]]:
    """What devices did, at the calls that launched it."""
    for work, cause in CAUSE_OF_WORK.items():
        rows = np.flatnonzero(account.work == work)
        if len(rows):
            yield cause, HostInstants(*account.launched_at(rows), account.taken[rows])
    for collectives in account.collectives:
        for cause, amounts in collectives.amounts.items():
            if amounts.any():
                yield cause, HostInstants(*account.launched_at(collectives.rows), amounts)


def _of_idleness(account: RankAccount) -> Iterator[tuple[str, HostInstants]]:
    """What the host did while devices were idle.

    Where it was launching, what it launched next is the moment. What it did otherwise is one by itself, and what the
    device was given next has no part in it.
    """
    for gaps in account.gaps:
        for reason in _OF_ITS_OWN:
            if total := float(gaps.reasons[reason].sum()):
                moments = _of_its_kind(account, reason)
                share = moments.amount / max(float(moments.amount.sum()), 1.0)
                yield account.cause_of(reason), moments._replace(amount=share * total)
        amounts = gaps.reasons[IdleReason.DISPATCHING]
        rows = amounts > 0
        if rows.any():
            yield (
                CAUSE_OF_IDLENESS[IdleReason.DISPATCHING],
                HostInstants(gaps.thread[rows], gaps.until[rows], amounts[rows]),
            )
        yield CAUSE_OF_IDLENESS[IdleReason.IN_OPERATOR], _beside_launching(account, gaps)


def _beside_launching(account: RankAccount, gaps: Gaps) -> HostInstants:
    """Instants spread evenly over gaps in which operators launch nothing; code outside of PyTorch has no call site."""
    amounts, outside = gaps.reasons[IdleReason.IN_OPERATOR], gaps.reasons[IdleReason.OUTSIDE]
    rows = np.flatnonzero(amounts > 0)
    back = (np.arange(_PER_GAP) + 0.5) / _PER_GAP
    moments = gaps.until[rows, np.newaxis] - ((gaps.end - gaps.start)[rows, np.newaxis] * back).astype(np.int64)
    thread = np.concatenate((np.repeat(gaps.thread[rows], _PER_GAP), np.full(len(outside), UNKNOWN)))
    times = np.concatenate((moments.ravel(), gaps.until))
    taken = np.concatenate((np.repeat(amounts[rows] / _PER_GAP, _PER_GAP), outside))
    return HostInstants(thread, times, taken, _long_ones(account, account.operators.innermost(thread, times)))


def _long_ones(account: RankAccount, rows: Int64s) -> Int64s:
    """For each operator the innermost one around it that takes long: one of hundreds that it calls is not to blame."""
    host, operators = account.trace.host, account.operators
    place = np.full(len(host), NONE)
    place[operators.rows] = np.arange(len(operators))
    short = (host.end - host.start)[operators.rows] < thresholds.LONG_OPERATOR_NS
    known = rows != NONE
    found: Int64s = rows.copy()
    found[known] = operators.rows[operators.around(place[rows[known]], short)]
    return found


def _of_its_kind(account: RankAccount, reason: IdleReason) -> HostInstants:
    """Calls, or what the main thread does, of a kind that a reason speaks of."""
    if isinstance(doing := _OF_ITS_OWN[reason], HostActivity):
        return _sampled(account, doing)
    calls, rows = account.trace.calls, doing(account.host)
    return _within(account, calls.thread[rows], calls.start[rows], calls.end[rows])


def _within(account: RankAccount, thread: Int32s, start: Int64s, end: Int64s) -> HostInstants:
    taken = np.minimum(end, account.window.end) - np.maximum(start, account.window.start)
    return HostInstants(thread, start, np.maximum(taken, 0).astype(np.float64))


def _sampled(account: RankAccount, doing: HostActivity) -> HostInstants:
    """HostInstants spread evenly over what the main thread does: long ranges have many lines in them."""
    host, window = account.host, account.window
    times = host.activity(host.main)[doing] & Intervals.one(window.start, window.end)
    total = times.total
    count = min(total, _SAMPLES)
    before = ((np.arange(count) + 0.5) * total / max(count, 1)).astype(np.int64)
    summed = np.concatenate(([0], np.cumsum(times.end - times.start)))
    row = np.searchsorted(summed, before, side="right") - 1
    moments = times.start[row] + before - summed[row]
    thread = np.full(count, UNKNOWN if host.main is None else host.main)
    # Batches are made where the fetch leads; who asks for one does not make it.
    since = _fetches_around(host, thread, moments) if doing == HostActivity.LOADING else None
    return HostInstants(thread, moments, np.full(count, total / max(count, 1)), since=since)


def _fetches_around(host: Host, thread: Int64s, moments: Int64s) -> Int64s:
    """When the outermost fetch of a batch that each moment is in began."""
    ranges = host.trace.host
    fetches = nest(ranges, host.fetching)
    around = fetches.outermost(len(ranges))[fetches.innermost(thread, moments)]
    began: Int64s = ranges.start[around]
    return began


def _of_host(account: RankAccount, operators: Nesting) -> Iterator[tuple[str, HostInstants]]:
    """A job on the CPU: what operators take themselves, dispatch and arithmetic apart."""
    host, rows = account.trace.host, operators.rows
    start = host.start[rows]
    inside = operators.inside(account.window.start, account.window.end)
    of, begin, end = find_arithmetic(account.trace, operators)
    computing = np.bincount(of, weights=end - begin, minlength=len(rows)).astype(np.float64)
    dispatch = operators.own_time() - computing
    for cause, amounts in ((MODEL_COMPUTE, computing * inside), (PYTHON_OVERHEAD, dispatch * inside)):
        yield cause, HostInstants(host.thread[rows], start, amounts, rows)
    for reason in (IdleReason.LOADING, IdleReason.SAVING, IdleReason.OWN_CODE):
        yield CAUSE_OF_IDLENESS[reason], _of_its_kind(account, reason)


def annotation_around_unexplained(account: RankAccount) -> str:
    """The innermost annotation (``record_function``, or PyTorch's own) around most of the time that shows nothing.

    Returns:
        Its name; "" where there is none, or no such time.
    """
    trace, main = account.trace, account.host.main
    unseen = [gaps.reasons[IdleReason.UNEXPLAINED] + gaps.reasons[IdleReason.OUTSIDE] for gaps in account.gaps]
    total = sum(float(amounts.sum()) for amounts in unseen)
    if main is None or not total:
        return ""
    steps = np.array([name.startswith(profiler.STEP_PREFIX) for name in trace.names])
    marks = nest(trace.host, (trace.host.kind == HostKind.ANNOTATION) & ~trace.named(steps, trace.host.name))
    taken = np.zeros(len(trace.names))
    for gaps, amounts in zip(account.gaps, unseen, strict=True):
        middle = gaps.until - (gaps.end - gaps.start) // 2
        row = marks.innermost(np.full(len(middle), main), middle)
        inside = row != NONE
        np.add.at(taken, trace.host.name[row[inside]], amounts[inside])
    longest = int(taken.argmax())
    return trace.names[longest] if taken[longest] >= thresholds.EXPLAINED_WAIT * total else ""
