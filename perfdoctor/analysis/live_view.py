"""What a live view shows, from the last seconds of a recording that may still be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfdoctor.analysis.from_recording import examine_job
from perfdoctor.analysis.live_resources import Rates, devices, gpus, host, links
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge.calls import NETWORK_TARGETS
from perfdoctor.messages import Text, say
from perfdoctor.recording.clock import NS_PER_S, now_ns, seconds
from perfdoctor.recording.follow import Follower
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CodeSample, CountedCall, Mark, ProcessSeen, Symbol, ThreadSample, Unavailable
from perfdoctor.results.view import PathView, ProcessView, ThreadActivity, ThreadView, View
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.counted_steps import step_ends
from perfdoctor.timeline.job import JobTimeline, find_serving
from perfdoctor.timeline.processes import Process, assign_roles
from perfdoctor.timeline.stacks import CodeSeen

# States of threads are means over this much time, and steps are counted in it.
THREADS_NS = 3 * NS_PER_S
# The slowest readings come every 5 s, and every 10 s where the budget is short.
READINGS_NS = 12 * NS_PER_S
# After so long `attach` gives its verdict; docs/accuracy.md says how often it is right.
ENOUGH_S = 15.0
# A diagnosis is about so much of the recording.
DIAGNOSED_NS = 30 * NS_PER_S
# Of less, as at the beginning of a recording that is gone through, nothing can be said.
_LEAST_NS = NS_PER_S
# A recorder commits every 0.5 s.
_SILENT_NS = 5 * NS_PER_S
# The first stacks come after 4 s, and some later where perfdoctor was started on a busy machine.
_FIRST_STACKS_NS = 10 * NS_PER_S
# Judgement: as many as a terminal has room for.
_THREADS_SHOWN, _PATHS_SHOWN = 16, 8


@dataclass(frozen=True)
class Examined:
    """What is known of a job besides its last seconds.

    Attributes:
        diagnosis: None before the first one.
        code_seen: by process, what its main thread was seen in: it says who trains.
        marked: processes that marked steps of their training.
        span: what the diagnosis is about, in ns.
    """

    diagnosis: Diagnosis | None = None
    code_seen: Mapping[int, CodeSeen] = field(default_factory=dict)
    marked: frozenset[int] = frozenset()
    span: tuple[int, int] = (0, 0)


def span_to_examine(follower: Follower, at_ns: int) -> tuple[int, int] | None:
    """What a diagnosis at an instant is to be about, in ns; None while that is hardly anything, or stacks are awaited.

    Stacks come in pieces of some seconds. What follows the last of them could not be attributed yet, so it ends where
    the stacks of all processes that may train do, and at the instant itself where there are none.
    """
    if _awaits_stacks(follower, at_ns):
        return None
    forked = {process.pid for process in follower.kept(ProcessSeen) if process.forked}
    until = [end for pid, end in follower.stacks_until().items() if pid not in forked]
    end_ns = min([at_ns, *(end for end in until if end > at_ns - DIAGNOSED_NS)])
    begin_ns = max(follower.start_ns, end_ns - DIAGNOSED_NS)
    return (begin_ns, end_ns) if end_ns - begin_ns >= _LEAST_NS else None


def _awaits_stacks(follower: Follower, at_ns: int) -> bool:
    """Whether no stacks have come yet, and some may still come."""
    if at_ns - follower.start_ns > _FIRST_STACKS_NS or follower.stacks_until():
        return False
    return all(row.probe != "stacks" for row in follower.kept(Unavailable))


def examine_span(follower: Follower, span: tuple[int, int]) -> Examined:
    """The diagnosis of a stretch of a recording."""
    return _examined(JobTimeline(follower.part(*span)))


def examine_whole(recording: Recording) -> Examined:
    """The diagnosis of a recording that is finished, as ``perfdoctor report`` makes it."""
    return _examined(JobTimeline(recording))


def _examined(job: JobTimeline) -> Examined:
    return Examined(examine_job(job, drawn=False), job.stacks.code_seen(), frozenset(job.steps), job.span)


def view_at(follower: Follower, at_ns: int, examined: Examined, *, live: bool) -> View:
    """The view of a recording at an instant.

    Args:
        follower: has read on.
        at_ns: the instant.
        examined: what is known besides.
        live: somebody still writes the recording.
    """
    recording = follower.part(max(follower.start_ns, at_ns - READINGS_NS), at_ns)
    since_ns = at_ns - THREADS_NS
    samples = follower.stretch(ThreadSample, since_ns, at_ns)
    paces = _paces(follower.stretch(Mark, since_ns, at_ns), follower.stretch(CountedCall, since_ns, at_ns))
    job = _Moment(recording, samples, paces, examined)
    processes = tuple(job.processes())
    rates = job.rates
    silent_ns = 0 if follower.stopped else now_ns() - follower.grown_ns
    return View(
        at_s=seconds(at_ns - follower.start_ns),
        length_s=seconds(follower.newest_ns - follower.start_ns),
        live=live,
        silent_s=seconds(silent_ns) if silent_ns > _SILENT_NS else 0.0,
        pid=int(follower.meta.get("asked_pid", 0)),
        host_name=follower.meta.get("host", ""),
        processes=processes,
        host=host(rates, (process.memory for process in processes), job.delayed()),
        devices=tuple(devices(rates)),
        paths=tuple(job.paths()),
        links=tuple(links(rates)),
        on_network=job.on_network(),
        gpus=tuple(gpus(rates)),
        diagnosis=examined.diagnosis,
        diagnosed_s=(seconds(examined.span[0] - follower.start_ns), seconds(examined.span[1] - follower.start_ns)),
        missing=tuple(_missing(follower, at_ns, live=live)),
    )


def _missing(follower: Follower, at_ns: int, *, live: bool) -> Iterator[Text]:
    """What a surer verdict waits for."""
    watched_s = seconds(at_ns - follower.start_ns)
    if not live:
        return
    if _awaits_stacks(follower, at_ns):
        yield say("live.first_stacks")
    if watched_s < ENOUGH_S:
        yield say("live.watched_briefly", seconds=watched_s, enough=ENOUGH_S)
    if not follower.kept(Symbol) and follower.stretch(CodeSample, at_ns - NS_PER_S, at_ns):
        yield say("live.names_of_functions")


@dataclass(frozen=True)
class _Paces:
    """How many steps processes make per second.

    Attributes:
        marked: by process that marks its steps; None while none ends.
        counted: by process of which they are counted from outside.
    """

    marked: Mapping[int, float | None]
    counted: Mapping[int, float | None]

    def of(self, pid: int) -> float | None:
        """Of a process; None where that is not known."""
        return self.marked[pid] if pid in self.marked else self.counted.get(pid)


class _Moment:
    """The job's processes at an instant, from samples of the seconds before it."""

    def __init__(
        self, recording: Recording, samples: Sequence[ThreadSample], paces: _Paces, examined: Examined
    ) -> None:
        self._recording, self._at_ns = recording, recording.end_ns
        self.rates = Rates(recording)
        self._samples: dict[int, list[ThreadSample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.tid, []).append(sample)
        self._threads: dict[int, list[ThreadView]] = {}
        for tid, found in self._samples.items():
            if (seen := recording.threads.get(tid)) is not None:
                self._threads.setdefault(seen.pid, []).append(_thread(tid, seen.name, found))
        self._paces = paces
        self._gpus = _gpu_memory(self.rates)
        self._roles = assign_roles(
            recording.processes,
            recording.ended_ns,
            examined.code_seen,
            recording.threads.values(),
            examined.marked.union(paces.marked),
            find_serving(recording.facts),
        )

    def processes(self) -> Iterator[ProcessView]:
        """Those that are alive: trainers by rank, each followed by whom it has, then the rest."""
        alive = [process for process in self._roles.by_pid.values() if process.alive_at(self._at_ns)]
        ranks = {trainer.pid: trainer.rank or 0 for trainer in self._roles.trainers}

        def order(process: Process) -> tuple[bool, int, bool, bool, int]:
            of = process.pid if process.role == "trainer" else process.trainer_pid
            return of not in ranks, ranks.get(of, 0), process.role != "trainer", process.role != "worker", process.pid

        for process in sorted(alive, key=order):
            yield self._process(process, ranks)

    def _process(self, process: Process, ranks: Mapping[int, int]) -> ProcessView:
        pid, subject = process.pid, f"pid:{process.pid}"
        threads = sorted(self._threads.get(pid, ()), key=lambda one: (-(one.cores or 0.0), one.tid))
        main = next((thread for thread in threads if thread.tid == pid), None)
        on_gpus = self._gpus.get(pid, {})
        count = self.rates.level(subject, "threads")
        of = pid if process.role == "trainer" else process.trainer_pid
        return ProcessView(
            pid=pid,
            role=process.role,
            rank=ranks.get(of) if len(ranks) > 1 else None,
            command=self._recording.processes[pid].command,
            age_s=seconds(self._at_ns - process.started_ns),
            main=main or ThreadView(pid, "", ThreadActivity.UNSEEN, "", "", None, None, None),
            threads=tuple(threads[:_THREADS_SHOWN]),
            thread_count=None if count is None else int(count),
            cores=self.rates.sum(subject, "user_seconds_total", "system_seconds_total"),
            memory=self.rates.level(subject, "rss_bytes"),
            shared_memory=self.rates.level(subject, "shared_memory_bytes"),
            read=self.rates.rate(subject, "storage_read_bytes_total"),
            write=self.rates.rate(subject, "storage_write_bytes_total"),
            called=self.rates.rate(subject, "read_call_bytes_total"),
            faults=self.rates.rate(subject, "major_faults_total"),
            gpus=tuple(on_gpus),
            gpu_memory=sum(on_gpus.values()) if on_gpus else None,
            steps=self._paces.of(pid),
        )

    def delayed(self) -> float:
        """Threads of the job that wait for a core at a time."""
        return sum(thread.delay or 0.0 for threads in self._threads.values() for thread in threads)

    def on_network(self) -> float:
        """Threads of the job that wait for a connection at a time."""
        return sum(
            _fraction(found, lambda sample: sample.state == "S" and sample.target.startswith(NETWORK_TARGETS))
            for found in self._samples.values()
        )

    def paths(self) -> Iterator[PathView]:
        """Files that most threads are in a system call on."""
        threads, blocked, calls = Amounts[str](), Amounts[str](), dict[str, Counter[str]]()
        for found in self._samples.values():
            for sample in found:
                kind, _, path = sample.target.partition(":")
                if kind != "file" or sample.state not in "SDR" or not sample.syscall:
                    continue
                part = 1 / len(found)
                threads[path] += part
                blocked[path] += part * (sample.state == "D")
                calls.setdefault(path, Counter())[sample.syscall] += 1
        for path in sorted(threads, key=lambda one: -threads[one])[:_PATHS_SHOWN]:
            yield PathView(path, threads[path], blocked[path], calls[path].most_common(1)[0][0])


def _thread(tid: int, name: str, samples: Sequence[ThreadSample]) -> ThreadView:
    """A thread by its samples, in order of time, at least one."""
    first, last = samples[0], samples[-1]
    span_ns = last.time_ns - first.time_ns
    cores = delay = None
    if span_ns > 0 and last.state not in "XZ":
        cores, delay = (last.run_ns - first.run_ns) / span_ns, (last.delay_ns - first.delay_ns) / span_ns
    state = _STATES.get(last.state, ThreadActivity.WAITING)
    if state is ThreadActivity.RUNNING and delay is not None and delay > (cores or 0.0):
        state = ThreadActivity.DELAYED
    if last.syscall == "fault":
        state = ThreadActivity.BLOCKED
    blocked = _fraction(samples, lambda sample: sample.state == "D" or sample.syscall == "fault")
    return ThreadView(tid, name, state, last.syscall or "", last.target, cores, delay, blocked)


_STATES = {
    "R": ThreadActivity.RUNNING,
    "S": ThreadActivity.WAITING,
    "I": ThreadActivity.WAITING,
    "D": ThreadActivity.BLOCKED,
    "T": ThreadActivity.STOPPED,
    "t": ThreadActivity.STOPPED,
    "Z": ThreadActivity.ENDED,
    "X": ThreadActivity.ENDED,
}


def _fraction(samples: Sequence[ThreadSample], holds: Callable[[ThreadSample], bool]) -> float:
    return sum(map(holds, samples)) / len(samples)


def _gpu_memory(rates: Rates) -> dict[int, dict[str, float]]:
    """By process of the job and GPU, bytes that it has there."""
    found: dict[int, dict[str, float]] = {}
    for subject in rates.subjects("gpu:"):
        gpu, _, pid = subject.partition("/pid:")
        if pid:
            found.setdefault(int(pid), {})[gpu] = rates.level(subject, "memory_bytes") or 0.0
    return found


def _steps_per_second(marks: Iterable[Mark]) -> dict[int, float | None]:
    """By process that marks its steps, how many it makes per second; None while none ends."""
    ended: dict[int, list[int]] = {}
    for mark in marks:
        ends = ended.setdefault(mark.pid, [])
        if mark.what == "step" and mark.edge == "point":
            ends.append(mark.time_ns)
    return {pid: _rate(ends) for pid, ends in ended.items()}


def _paces(marks: Iterable[Mark], calls: Iterable[CountedCall]) -> _Paces:
    return _Paces(_steps_per_second(marks), {pid: _rate(ends) for pid, ends in step_ends(calls).items()})


def _rate(times_ns: Sequence[int]) -> float | None:
    """How often per second something happened, by when it did."""
    return (len(times_ns) - 1) / seconds(times_ns[-1] - times_ns[0]) if len(times_ns) > 1 else None
