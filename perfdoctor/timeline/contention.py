"""What threads contend for: who is on the CPUs while one waits for a CPU, and who queues for locks of the job's own."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from perfdoctor.causes import BANDWIDTH, CONTENTION, GIL_CONTENTION, INPUT_PREPROCESSING, THROTTLED
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import in_loader
from perfdoctor.knowledge.threads import EXCHANGES, FILE_LOCKS, NOT_IN_POOL, OF_POOLS, PINNING, PINNING_LOOP
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.code_location import holds_lock_frame
from perfdoctor.timeline.gil import Gil
from perfdoctor.timeline.locator import Locator
from perfdoctor.timeline.processes import Process, ProcessRoles
from perfdoctor.timeline.readings import Counters
from perfdoctor.timeline.stand_ins import ENOUGH
from perfdoctor.timeline.threads import Floats, JobThreads, ThreadSeries, ThreadState

Kind = Literal["trainer", "pool", "supplier", "GIL holder", "collective", "other"]
"""A thread that trains: a trainer's main one, or autograd's; one of its intra-op thread pool; a supplier of input (a
worker, or another process or thread of the trainer's own where it waits for such); a Python thread of the trainer that
only holds the GIL; one that moves and adds up what ranks exchange; or another."""


class ThreadKinds:
    """What each thread of the job is to the trainer that it shares cores with."""

    def __init__(self, threads: JobThreads, processes: ProcessRoles, gil: Gil, locator: Locator) -> None:
        self._threads, self._processes, self._gil, self._locator = threads, processes, gil, locator
        self._kinds: dict[int, Kind] = {}
        self._pools: dict[int, list[ThreadSeries]] = {}
        self._awake_pools: dict[int, list[ThreadSeries]] = {}
        self._supplied: dict[int, bool] = {}
        self._exchanging: list[ThreadSeries] | None = None

    def of(self, thread: ThreadSeries) -> Kind:
        """The kind of a thread."""
        if thread.tid not in self._kinds:
            self._kinds[thread.tid] = self._find(thread)
        return self._kinds[thread.tid]

    def _find(self, thread: ThreadSeries) -> Kind:
        process = self._processes.by_pid.get(thread.pid)
        is_main = thread.tid == self._threads.main_tid(thread.pid)
        if process is None or process.role != "trainer":
            return "supplier" if process is not None and is_main and self._supplies(process) else "other"
        if is_main or thread in self._threads.autograd(thread.pid):
            return "trainer"
        if thread.name.startswith(EXCHANGES):
            return "collective"
        if thread.tid not in self._gil.python_threads(thread.pid):
            return "pool" if self._is_in_pool(thread) else "other"
        if self.pins(thread) or self._is_served(thread.pid):
            return "supplier"
        return "GIL holder" if self._gil.keeps(thread.pid, thread.tid) else "other"

    def pins(self, thread: ThreadSeries) -> bool:
        """Whether it is the thread between loader workers and a trainer that copies batches to page-locked memory."""
        return thread.name.startswith(PINNING) or PINNING_LOOP in self._gil.python_name(thread.tid)

    def pool(self, pid: int) -> list[ThreadSeries]:
        """A process's intra-op thread pool: native threads (OpenMP and the like) that wait in futexes only."""
        if pid not in self._pools:
            python = self._gil.python_threads(pid)
            self._pools[pid] = [
                thread
                for thread in self._threads.besides_main(pid)
                if thread.tid not in python and self._is_in_pool(thread)
            ]
        return self._pools[pid]

    def _is_in_pool(self, thread: ThreadSeries) -> bool:
        """Of a native thread, whether it is one of the pool: those bear their creator's name, whatever that is."""
        main = self._threads.by_tid.get(self._threads.main_tid(thread.pid))
        inherited = main is not None and thread.name == main.name
        if thread.name.lower().startswith(NOT_IN_POOL) and not inherited:
            return False
        return set(thread.syscalls) <= {None, *OF_POOLS}

    def _awake_pool(self, pid: int) -> list[ThreadSeries]:
        """Those of the pool that were ever seen at work: of thousands of threads most never are."""
        if pid not in self._awake_pools:
            self._awake_pools[pid] = [thread for thread in self.pool(pid) if thread.was_runnable]
        return self._awake_pools[pid]

    def pool_works(self, pid: int, time_ns: int) -> bool:
        """Whether a thread of a process's intra-op pool is busy at an instant."""
        return any(thread.at(time_ns).is_busy for thread in self._awake_pool(pid))

    def pool_delay(self, pid: int, time_ns: int) -> float:
        """Of the time in which a thread of the pool wants a CPU, the fraction that it lacks one; the worst of them."""
        wanting = [thread.at(time_ns) for thread in self._awake_pool(pid) if thread.is_runnable_at(time_ns)]
        return max((state.delay_fraction for state in wanting), default=0.0)

    def exchange_at(self, time_ns: int) -> bool:
        """Whether ranks of this host exchange something at an instant: threads of a collective are at work."""
        if self._exchanging is None:
            threads = (thread for rank in self._processes.trainers for thread in self._threads.of(rank.pid))
            self._exchanging = [
                thread for thread in threads if thread.name.startswith(EXCHANGES) and thread.was_runnable
            ]
        return any(thread.is_runnable_at(time_ns) for thread in self._exchanging)

    def _supplies(self, process: Process) -> bool:
        """Whether a process prepares input: one that is started beside the training, to evaluate, serves nobody."""
        if process.role == "worker" or self._is_below_worker(process):
            return True
        return process.trainer_pid != 0 and self._is_served(process.trainer_pid)

    def _is_below_worker(self, process: Process) -> bool:
        above = (self._processes.by_pid.get(pid) for pid in self._processes.ancestors_of(process.pid))
        return any(one is not None and one.role == "worker" for one in above)

    def _is_served(self, pid: int) -> bool:
        """Whether a trainer was seen waiting for, or taking, what threads or helpers of its own may hand to it."""
        if pid not in self._supplied:
            times = self._threads.main_times(pid, most=ENOUGH)
            served = sum(self._takes_from_others(pid, time) for time in times)
            self._supplied[pid] = served >= thresholds.SUPPLIED_BY_ITS_OWN * len(times)
        return self._supplied[pid]

    def _takes_from_others(self, pid: int, time_ns: int) -> bool:
        """Whether a trainer waits at an instant for somebody who is no loader worker, or unpacks what that sent."""
        state = self._threads.main_at(pid, time_ns)
        if state.is_blocked:
            return False
        location = self._locator.locate(pid, time_ns, state)
        if state.is_runnable and location.detail != "hand over":
            return False
        if location.detail == "compile" or (not location.waits and location.phase != "data"):
            return False
        if not self._processes.workers_of(pid):
            return True
        stack = self._locator.stack_at(pid, time_ns, state)
        return stack is not None and not any(map(in_loader, stack[0]))


# Who has the cores that a runnable thread lacks, and what that makes the cause.
_CAUSES = {
    "supplier": INPUT_PREPROCESSING,
    "GIL holder": GIL_CONTENTION,
    "collective": BANDWIDTH,
    "other": CONTENTION,
}
# How busy threads are is asked ten times a second, each time over half as long again; judgement.
_BUCKET_NS = NS_PER_S // 10
_SPAN_NS = 3 * NS_PER_S // 20


class CpuContention:
    """Who is on the CPUs while a runnable thread of the job is not.

    Args:
        span: from when to when the job was watched, in ns.
        cores: how many the job may use.
        reachable: how many perfdoctor could use; 0 if unknown. A container confines both, the job's own mask not.
        kinds: what each thread is to the trainer.
    """

    def __init__(
        self,
        threads: JobThreads,
        processes: ProcessRoles,
        kinds: ThreadKinds,
        counters: Counters,
        *,
        span: tuple[int, int],
        cores: float,
        reachable: float = 0.0,
    ) -> None:
        self._threads, self._processes, self._kinds, self._counters = threads, processes, kinds, counters
        self._cores = cores
        self._quotas = [
            (throttled, periods)
            for group in counters.subjects("throttled_periods_total")
            if (throttled := counters.get(group, "throttled_periods_total"))
            and (periods := counters.get(group, "quota_periods_total"))
            and counters.growth(group, "throttled_periods_total") > 0
        ]
        masks = [counters.get(f"pid:{trainer.pid}", "allowed_cores") for trainer in processes.trainers]
        quotas = [quota for group in counters.subjects("quota_cores") if (quota := counters.get(group, "quota_cores"))]
        tightest = min((float(np.median(one.values)) for one in quotas), default=math.inf)
        self._by_mask = any(mask is not None for mask in masks) and cores < min(reachable, tightest)
        self._wanting = [thread for thread in threads.by_tid.values() if thread.wanted_cpu]
        self._first_bucket = span[0] // _BUCKET_NS
        buckets = np.arange(self._first_bucket, span[1] // _BUCKET_NS + 1, dtype=np.float64)
        self._buckets_ns = (buckets + 0.5) * _BUCKET_NS

    def delay_parts(self, time_ns: int) -> dict[str, float]:
        """Why a runnable thread does not run: cause to weight.

        The quota, if it stopped the group; else whoever is on the CPUs instead: those that prepare input, whose work is
        then the cause; a Python thread of the trainer that serves nobody, which takes the GIL as well;
        threads of a collective, which run beside the backward pass; or other threads of the job and neighbours. Cores
        that were idle are nobody's fault but the scheduler's: their weight is missing in the sum. Where the job's mask
        leaves out cores of the host that are idle, not the work of suppliers is the cause, but that they must share
        these few. What perfdoctor takes is nobody's fault either: without it, the thread would have run.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        bucket = min(max(0, time_ns // _BUCKET_NS - self._first_bucket), len(self._buckets_ns) - 1)
        causes = {cause: (1 - stopped) * float(self._occupants[kind][bucket]) for kind, cause in _CAUSES.items()}
        return {THROTTLED: stopped, **causes}

    def throttled_fraction(self, time_ns: int) -> float:
        """Fraction of quota periods around an instant in which the job's control group was stopped."""
        span = (time_ns - NS_PER_S / 2, time_ns + NS_PER_S / 2)
        ran = [(throttled.growth(*span), periods.growth(*span)) for throttled, periods in self._quotas]
        return max((stopped / periods for stopped, periods in ran if periods > 0), default=0.0)

    @cached_property
    def _occupants(self) -> dict[str, Floats]:
        """Fractions of the cores that are used by suppliers, lock holders and collectives, and by everybody else but a
        trainer itself, for each bucket of time; the rest is used by perfdoctor or by nobody.
        """
        used, wanted = self._by_kind()
        unused = np.maximum(0.0, self._cores - sum(used.values()))
        ours = np.minimum(unused, self._cores_of("perfdoctor", "cpu_seconds_total", default=0.0))
        unused = unused - ours
        neighbours = np.minimum(unused, self._cores_of("host", "neighbours_seconds_total", default=math.inf))
        # A pool that fits on the cores together with its main thread does not crowd it out; a larger one does.
        demand = np.maximum(wanted["trainer"] + wanted["pool"], self._cores)
        crowd = 1 - self._cores / demand
        others = used["other"] + neighbours + used["pool"] * crowd
        if (ranks := len(self._processes.trainers)) > 1:
            # Ranks crowd each other out where there are more of them than cores, or where their pools fill these.
            others = others + used["trainer"] * (1.0 if ranks > self._cores else crowd)
        idle_outside = self._idle_outside(np.maximum(0.0, unused - neighbours)) >= thresholds.IDLE_CORES_LEFT_OUT
        others = others + np.where(idle_outside, used["supplier"], 0.0)
        supplying = np.where(idle_outside, 0.0, used["supplier"])
        idle = np.maximum(1e-3, unused - neighbours - thresholds.SEEMINGLY_IDLE_CORES)
        kept = {**used, "supplier": supplying, "other": others}
        found = {kind: kept[kind] for kind in _CAUSES}
        whole = sum(found.values()) + ours + idle
        return {kind: cores / whole for kind, cores in found.items()}

    def _by_kind(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Cores that threads of each kind use, and that they want, for each bucket of time."""
        used, wanted = ({kind: np.zeros(len(self._buckets_ns)) for kind in get_args(Kind)} for _ in range(2))
        for thread in self._wanting:
            running, delayed = thread.use_around(self._buckets_ns, _SPAN_NS)
            kind = self._kinds.of(thread)
            used[kind] += running
            wanted[kind] += running + delayed
        return used, wanted

    def _cores_of(self, subject: str, counter: str, *, default: float) -> Floats:
        """Cores that a counter of CPU seconds stands for around each bucket, or a default where it was not read."""
        seconds = self._counters.get(subject, counter)
        if seconds is None:
            return np.full(len(self._buckets_ns), default)
        return seconds.growth_around(self._buckets_ns, NS_PER_S) / 2

    def _idle_outside(self, idle_inside: Floats) -> Floats:
        """Idle cores of the host that the job's mask leaves out, for each bucket of time."""
        if not self._by_mask or self._counters.get("host", "idle_seconds_total") is None:
            return np.zeros(len(self._buckets_ns))
        return self._cores_of("host", "idle_seconds_total", default=0.0) - idle_inside


# Queues for short locks form and vanish within a sample, so the mean over this much time is taken.
_AROUND_NS = int(thresholds.LOCK_QUEUE_AROUND_S * NS_PER_S)


class Locks:
    """Locks of the job's own: which workers queue for one, and what it costs them together.

    Args:
        cores: how many the job may use.
    """

    def __init__(self, threads: JobThreads, processes: ProcessRoles, locator: Locator, cores: float) -> None:
        self._threads, self._processes, self._locator, self._cores = threads, processes, locator, cores
        self._known: dict[tuple[int, int], float] = {}

    def queues(self, pid: int, time_ns: int, state: ThreadState) -> bool:
        """Whether a main thread waits for a lock of the job's own inside its work: multiprocessing's, or a file's."""
        if not _may_queue(state.syscall):
            return False
        stack = self._locator.stack_at(pid, time_ns, state)
        if stack is None:
            return state.syscall in FILE_LOCKS
        frames, location = stack
        if location.detail in ("worker idle", "hand over", "worker start"):
            return False
        return state.syscall in FILE_LOCKS or holds_lock_frame(frames)

    def part(self, trainer_pid: int, time_ns: int) -> float:
        """How much of the workers' pace a lock takes at an instant: 1 minus how many run over how many could."""
        key = (trainer_pid, time_ns // _AROUND_NS)
        if key not in self._known:
            self._known[key] = self._part_around(trainer_pid, time_ns)
        return self._known[key]

    def _part_around(self, trainer_pid: int, time_ns: int) -> float:
        span = (time_ns - _AROUND_NS, time_ns + _AROUND_NS)
        queueing = running = active = 0.0
        for worker in self._processes.workers_of(trainer_pid):
            series = self._threads.main(worker.pid)
            if series is None or not worker.alive_at(time_ns):
                continue
            first, last = np.searchsorted(series.times_ns, span)
            seen = zip(series.times_ns[first:last].tolist(), series.syscalls[first:last], strict=True)
            waits = [_may_queue(call) and self.queues(worker.pid, time, series.at(time)) for time, call in seen]
            used = series.use(*span)[0]
            queueing += sum(waits) / max(1, len(waits))
            running += used
            active += used > thresholds.IDLE_WORKER_USE or any(waits)
        trainer = self._threads.main(trainer_pid)
        taken = trainer.use(*span)[0] if trainer is not None else 0.0
        could = min(active, max(1.0, self._cores - taken))
        return max(0.0, 1 - running / could) if queueing > thresholds.LOCK_QUEUE and could > 0 else 0.0


def _may_queue(call: str | None) -> bool:
    """Whether a thread in a system call may wait for a lock."""
    return call == "futex" or call in FILE_LOCKS
