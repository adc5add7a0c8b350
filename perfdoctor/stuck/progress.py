"""Whether anything moved a process on in a span of time: computing, data, new processes, another place in its code.

Whatever moves counts: a job in which only one process does a little is slow, and not stuck. What does not count: the
threads of process groups, which keep connections alive; a process that computes at one place of its own code all the
time, takes in nothing and keeps nothing (it may be in a loop that never ends); sleeps that are long, or that end time
and again in vain. What others get for a process, its threads or those that it has started, is asked for apart: it does
not bring on whoever waits for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import ON_SETS
from perfdoctor.knowledge.frames import is_import, is_own
from perfdoctor.knowledge.halts import GETS_DATA, TO_STORAGE
from perfdoctor.knowledge.threads import AUTOGRAD
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.stuck.gpu_waits import waits_for_gpu
from perfdoctor.stuck.standing import (
    Span,
    Standing,
    at_one_place,
    is_polling,
    keeps_connections,
    places,
    samples_in,
    sleeps,
    stacks_during,
    waits_for_ranks,
    wakes,
)
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.threads import ThreadSeries

_FROM_AND_TO_STORAGE = ("storage_read_bytes_total", "storage_write_bytes_total")
_BY_CALLS = ("read_call_bytes_total", "write_call_bytes_total")
_OF_DEVICES = ("read_bytes_total", "written_bytes_total", "server_read_bytes_total", "server_write_bytes_total")
_WHILE_IT_WAITS = ("sent_waiting_bytes_total",)
_SOCKETS = ("socket:tcp", "socket:udp", "socket:unix", "socket:other")


def moves(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether a process did anything in a span that brings it on.

    Args:
        job: the job.
        standing: the process over that span.
        span: from when to when, in ns.
    """
    signs = (_marks, _sleeps_for_moments, _gets_data, _uses_storage)
    if any(sign(job, standing, span) for sign in signs):
        return True
    wants_cpu = standing.runnable > thresholds.BUSY_THREAD
    works = wants_cpu or _computes(job, standing, span) or _goes_on(job, standing, span)
    # What a worker or another child computes is mostly one function's, whatever it is for.
    return works and not (standing.process.role == "trainer" and _in_vain(job, standing, span))


def is_helped(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether its other threads, or processes that it has started, got something in a span that may bring it on.

    What is read and written by system calls is theirs too: the kernel adds up that of all threads, and of each process
    that was started and has ended.

    Args:
        job: the job.
        standing: the process over that span.
        span: from when to when, in ns.
    """
    pid = standing.process.pid
    python = job.gil.python_threads(pid)
    others = (thread for thread in job.threads.besides_main(pid) if thread.tid in python)
    return (
        any(_woke_for_data(thread, span) for thread in others)
        or _transfers(job, pid, _BY_CALLS, span)
        or _has_started_any(job, pid, span)
    )


def _marks(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether a process marked anything of its steps from inside in a span."""
    steps = job.steps.get(standing.process.pid)
    return steps is not None and bool(steps.events.during(span[0], span[1] - 1))


def _in_vain(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether what a rank seems to do may be an endless loop, or the wait for its GPU."""
    return may_loop(job, standing, span) or (
        _of_others(job, standing.process.pid, span, but=AUTOGRAD) < thresholds.MOVING_CPU
        and waits_for_gpu(job, standing.process.pid, span)
    )


def may_loop(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether a process computes at one place of its own code, takes in nothing and keeps nothing.

    A call of a library that takes long is no such thing: the innermost frame is the job's own, and what runs is mostly
    the interpreter. Nor is a training loop, however much of each step one of its lines takes, nor one that sleeps.
    """
    pid = standing.process.pid
    if standing.runnable < thresholds.MOSTLY:
        return False
    if not standing.stack or not is_own(standing.stack[-1]) or is_import(standing.stack):
        return False
    if standing.location.phase != "other" or standing.location.detail == "compile" or _trains(job, pid, span):
        return False
    rss = job.counters.get(f"pid:{pid}", "rss_bytes")
    grown = 0.0 if rss is None else rss.growth(*span)
    return (
        at_one_place(places(job, pid, span))
        and _of_others(job, pid, span) < thresholds.MOVING_CPU
        and grown < thresholds.MOVING_MEMORY
        and _in_interpreter(job, pid, span)
    )


def _trains(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether its main thread was in a part of a step at any moment of a span."""
    return any(job.stacks.locations[number].phase in TRAINING_PHASES for number, _ in stacks_during(job, pid, span))


def _of_others(job: JobTimeline, pid: int, span: Span, *, but: str = "\0") -> float:
    """Cores that a process's threads use beside the main one, in their busiest second; without those named so."""
    threads = (thread for thread in job.threads.besides_main(pid) if not keeps_connections(thread))
    return sum(_peak(thread, span) for thread in threads if not thread.name.startswith(but))


def _in_interpreter(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether a main thread mostly ran Python's own code while it ran; True where too little of it was seen."""
    kinds = job.code.of(pid).within(span[0], span[1] - 1).kinds.tolist()
    return len(kinds) < thresholds.POLLS or kinds.count("interpreter") >= thresholds.LOOPS_IN_PYTHON * len(kinds)


def _computes(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether its threads used the CPU in any second of a span.

    What a thread does that only looks at something now and then is nothing to a main thread that never wakes up.
    """
    main = job.threads.main(standing.process.pid)
    threads = [thread for thread in job.threads.of(standing.process.pid) if not keeps_connections(thread)]
    if standing.wakes == 0:
        threads = [one for one in threads if one is main or not is_polling(job, one, span)]
    return sum(_peak(thread, span) for thread in threads) >= thresholds.MOVING_CPU


def _peak(thread: ThreadSeries, span: Span) -> float:
    """The most cores that a thread used in any second of a span."""
    if not thread.wanted_cpu:
        return 0.0
    each = ((start, min(start + NS_PER_S, span[1])) for start in range(*span, NS_PER_S))
    return max((thread.use(*second)[0] for second in each), default=0.0)


def _goes_on(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether its main thread was at different places of its code."""
    found = places(job, standing.process.pid, span)
    return bool(found) and not at_one_place(found)


def _transfers(job: JobTimeline, pid: int, counters: Iterable[str], span: Span) -> bool:
    """Whether more was read or written than heartbeats are, by some counters of a process."""
    most = thresholds.MOVING_BYTES_PER_S * seconds(span[1] - span[0])
    return any(job.counters.growth(f"pid:{pid}", name, *span) > most for name in counters)


def _uses_storage(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether it reads from storage or writes there, or what it waits for is on its way to or from a device."""
    if _transfers(job, standing.process.pid, _FROM_AND_TO_STORAGE, span):
        return True
    # What waits for storage is woken by each piece of it, but for writes that others carry out in its name.
    if standing.state == "D" and standing.wakes:
        return True
    if standing.call not in TO_STORAGE or not standing.target.startswith("file:"):
        return False
    most = thresholds.MOVING_BYTES_PER_S * seconds(span[1] - span[0])
    device = _device_of(job, standing.target)
    devices = [(subject, name) for name in _OF_DEVICES for subject in job.counters.subjects(name)]
    return any(
        job.counters.growth(subject, name, *span) > most for subject, name in devices if device in (None, subject)
    )


def _device_of(job: JobTimeline, target: str) -> str | None:
    """The device or server of a file, as readings name it; "" where it is on none; None where the file is not known."""
    path = target.partition(":")[2]
    if not target.startswith("file:/"):
        return None
    mounts = [subject for subject, name in job.recording.facts if name == "filesystem" and subject.startswith("mount:")]
    above = [one for one in mounts if f"{path}/".startswith(f"{one[6:].rstrip('/')}/")]
    if not above:
        return None
    mount = max(above, key=len)
    device = job.recording.facts.get((mount, "device"))
    return f"device:{device}" if device else mount if job.counters.get(mount, "server_read_bytes_total") else ""


def _has_started_any(job: JobTimeline, pid: int, span: Span) -> bool:
    """Whether processes that it has started began or ended in a span."""
    for child in job.processes.by_pid.values():
        times = (child.started_ns, child.ended_ns or 0)
        if child.parent_pid == pid and not child.channel and any(span[0] <= time < span[1] for time in times):
            return True
    return False


def _gets_data(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether a main thread that waits for data without a time limit woke up: then there was some.

    One that sends wakes up when there is room for a third of what its connection holds, so what goes away is read.
    """
    on_sockets = standing.call in ON_SETS and standing.target in _SOCKETS
    waits = (standing.call in GETS_DATA or on_sockets) and not waits_for_ranks(standing)
    sends = _transfers(job, standing.process.pid, _WHILE_IT_WAITS, span)
    return (waits and bool(standing.wakes)) or sends


def _woke_for_data(thread: ThreadSeries, span: Span) -> bool:
    inside = samples_in(thread, span)
    waits = [number for number in inside if thread.syscalls[number] in GETS_DATA]
    return 2 * len(waits) > len(inside) and thread.use(*span)[0] > 0


def _sleeps_for_moments(job: JobTimeline, standing: Standing, span: Span) -> bool:
    """Whether a main thread sleeps by its own wish, and will go on by itself before long.

    One that has slept often at the same place looks in vain for something that does not come, and torch sleeps
    between two attempts to reach the other ranks.
    """
    if not sleeps(standing) or waits_for_ranks(standing):
        return False
    ends_ns = None if standing.wait is None else standing.wait.ends_ns
    if ends_ns is not None and ends_ns - span[1] > thresholds.SHORT_SLEEP_S * NS_PER_S:
        return False
    often = wakes(job.threads.main(standing.process.pid), job.span)
    return often is None or often < thresholds.POLLS
