"""What each thread of the job is to the trainer that it shares cores with."""

from __future__ import annotations

from typing import Literal

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import OF_POOLS
from perfdoctor.knowledge.frames import in_loader
from perfdoctor.knowledge.threads import EXCHANGES, NOT_IN_POOL, PINNING, PINNING_LOOP
from perfdoctor.timeline.gil import Gil
from perfdoctor.timeline.locator import Locator
from perfdoctor.timeline.processes import Process, ProcessRoles
from perfdoctor.timeline.stand_ins import ENOUGH
from perfdoctor.timeline.threads import JobThreads, ThreadSeries

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
