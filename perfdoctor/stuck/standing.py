"""What the main thread of a process did over a span of time: the call and the code that it was in for most of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import FOR_THREADS, SLEEPS
from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.knowledge.halts import OF_POOLS, POOL_LOOPS
from perfdoctor.knowledge.threads import COLLECTIVES
from perfdoctor.recording.schema import FROZEN_IN, WaitSeen
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import UNKNOWN, CodeLocation, awaits_ranks_to_come
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stacks import StackSeries
from perfdoctor.timeline.threads import ThreadSeries

Span = tuple[int, int]
# Where in the job's own code a thread is: its calls, of the innermost only which function it is in.
Place = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A process over a span.

    Attributes:
        state: of its main thread for most of it, as in /proc; "" if that was not sampled.
        call: the system call that it was in; None if it ran, or that is unknown.
        target: what the call is about.
        stack: the Python stack that it was in for most of it, outermost call first; empty if none was seen.
        location: of that stack.
        wait: what was found when its wait was looked into; None if it was not.
        wakes: how often it went to sleep anew; None where that was not read.
        runnable: in which fraction of the samples it ran, or wanted to.
        frozen_in: the control group with which it is frozen, "" if it is not.
    """

    process: Process
    state: str
    call: str | None
    target: str
    stack: tuple[Frame, ...]
    location: CodeLocation
    wait: WaitSeen | None
    wakes: float | None
    runnable: float
    frozen_in: str = ""


def read_standing(job: JobTimeline, process: Process, wait: WaitSeen | None, span: Span) -> Standing:
    """What a process's main thread did in a span."""
    main = job.threads.main(process.pid)
    (state, call, target), runnable = _usual(main, span)
    number = _usual_stack(job, process.pid, span)
    stack = () if number is None else job.stacks.frames[number]
    location = UNKNOWN if number is None else job.stacks.locations[number]
    same = wait is not None and wait.call == call and job.threads.main_tid(process.pid) == process.pid
    wait = wait if same else None
    frozen_in = job.recording.facts.get((f"pid:{process.pid}", FROZEN_IN), "")
    return Standing(process, state, call, target, stack, location, wait, wakes(main, span), runnable, frozen_in)


def _usual(thread: ThreadSeries | None, span: Span) -> tuple[tuple[str, str | None, str], float]:
    """State, call and target of most samples, and the fraction of those in which it was runnable.

    It is as it was last where no sample lies in the span.
    """
    if thread is None or not len(thread.times_ns):
        return ("", None, ""), 0.0
    first, last = np.searchsorted(thread.times_ns, span)
    chosen = range(min(int(first), len(thread.times_ns) - 1), max(int(last), int(first) + 1))
    seen = [number for number in chosen if number < len(thread.times_ns)]
    every = Counter((thread.states[one], thread.syscalls[one], thread.targets[one]) for one in seen)
    return every.most_common(1)[0][0], sum(thread.states[one] == "R" for one in seen) / len(seen)


def _usual_stack(job: JobTimeline, pid: int, span: Span) -> int | None:
    """Index of the stack that the main thread was in for most of a span; None if none was seen."""
    amounts: Amounts[int] = Amounts()
    last: int | None = None
    if (series := job.stacks.of_main(pid)) is None:
        return None
    for start, lasted, number in series.entries():
        last = number
        if start + lasted > span[0] and start < span[1]:
            amounts[number] += lasted
    return max(amounts, key=lambda number: amounts[number]) if amounts else last


def wakes(thread: ThreadSeries | None, span: Span) -> float | None:
    """How often a thread gave up its CPU of its own accord in a span; None where that was not read twice."""
    if thread is None:
        return None
    inside = (thread.counted_ns >= span[0]) & (thread.counted_ns <= span[1]) & ~np.isnan(thread.voluntary)
    counts = thread.voluntary[inside]
    return float(counts[-1] - counts[0]) if len(counts) > 1 else None


def samples_in(thread: ThreadSeries, span: Span) -> range:
    """The numbers of a thread's samples in a span."""
    return range(*np.searchsorted(thread.times_ns, span).tolist())


def sleeps(standing: Standing) -> bool:
    """Whether a main thread sleeps for a time of its own choice."""
    chosen = standing.call in SLEEPS or (standing.wait is not None and standing.wait.ends_ns is not None)
    return chosen and standing.state == "S" and not standing.frozen_in


def waits_for_ranks(standing: Standing) -> bool:
    """Whether a main thread is in a call of torch.distributed in which ranks wait for each other."""
    return standing.location.detail == "collective" or awaits_ranks_to_come(standing.stack)


def has_task(standing: Standing) -> bool:
    """Whether a worker of a pool is in a task, and waits for none and hands no result over."""
    stack = standing.stack
    loops = (at for at, frame in enumerate(stack) if any(row.matches(frame) for row in POOL_LOOPS))
    begin = next(loops, len(stack))
    return any(not row.matches(frame) for frame in stack[begin + 1 :] for row in OF_POOLS)


def place(stack: tuple[Frame, ...]) -> Place:
    """Where in the job's own code a stack is; without any of its own, in which functions of libraries."""
    own = [frame for frame in stack if is_own(frame)]
    if not own:
        return tuple((frame.file, frame.function) for frame in stack)
    *outer, leaf = own
    return (*outer, (leaf.file, leaf.function))


def places(job: JobTimeline, pid: int, span: Span) -> Amounts[Place]:
    """For how long a main thread was seen at each place in a span, in ns."""
    return _places(job, job.stacks.of_main(pid), span)


def _places(job: JobTimeline, series: StackSeries | None, span: Span) -> Amounts[Place]:
    found: Amounts[Place] = Amounts()
    for number, lasted in _during(series, span):
        found[place(job.stacks.frames[number])] += lasted
    return found


def stacks_during(job: JobTimeline, pid: int, span: Span) -> Iterator[tuple[int, int]]:
    """The stacks in which a main thread was seen from a moment of a span on, and for how long each, in ns."""
    return _during(job.stacks.of_main(pid), span)


def _during(series: StackSeries | None, span: Span) -> Iterator[tuple[int, int]]:
    entries = () if series is None else series.entries()
    return ((number, lasted) for start, lasted, number in entries if span[0] <= start < span[1])


def at_one_place(found: Amounts[Place]) -> bool:
    """Whether stacks were seen, and nearly all at one place; some fail while they are read."""
    return bool(found) and max(found.values()) >= thresholds.SAME_PLACE * found.total


def threads_await_threads(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether all threads of a process but its main one wait for threads of it: then nobody else can end such a wait.

    Those of experiment trackers, and those that keep the connections of process groups, end no wait of the job's own.
    """
    main = job.threads.main_tid(pid)
    others = [tid for tid, seen in job.recording.threads.items() if seen.pid == pid and tid != main]
    sampled = [job.threads.by_tid[tid] for tid in others if tid in job.threads.by_tid]
    return len(sampled) == len(others) and all(
        _awaits_threads(thread, span) or keeps_connections(thread) or _tracks(job, thread) for thread in sampled
    )


def _awaits_threads(thread: ThreadSeries, span: Span) -> bool:
    """Whether a thread was in waits for others of its process only; as it was last if no sample lies in the span."""
    first, last = np.searchsorted(thread.times_ns, span)
    seen = range(first, last) if last > first else range(max(0, int(first) - 1), int(first))
    return len(seen) > 0 and all(thread.states[one] == "S" and thread.syscalls[one] in FOR_THREADS for one in seen)


def is_polling(job: JobTimeline, thread: ThreadSeries, span: Span) -> bool:
    """Whether a Python thread beside the main one sleeps most of the time, always at the same place: it polls."""
    series = job.stacks.of_other(thread.pid, job.gil.ident(thread.tid))
    seen = samples_in(thread, span)
    asleep = sum(thread.states[one] == "S" and thread.syscalls[one] in SLEEPS | FOR_THREADS for one in seen)
    if series is None or not seen or asleep < thresholds.POLLING_ASLEEP * len(seen):
        return False
    return at_one_place(_places(job, series, span))


def keeps_connections(thread: ThreadSeries) -> bool:
    """Whether a thread is one of a process group's own."""
    return thread.tid != thread.pid and thread.name.lower().startswith(COLLECTIVES)


def _tracks(job: JobTimeline, thread: ThreadSeries) -> bool:
    """Whether a thread runs nothing but code that logs."""
    series = job.stacks.of_other(thread.pid, job.gil.ident(thread.tid))
    seen = [] if series is None else [number for number in series.stacks.tolist() if number >= 0]
    return bool(seen) and all(job.stacks.locations[number].phase == "logging" for number in seen)
