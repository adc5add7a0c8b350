"""What each thread of the job was doing at any instant, read from the samples of the threads probe."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import NETWORK_TARGETS, ON_CONNECTIONS, STARTS_PROCESSES
from perfdoctor.knowledge.threads import AUTOGRAD
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import TRACED_BY, ThreadSample
from perfdoctor.timeline.machine_code import stopped_s
from perfdoctor.timeline.stand_ins import drawn

Times = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]

# A thread's use of the CPU at an instant is its mean over this much time before and after it.
_AROUND_NS = int(thresholds.CPU_USE_AROUND_S * NS_PER_S)
# All threads are sampled within this time in a tick of the threads probe, and ticks are farther apart.
_TICK_NS = 6_000_000


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread at one instant, as the kernel shows it.

    Attributes:
        state: R, S, D …; X if it is gone or not yet there.
        syscall: the call it is in, None if it is running or that is unknown.
        target: what the call is about.
        running: fraction of the time around the instant that it was on a CPU.
        delayed: fraction that it was runnable, but not on a CPU (run-queue delay).
    """

    state: str
    syscall: str | None
    target: str
    running: float
    delayed: float

    @property
    def is_gone(self) -> bool:
        """It has ended, or was not yet started."""
        return self.state in _ENDED

    @property
    def is_runnable(self) -> bool:
        """On a CPU or waiting for one."""
        return self.state == "R"

    @property
    def is_busy(self) -> bool:
        """Runnable, and for longer than idle threads are now and then."""
        return self.is_runnable and self.running + self.delayed > thresholds.BUSY_THREAD

    @property
    def is_blocked(self) -> bool:
        """Blocked in the kernel, mostly on a disk; not on a process that it starts."""
        return self.syscall == "fault" or (self.state == "D" and self.syscall not in STARTS_PROCESSES)

    @property
    def delay_fraction(self) -> float:
        """Of the time that it wanted a CPU, the fraction that it did not get one."""
        wanted = self.running + self.delayed
        return self.delayed / wanted if wanted > 0 else 0.0

    @property
    def is_on_network(self) -> bool:
        """It waits for another host, or for a server on this one."""
        if self.target.startswith(NETWORK_TARGETS) or self.syscall == "connect":
            return True
        return self.target == "socket:other" and self.syscall in ON_CONNECTIONS


# Its tracer has stopped it (proc_pid_stat(5)).
TRACED = "t"
# Gone, or dead and not yet buried: its counters stand still, or can no longer be read.
_ENDED = ("X", "Z")
GONE = ThreadState("X", None, "", 0.0, 0.0)


class ThreadSamples(NamedTuple):
    """Samples of threads as columns, in order of time; their fields are those of a sample, NaN for None."""

    times_ns: Times
    states: Texts
    syscalls: Texts
    targets: Texts
    run_ns: Floats
    delay_ns: Floats
    voluntary: Floats
    minor_faults: Floats
    major_faults: Floats

    @classmethod
    def by_thread(cls, recording: Recording) -> dict[int, ThreadSamples]:
        """Those of a recording, by thread."""
        times, tids, *others = recording.columns(
            ThreadSample,
            *("time_ns", "tid", "state", "syscall", "target"),
            *("run_ns", "delay_ns", "voluntary", "minor_faults", "major_faults"),
        )
        texts = (np.array(column, dtype=object) for column in others[:3])
        counters = (np.array(column, dtype=np.float64) for column in others[3:])
        together = cls(np.array(times, dtype=np.int64), *texts, *counters)
        of = np.array(tids, dtype=np.int64)
        if _stopped_by_us(recording):
            stopped = together.states == TRACED
            together.states[stopped], together.syscalls[stopped], together.targets[stopped] = "R", None, ""
        order = np.argsort(of, kind="stable")
        threads, begins = np.unique(of[order], return_index=True)
        parts = dict(zip(threads.tolist(), np.split(order, begins)[1:], strict=True))
        return {tid: together.at(parts[tid]) for tid in dict.fromkeys(tids)}

    def at(self, numbers: npt.NDArray[np.int64]) -> ThreadSamples:
        """Some of them."""
        return ThreadSamples._make(column[numbers] for column in self)


def _stopped_by_us(recording: Recording) -> bool:
    """Whether nobody but perfdoctor stopped threads, and only running ones, to see where in machine code they are."""
    by_others = any(name == TRACED_BY for _, name in recording.facts)
    return stopped_s(recording) is not None and not by_others


class ThreadSeries:
    """All samples of one thread, in order of time. Between two samples the thread is as it was at the first.

    Attributes:
        counted_ns: when its counters were read, while it lived.
        run_ns: time on a CPU up to then.
        delay_ns: time runnable, but not on a CPU, up to then.
        voluntary: voluntary context switches up to then; NaN where not read.
        minor_faults: page faults that needed no device up to then; NaN where not read.
        major_faults: those that needed one; likewise.
    """

    def __init__(self, tid: int, pid: int, name: str, samples: ThreadSamples) -> None:
        self.tid, self.pid, self.name = tid, pid, name
        self.times_ns = samples.times_ns
        self.states: list[str] = samples.states.tolist()
        self.syscalls: list[str | None] = samples.syscalls.tolist()
        self.targets: list[str] = samples.targets.tolist()
        living = ~np.isin(samples.states, _ENDED)
        self.counted_ns = self.times_ns[living].astype(np.float64)
        self.run_ns, self.delay_ns = samples.run_ns[living], samples.delay_ns[living]
        self.voluntary = samples.voluntary[living]
        self.minor_faults, self.major_faults = samples.minor_faults[living], samples.major_faults[living]

    @property
    def was_runnable(self) -> bool:
        """Whether it was ever seen on a CPU or waiting for one."""
        return "R" in self.states

    @property
    def wanted_part(self) -> float:
        """Of the time between its first and last sample, what it spent on a CPU or waiting for one."""
        return sum(self.use(self._times[0], self._times[-1])) if self._times else 0.0

    @property
    def wanted_cpu(self) -> bool:
        """Whether it spent any time on a CPU or waiting for one."""
        return len(self.run_ns) > 1 and bool(self.run_ns[-1] > self.run_ns[0] or self.delay_ns[-1] > self.delay_ns[0])

    def lived_ns(self, end_ns: int) -> int:
        """How long it lived from its first sample on, until it was gone or watching ended."""
        if not self._times:
            return 0
        return (self._times[-1] if self.states[-1] in _ENDED else end_ns) - self._times[0]

    def at(self, time_ns: int) -> ThreadState:
        """The thread at an instant."""
        index = self._index(time_ns)
        if index < 0 or self.states[index] == "X":
            return GONE
        running, delayed = self.use(time_ns - _AROUND_NS, time_ns + _AROUND_NS)
        return ThreadState(self.states[index], self.syscalls[index], self.targets[index], running, delayed)

    def is_runnable_at(self, time_ns: int) -> bool:
        """Whether it is on a CPU or waiting for one at an instant, without looking up how much it used."""
        index = self._index(time_ns)
        return index >= 0 and self.states[index] == "R"

    def _index(self, time_ns: int) -> int:
        """The sample that shows an instant; -1 if it was before the first."""
        times = self._times
        index = bisect_right(times, time_ns) - 1
        after = index + 1
        if after < len(times) and times[after] - time_ns < _TICK_NS:
            # Sampled in the same tick as whoever is asked about, only a little later.
            index = after
        return index

    def with_stand_ins(self, others: Sequence[ThreadSeries]) -> ThreadSeries:
        """The same thread, as if it did itself what others do while it sleeps until they are through.

        Args:
            others: threads that carry out parts of its work, one at a time.
        """
        joined = copy(self)
        vars(joined).pop("_counted", None)  # it will count what they use, too
        joined.states, joined.syscalls, joined.targets = list(self.states), list(self.syscalls), list(self.targets)
        for index, time in enumerate(self.times_ns.tolist()):
            if self.states[index] != "S" or self.syscalls[index] not in (None, "futex"):
                continue
            for state in (other.at(time) for other in others):
                if not state.is_gone and (state.state != "S" or state.syscall not in (None, "futex")):
                    joined.states[index] = state.state
                    joined.syscalls[index], joined.targets[index] = state.syscall, state.target
        for other in others:
            if len(other.counted_ns):
                joined.run_ns = joined.run_ns + _since_first(other.counted_ns, other.run_ns, self.counted_ns)
                joined.delay_ns = joined.delay_ns + _since_first(other.counted_ns, other.delay_ns, self.counted_ns)
        return joined

    def use(self, from_ns: int, to_ns: int) -> tuple[float, float]:
        """Fractions of a span of time spent on a CPU and waiting for one."""
        if len(self.counted_ns) < 2:
            return 0.0, 0.0
        times, _, _ = self._counted
        begin, end = max(float(from_ns), times[0]), min(float(to_ns), times[-1])
        if end <= begin:
            return 0.0, 0.0
        (run, delay), (run_then, delay_then) = self._used(end), self._used(begin)
        return (run - run_then) / (end - begin), (delay - delay_then) / (end - begin)

    def _used(self, time_ns: float) -> tuple[float, float]:
        """Both counters at an instant between their first and their last reading, interpolated."""
        times, run, delay = self._counted
        after = min(bisect_right(times, time_ns), len(times) - 1)
        before = after - 1
        part = (time_ns - times[before]) / ((times[after] - times[before]) or 1.0)
        return run[before] + part * (run[after] - run[before]), delay[before] + part * (delay[after] - delay[before])

    @cached_property
    def _counted(self) -> tuple[list[float], list[float], list[float]]:
        """The counters as Python's own numbers, which are faster to ask for one by one."""
        return self.counted_ns.tolist(), self.run_ns.tolist(), self.delay_ns.tolist()

    @cached_property
    def _times(self) -> list[int]:
        """The times likewise."""
        listed: list[int] = self.times_ns.tolist()
        return listed

    def use_around(self, times_ns: Floats, reach_ns: float) -> tuple[Floats, Floats]:
        """As ``use``, for the spans that reach so far to both sides of some instants."""
        if len(self.counted_ns) < 2:
            return np.zeros(len(times_ns)), np.zeros(len(times_ns))
        known = self.counted_ns[0], self.counted_ns[-1]
        begins, ends = (np.clip(times_ns + side, *known) for side in (-reach_ns, reach_ns))
        spans = np.where(ends > begins, ends - begins, np.inf)
        used = (self.run_ns, self.delay_ns)
        run, delay = (np.interp(ends, self.counted_ns, one) - np.interp(begins, self.counted_ns, one) for one in used)
        return run / spans, delay / spans

    def uses(self, edges_ns: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]) -> tuple[float, float]:
        """As ``use``, for some of the spans between neighbouring edges together.

        Args:
            edges_ns: borders of spans.
            chosen: which of them; one less than edges.
        """
        length = float(np.diff(edges_ns)[chosen].sum())
        if length <= 0 or len(self.counted_ns) < 2:
            return 0.0, 0.0
        run, delay = (np.diff(np.interp(edges_ns, self.counted_ns, used)) for used in (self.run_ns, self.delay_ns))
        return float(run[chosen].sum()) / length, float(delay[chosen].sum()) / length


def read_threads(recording: Recording) -> dict[int, ThreadSeries]:
    """The series of all threads that were sampled, by their ids."""
    seen = recording.threads
    return {
        tid: ThreadSeries(tid, seen[tid].pid, seen[tid].name, samples)
        for tid, samples in ThreadSamples.by_thread(recording).items()
        if tid in seen
    }


class JobThreads:
    """The series of all threads of the job.

    Args:
        by_tid: all that were sampled.
        on_gpu: processes that compute on a GPU.
        main_threads: by process, its main thread where that is not the first one.
        python_threads: threads that Python code started.

    Attributes:
        by_tid: as given.
    """

    def __init__(
        self,
        by_tid: Mapping[int, ThreadSeries],
        on_gpu: frozenset[int] = frozenset(),
        main_threads: Mapping[int, int] | None = None,
        python_threads: frozenset[int] = frozenset(),
    ) -> None:
        self._on_gpu, self._main_threads, self._python = on_gpu, main_threads or {}, python_threads
        self.by_tid = by_tid
        self._by_process: dict[int, list[ThreadSeries]] = {}
        for thread in self.by_tid.values():
            self._by_process.setdefault(thread.pid, []).append(thread)
        self._main: dict[int, ThreadSeries | None] = {}
        self._autograd: dict[int, list[ThreadSeries]] = {}
        self._on_network: dict[int, bool] = {}

    def main(self, pid: int) -> ThreadSeries | None:
        """The main thread of a process.

        Where autograd has a thread of its own for a device, that carries out the backward pass while the main thread
        sleeps: what it does then counts as the main thread's.
        """
        if pid not in self._main:
            main, backward = self.by_tid.get(self.main_tid(pid)), self.autograd(pid)
            self._main[pid] = main.with_stand_ins(backward) if main is not None and backward else main
        return self._main[pid]

    def main_tid(self, pid: int) -> int:
        """The id of a process's main thread: of its first one, or of the one that trains in its place."""
        return self._main_threads.get(pid, pid)

    def autograd(self, pid: int) -> list[ThreadSeries]:
        """Threads that carry out the backward passes of a process on its devices.

        Before they had names they were called as who created them: of a process with a GPU's driver they are the
        threads that work while the main one sleeps, and only then. So does a thread of Python's, which takes turns with
        it.
        """
        if pid not in self._autograd:
            others = self.besides_main(pid)
            found = [thread for thread in others if thread.name.startswith(AUTOGRAD)]
            main = self.by_tid.get(self.main_tid(pid))
            if not found and main is not None and pid in self._on_gpu:
                native = [thread for thread in others if thread.name == main.name and thread.tid not in self._python]
                found = [thread for thread in native if _stands_in(thread, main)]
            self._autograd[pid] = found
        return self._autograd[pid]

    def main_at(self, pid: int, time_ns: int) -> ThreadState:
        """The main thread of a process at an instant."""
        main = self.main(pid)
        return main.at(time_ns) if main is not None else GONE

    def main_times(self, pid: int, most: int | None = None) -> Sequence[int]:
        """When the main thread of a process was sampled, in ns; drawn ones where ``most`` are enough."""
        main = self.main(pid)
        times: list[int] = [] if main is None else main.times_ns.tolist()
        return times if most is None else drawn(times, most)

    @property
    def pids(self) -> Iterable[int]:
        """Processes of which threads were sampled."""
        return self._by_process.keys()

    def of(self, pid: int) -> list[ThreadSeries]:
        """All threads of a process."""
        return self._by_process.get(pid, [])

    def waits_on_network(self, pid: int) -> bool:
        """Whether a thread of a process was ever seen waiting on a connection."""
        if pid not in self._on_network:
            targets = {target for thread in self.of(pid) for target in thread.targets}
            self._on_network[pid] = any(target.startswith(NETWORK_TARGETS) for target in targets)
        return self._on_network[pid]

    def besides_main(self, pid: int) -> list[ThreadSeries]:
        """All threads of a process but the main one."""
        return [thread for thread in self.of(pid) if thread.tid != self.main_tid(pid)]


def _stands_in(thread: ThreadSeries, main: ThreadSeries) -> bool:
    """Whether a thread works while another sleeps, and seldom else."""
    busy = [time for time, state in zip(thread.times_ns.tolist(), thread.states, strict=True) if state == "R"]
    asleep = sum(main.at(time).state == "S" for time in busy)
    work = float(thread.run_ns[-1] - thread.run_ns[0]) if len(thread.run_ns) else 0.0
    span = float(main.times_ns[-1] - main.times_ns[0]) if len(main.times_ns) else 0.0
    return work > thresholds.BACKWARD_THREAD * span and asleep >= thresholds.STANDS_IN * len(busy) > 0


def _since_first(times_ns: Floats, counter: Floats, at_ns: Floats) -> Floats:
    """By how much a counter has grown at some times since it was first read."""
    return np.asarray(np.interp(at_ns, times_ns, counter) - counter[0])
