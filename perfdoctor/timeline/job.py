"""The whole job at any instant: threads, stacks, interpreters and the CPU, put together from one recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from perfdoctor.diagnosis import BACKWARD_PASSES
from perfdoctor.recording.own_source import (
    HowWritten,
    SourceCall,
    SourceLine,
    SourceLoop,
    SourceOnce,
    SourceReadOut,
    SourceResult,
    SourceRounds,
    SourceState,
)
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    CHANNEL,
    SERVES,
    CountedCall,
    FlightDump,
    Profile,
    PythonThread,
    StackMissed,
    TrialSeen,
    WaitSeen,
)
from perfdoctor.timeline.affinity import Affinity
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.contention import CpuContention
from perfdoctor.timeline.counted_steps import read_counted
from perfdoctor.timeline.gil import Gil, InterpreterSamples
from perfdoctor.timeline.gpus import Gpus
from perfdoctor.timeline.locator import Locator, hardly_copying
from perfdoctor.timeline.locks import Locks
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.marks import read_marks
from perfdoctor.timeline.processes import Process, assign_roles
from perfdoctor.timeline.readings import Readings
from perfdoctor.timeline.stacks import Stacks
from perfdoctor.timeline.steps import Steps
from perfdoctor.timeline.storage import StorageWork
from perfdoctor.timeline.thread_kinds import ThreadKinds
from perfdoctor.timeline.threads import JobThreads, ThreadState, read_threads
from perfdoctor.timeline.training import met_ns, training_span, training_threads


@dataclass(frozen=True, slots=True)
class Observation(ThreadState):
    """The main thread of a process at one instant, fully known.

    Attributes:
        time_ns: the instant.
        process: whose main thread it is.
        location: where in the code it is.
        collecting: the process's garbage collector runs.
    """

    time_ns: int
    process: Process
    location: CodeLocation
    collecting: bool

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid


class JobTimeline:
    """What every thread of a job did, read from one recording.

    Attributes:
        recording: where it is read from.
        profiles: traces that torch.profiler wrote inside.
        trials: steps that were made on one batch in memory.
        source_lines: lines of the job's own source; likewise its calls and loops, and what it makes of what it changes.
        span: from when to when the job was watched, in ns.
        code: samples of main threads' machine code; autograd's threads count as them.
        threads: their states and counters.
        stacks: their Python stacks.
        waits: by process, what was found when its main thread's last long wait was looked into.
        flight_dumps: what torch's Flight Recorder held of ranks.
        steps: by process, what it marked from inside; empty for a job that was watched from outside only.
        counted: by process, what of its steps was counted from outside; it says how long they take, and no more.
        processes: who is who.
        gil: their interpreters.
        locator: where in the code a thread is.
        kinds: what each thread is to the trainer.
        gpus: which GPUs its processes compute on.
        readings: all that was read of host, GPUs and processes.
        counters: the same as counters.
        affinity: on which cores its threads may run.
        cores: on how many the job computes, of those that it may use.
        cpu: who is on the CPUs while a thread waits for one.
        minor_fault_s: CPU seconds that a page of fresh memory costs on its machine; 0 where that was not measured.
        storage: the kernel's work on storage in the name of running threads.
        locks: queues for locks of the job's own.
    """

    def __init__(self, recording: Recording) -> None:
        rows = recording.rows
        self.profiles, self.trials, self.flight_dumps = rows(Profile), rows(TrialSeen), rows(FlightDump)
        self.source_lines, self.source_calls, self.source_states = rows(SourceLine), rows(SourceCall), rows(SourceState)
        self.source_loops, self.source_rounds = rows(SourceLoop), rows(SourceRounds)
        self.recording, self.span = recording, (recording.start_ns, recording.end_ns)
        code, threads = CodeSamples.read(recording), read_threads(recording)
        self.readings = Readings(recording)
        self.counters = self.readings.counters
        self.gpus = Gpus(recording, self.readings, code, threads)
        self.stacks = Stacks.read(recording.stacks(), _how_written(recording))
        python_threads, interpreters = rows(PythonThread), InterpreterSamples.read(recording)
        main_threads = training_threads(self.stacks, python_threads, code, interpreters.holders, recording.threads)
        started = frozenset(thread.tid for thread in python_threads if thread.name)
        self.threads = JobThreads(threads, self.gpus.processes, main_threads, started)
        self.waits = {row.pid: row for row in rows(WaitSeen)}
        self.code = _of_main_threads(code, self.threads)
        marks = read_marks(recording)
        self.steps = {pid: Steps(found) for pid, found in marks.items()}
        self.counted = read_counted(rows(CountedCall))
        self.processes = assign_roles(
            recording.processes,
            recording.ended_ns,
            self.stacks.code_seen(),
            recording.threads.values(),
            frozenset(self.steps),
            find_serving(recording.facts),
        )
        self.gil = Gil(self.threads, python_threads, interpreters, self.span)
        distributed = self.processes.world_size > 1
        in_collectives = frozenset(self.threads.pids) - self.gpus.processes if distributed else frozenset()
        suppliers = [process for process in self.processes.by_pid.values() if process.role != "trainer"]
        self.locator = Locator(
            self.stacks,
            rows(StackMissed),
            self.code,
            self.steps,
            self.gil,
            threads=self.threads,
            in_collectives=in_collectives,
            hardly_copying=hardly_copying(suppliers, self.threads, self.counters),
        )
        self.kinds = ThreadKinds(self.threads, self.processes, self.gil, self.locator)
        self.affinity = Affinity(recording.facts, self.threads)
        usable = self.counters.median("usable_cores") or float(recording.meta.get("cores", "1"))
        self.cores = self.affinity.cores_of_job(usable)
        reachable = float(recording.meta.get("reachable_cores", "0"))
        shared = self.threads, self.processes, self.kinds, self.counters, self.affinity
        self.cpu = CpuContention(*shared, span=self.span, cores=self.cores, reachable=reachable)
        self.minor_fault_s = float(recording.facts.get(("host", "minor_fault_seconds"), 0.0))
        self.storage = StorageWork(self.counters, self.minor_fault_s)
        self.locks = Locks(self.threads, self.processes, self.locator, self.cores)
        self._training: dict[int, tuple[int, int]] = {}
        self._observed: dict[tuple[int, int], Observation] = {}

    def timed_steps(self, pid: int) -> Steps | None:
        """The steps of a process of which the lengths are known, as marked or else as counted; None without any."""
        marked, counted = self.steps.get(pid), self.counted.get(pid)
        if marked is not None and marked.all:
            return marked
        return None if counted is None else counted.steps

    def counts_passes(self, pid: int) -> bool:
        """Whether those are backward passes, of which it is not known how many make a step."""
        counted = self.counted.get(pid)
        return counted is not None and self.timed_steps(pid) is counted.steps and counted.unit == BACKWARD_PASSES

    def training_span(self, process: Process) -> tuple[int, int]:
        """From when to when a trainer was seen training, in ns; all of the time where its stacks do not show it.

        No rank trains before all have come.
        """
        if process.pid not in self._training:
            series = None if process.pid in self.steps else self.stacks.of_main(process.pid)
            begin, end = self.span
            if series is not None:
                begin, end = training_span(
                    series,
                    self.stacks.frames,
                    self.stacks.locations,
                    self.span,
                    started_ns=process.started_ns,
                    ended=process.ended_ns is not None,
                )
            self._training[process.pid] = (min(max(begin, self._met_ns), end), end)
        return self._training[process.pid]

    @cached_property
    def _met_ns(self) -> int:
        """When the last rank had come, of those that were seen to wait for others at first."""
        series = (self.stacks.of_main(one.pid) for one in self.processes.trainers if one.pid not in self.steps)
        return max(
            (met_ns(one, self.stacks.frames, self.span) for one in series if one is not None), default=self.span[0]
        )

    def observe(self, process: Process, time_ns: int) -> Observation:
        """The main thread of a process at an instant."""
        key = process.pid, time_ns
        if key not in self._observed:
            state = self.threads.main_at(*key)
            self._observed[key] = Observation(
                state.state,
                state.syscall,
                state.target,
                state.running,
                state.delayed,
                time_ns,
                process,
                self.locator.locate(*key, state),
                self._is_collecting(*key),
            )
        return self._observed[key]

    def _is_collecting(self, pid: int, time_ns: int) -> bool:
        """Marks from inside say exactly when the garbage collector runs; samples do elsewhere."""
        steps = self.steps.get(pid)
        if steps is not None and steps.at(time_ns) is not None:
            return steps.collecting_at(time_ns)
        return self.gil.is_collecting(pid, time_ns)


def _how_written(recording: Recording) -> HowWritten:
    rows = recording.rows
    return HowWritten(
        rows(SourceCall),
        rows(SourceLoop),
        rows(SourceRounds),
        rows(SourceOnce),
        rows(SourceReadOut),
        rows(SourceResult),
    )


def find_serving(facts: Mapping[tuple[str, str], str]) -> dict[int, tuple[int, str]]:
    """Processes outside of the job's tree: whom each serves, and through what."""
    served = {subject: int(value) for (subject, name), value in facts.items() if name == SERVES}
    return {int(subject[4:]): (pid, facts.get((subject, CHANNEL), "")) for subject, pid in served.items()}


def _of_main_threads(samples: CodeSamples, threads: JobThreads) -> CodeSamples:
    """Samples of main threads under the ids of their processes; autograd's threads do their work."""
    moved = {thread.tid: pid for pid in threads.pids for thread in threads.autograd(pid)}
    moved |= {tid: pid for pid in threads.pids if (tid := threads.main_tid(pid)) != pid}
    idle = {pid for pid in threads.pids if threads.main_tid(pid) != pid}
    return samples.renamed(moved, idle) if moved else samples
