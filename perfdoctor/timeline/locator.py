"""Where in the code a thread is at an instant: the sampled stack that fits what else is known of it, and its marks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import AWAITS_OTHERS, CHANNELS, RUNS_PROCESSES, SLEEPS
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import StackMissed
from perfdoctor.timeline.code_location import (
    TRAINING_PHASES,
    UNKNOWN,
    CodeLocation,
    agrees,
    begins_at,
    marked_location,
)
from perfdoctor.timeline.evaluation import APART, evaluation_spans
from perfdoctor.timeline.gil import Gil
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.marks import Segment
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.readings import Counters
from perfdoctor.timeline.stack_states import SAME_INSTANT_NS, StackStates
from perfdoctor.timeline.stacks import STACK_REACH_NS, FailedSamples, Stacks, StackSeries, find_failed
from perfdoctor.timeline.steps import Steps
from perfdoctor.timeline.threads import JobThreads, ThreadSeries, ThreadState

Spans = Sequence[tuple[int, int]]


def is_within(spans: Spans, time_ns: int) -> bool:
    """Whether an instant lies in one of them: at its begin or later, and before its end."""
    number = bisect_right(spans, time_ns, key=lambda span: span[0]) - 1
    return number >= 0 and time_ns < spans[number][1]


class Locator:
    """Answers for one recording.

    Args:
        stacks: the job's Python stacks.
        missed: stack samples that failed.
        code: samples of machine code.
        steps: by process, what it marked from inside.
        gil: the processes' interpreters.
        threads: the states of the job's threads.
        in_collectives: processes that may sleep in collectives, anywhere in a step; on GPUs only streams wait for them.
        hardly_copying: processes that run next to never where they wait for what others send.
    """

    def __init__(
        self,
        stacks: Stacks,
        missed: Sequence[StackMissed],
        code: CodeSamples,
        steps: Mapping[int, Steps],
        gil: Gil,
        *,
        threads: JobThreads,
        in_collectives: frozenset[int],
        hardly_copying: frozenset[int],
    ) -> None:
        self._stacks, self._missed, self._code, self._steps, self._gil = stacks, missed, code, steps, gil
        self._threads, self._in_collectives, self._hardly_copying = threads, in_collectives, hardly_copying
        self._main: dict[int, StackSeries | None] = {}
        self._working: dict[int, StackSeries | None] = {}
        self._failed: dict[int, FailedSamples | None] = {}
        self._evaluations: dict[int, Spans] = {}

    def locate(self, pid: int, time_ns: int, state: ThreadState, *, in_c: bool | None = None) -> CodeLocation:
        """Where in the code a process's main thread is.

        Stacks and states are sampled by different programs, so the nearest stack that *fits* the state is taken: a
        thread that sleeps in a read cannot be where the stack shows arithmetic, one that runs is in no blocking call,
        and nowhere is it in a state in which threads are hardly ever there. One that holds the GIL, as who runs Python
        does, is not in autograd's engine; and where the nearest stack sample failed, Python code ran, unless it is
        known that other code did. Where the process marked its phases from inside, the phase is that of its mark, and
        the stack only adds what fits that.

        Args:
            pid: the process.
            time_ns: the instant.
            state: of its main thread then.
            in_c: whether it ran other code than Python's interpreter; None where that is not known.
        """
        segment = self._segment_at(pid, time_ns)
        number = self._stack_at(pid, time_ns, state, segment, in_c=in_c)
        location = UNKNOWN if number is None else self._stacks.locations[number]
        if segment is None:
            return self._with_evaluation(pid, time_ns, location)
        marked = marked_location(segment.phase, segment.detail, location, marked=segment.marked)
        evaluates = self._steps[pid].evaluates_at(time_ns)
        return replace(marked, in_evaluation=evaluates, evaluates=evaluates and marked.phase not in APART)

    def distance_ns(self, pid: int, time_ns: int) -> float:
        """How far from an instant it was seen where a main thread is; 0 where it marked that, infinite if not."""
        segment = self._segment_at(pid, time_ns)
        if segment is not None and segment.marked:
            return 0.0
        series = self._of_main(pid)
        return math.inf if series is None else series.distance_ns(time_ns)

    def stack_at(self, pid: int, time_ns: int, state: ThreadState) -> tuple[tuple[Frame, ...], CodeLocation] | None:
        """The stack of a process's main thread, outermost call first, and its location; None if there is none near."""
        number = self._stack_at(pid, time_ns, state, self._segment_at(pid, time_ns))
        return None if number is None else (self._stacks.frames[number], self._stacks.locations[number])

    def is_known(self, pid: int) -> bool:
        """Whether it was seen at all where in its code a process is: by stacks of its main thread, or by marks."""
        return pid in self._steps or self._of_main(pid) is not None

    def line_of(self, thread: ThreadSeries, time_ns: int) -> str:
        """Where in the job's own code a running thread (not the main one) was near an instant; "" if not seen.

        Of a thread in which no code of the job's own was seen, where it runs that of a library.
        """
        numbers = list(self._numbers_near(thread, time_ns))
        own = next((line for number in numbers if (line := self._stacks.locations[number].line)), "")
        return own or next((line for number in numbers if (line := begins_at(self._stacks.frames[number]))), "")

    def near(self, thread: ThreadSeries, time_ns: int) -> Iterator[CodeLocation]:
        """Where in the code a running thread (not the main one) was near an instant, nearest first."""
        return (self._stacks.locations[number] for number in self._numbers_near(thread, time_ns))

    def _numbers_near(self, thread: ThreadSeries, time_ns: int) -> Iterator[int]:
        """The stacks of a running thread near an instant, nearest first."""
        series = self._stacks.of_other(thread.pid, self._gil.ident(thread.tid))
        for _, number in series.near(time_ns) if series else ():
            if not self._stacks.locations[number].only_waits:
                yield number

    def has_python_threads(self, pid: int) -> bool:
        """Whether stacks of other Python threads than the main one were seen."""
        return len(self._stacks.of_others(pid)) > 0

    def changes_per_s(self, pid: int) -> float:
        """How often per second a process's main thread was seen in another stack than before."""
        series = self._of_main(pid)
        if series is None or len(series.times_ns) < 2:
            return 0.0
        return (len(series.times_ns) - 1) * NS_PER_S / float(series.times_ns[-1] - series.times_ns[0])

    def _stack_at(
        self, pid: int, time_ns: int, state: ThreadState, segment: Segment | None, *, in_c: bool | None = None
    ) -> int | None:
        """Index of the stack that goes with the state of a main thread; None if there is none near."""
        series = self._at_work(pid) if state.is_runnable and pid in self._hardly_copying else self._of_main(pid)
        if series is None:
            return None
        wants_gil = state.syscall == "futex" and self._gil.is_awaited(pid, time_ns)
        nearest: int | None = None
        for near in self._near(series, time_ns, may_have_failed=state.is_runnable and not in_c):
            fitting: list[tuple[int, int]] = []
            for distance_ns, number in near:
                location = self._stacks.locations[number]
                if segment is not None and not agrees(location, segment.phase, marked=segment.marked):
                    continue
                nearest = number if nearest is None else nearest
                if in_c is False and location.detail == "engine":
                    continue
                anywhere = wants_gil and not location.only_waits  # the GIL is waited for
                if anywhere or _fits(location, state, self._sleeps_in(pid)):
                    fitting.append((distance_ns, number))
            if fitting:
                return self._likeliest(fitting, pid, time_ns, state)
        return nearest

    def _likeliest(self, near: list[tuple[int, int]], pid: int, time_ns: int, state: ThreadState) -> int:
        """Of stacks with their distances the one with the least distance over how likely the state is at it.

        Those of the same instant are told apart by likelihood alone.
        """
        if len(near) == 1:
            return near[0][1]
        collecting = state.is_runnable and self._gil.is_collecting(pid, time_ns)
        _, number = min(
            (
                (distance_ns + SAME_INSTANT_NS) / self._seen_states.likelihood(number, state, collecting=collecting),
                number,
            )
            for distance_ns, number in near
        )
        return number

    @cached_property
    def _seen_states(self) -> StackStates:
        """In which states main threads were seen at which stack."""
        mains = [(self._of_main(pid), self._threads.main(pid)) for pid in self._threads.pids]
        both = ((stacks, states) for stacks, states in mains if stacks is not None and states is not None)
        return StackStates(both, self._gil.is_collecting)

    def _near(self, series: StackSeries, time_ns: int, *, may_have_failed: bool) -> Iterator[list[tuple[int, int]]]:
        """Stacks of a main thread near an instant with their distances in ns, the nearest first.

        Where a failed sample is nearer, those that stand in for it come first.
        """
        near = series.near(time_ns)
        if may_have_failed:
            if series.pid not in self._failed:
                self._failed[series.pid] = find_failed(series, self._missed, self._code)
            failed = self._failed[series.pid]
            if failed is not None and failed.is_nearer(time_ns, near[0][0] if near else STACK_REACH_NS):
                yield failed.stand_ins.near(time_ns)
        yield near

    def _sleeps_in(self, pid: int) -> frozenset[str]:
        """Phases in which a main thread may sleep in a futex without a frame that waits."""
        return TRAINING_PHASES if pid in self._in_collectives else frozenset()

    def _of_main(self, pid: int) -> StackSeries | None:
        """The main thread's stacks of a process, searched for once."""
        if pid not in self._main:
            self._main[pid] = self._stacks.of_main(pid)
        return self._main[pid]

    def _at_work(self, pid: int) -> StackSeries | None:
        """The main thread's stacks without those in which it waits, each until the next; all where there are no others.

        A process that waits most of the time may have been sampled in its work long before an instant.
        """
        if pid not in self._working:
            self._working[pid] = series = self._of_main(pid)
            if series is not None:
                waits = [number >= 0 and self._stacks.locations[number].waits for number in series.stacks.tolist()]
                kept = ~np.array(waits, dtype=bool)
                if kept.any():
                    self._working[pid] = replace(series, times_ns=series.times_ns[kept], stacks=series.stacks[kept])
        return self._working[pid]

    def _with_evaluation(self, pid: int, time_ns: int, location: CodeLocation) -> CodeLocation:
        """The location, marked where it lies in a time without training: a pass may look like one of that."""
        if location.in_evaluation:
            return location
        if pid not in self._evaluations:
            series, stacks = self._of_main(pid), self._stacks
            found = [] if series is None else evaluation_spans(series, stacks.frames, stacks.locations)
            self._evaluations[pid] = found
        if not is_within(self._evaluations[pid], time_ns):
            return location
        return replace(location, in_evaluation=True, evaluates=location.phase in ("forward", "loss"))

    def _segment_at(self, pid: int, time_ns: int) -> Segment | None:
        """The part of a step that a process marked at an instant; None where it marked nothing."""
        steps = self._steps.get(pid)
        return None if steps is None else steps.at(time_ns)


def _fits(location: CodeLocation, state: ThreadState, sleeps_in: frozenset[str]) -> bool:
    if state.state == "R":
        return not location.only_waits or location.runs_program  # to start and to end a program is work, time and again
    if state.syscall in RUNS_PROCESSES:
        return location.waits or location.runs_program or location.phase not in TRAINING_PHASES
    if state.syscall in AWAITS_OTHERS and state.target.startswith(CHANNELS):
        # What is logged or saved may go through a pipe or a connection, by a call of its own that waits.
        return location.waits or location.phase in ("logging", "saving")
    if state.syscall == "futex":
        # Queues and locks wait in frames of their own, collectives in whatever started them.
        return location.waits or location.phase in sleeps_in
    if state.syscall in SLEEPS:
        return location.phase not in TRAINING_PHASES
    return not (state.is_blocked and location.only_waits)


_COPIES = ("read", "write")


def hardly_copying(processes: Iterable[Process], threads: JobThreads, counters: Counters) -> frozenset[int]:
    """Those whose read and write calls can take no more than a small part of their main thread's CPU time.

    A process that waits for its next request most of the time has nearly all its stacks in that wait, so the stack
    nearest to an instant in which it runs is one of waiting, although it does its work.

    Args:
        processes: of the job.
        threads: their threads.
        counters: what was counted of them; those of which nothing was are not in the answer.
    """
    return frozenset(one.pid for one in processes if _copies_little(one.pid, threads, counters))


def _copies_little(pid: int, threads: JobThreads, counters: Counters) -> bool:
    main, subject = threads.main(pid), f"pid:{pid}"
    if main is None or len(main.counted_ns) < 2:
        return False
    ran_s = float(main.run_ns[-1] - main.run_ns[0]) / NS_PER_S
    calls = [counters.get(subject, f"{way}_calls_total") for way in _COPIES]
    if any(one is None for one in calls) or ran_s <= 0:
        return False
    called = sum(counters.growth(subject, f"{way}_calls_total") for way in _COPIES)
    copied = sum(counters.growth(subject, f"{way}_call_bytes_total") for way in _COPIES)
    most_s = called * thresholds.SECONDS_PER_COPY + copied / thresholds.COPIED_BYTES_PER_S
    return most_s < thresholds.HARDLY_COPIES * ran_s
