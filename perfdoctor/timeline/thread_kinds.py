"""What each thread of the job is to the trainer that it shares cores with."""

from __future__ import annotations

from typing import Literal

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.syscalls import OF_POOLS
from perfdoctor.knowledge.threads import EXCHANGES, NOT_IN_POOL
from perfdoctor.timeline.gil import Gil
from perfdoctor.timeline.locator import Locator
from perfdoctor.timeline.processes import ProcessRoles
from perfdoctor.timeline.threads import Threads, ThreadSeries

Kind = Literal["trainer", "pool", "supplier", "GIL holder", "collective", "other"]
"""A thread that trains: a trainer's main one, or autograd's; one of its intra-op thread pool; a supplier of input (a
worker, another helper process, a thread of the trainer's own that it waits for); a Python thread of the trainer that
only holds the GIL; one that moves and adds up what ranks exchange; or another."""


class ThreadKinds:
    """Answers for one recording."""

    def __init__(self, threads: Threads, processes: ProcessRoles, gil: Gil, locator: Locator) -> None:
        self._threads, self._processes, self._gil, self._locator = threads, processes, gil, locator
        self._pools: dict[int, list[ThreadSeries]] = {}
        self._supplied: dict[int, bool] = {}
        self._exchanging: list[ThreadSeries] | None = None

    def of(self, thread: ThreadSeries) -> Kind:
        """The kind of a thread."""
        process = self._processes.by_pid.get(thread.pid)
        is_main = thread.tid == thread.pid
        if process is None or process.role != "trainer":
            return "supplier" if process is not None and process.trainer_pid and is_main else "other"
        if is_main or thread in self._threads.autograd(thread.pid):
            return "trainer"
        if thread.name.startswith(EXCHANGES):
            return "collective"
        if thread.tid not in self._gil.python_threads(thread.pid):
            return "pool" if thread in self.pool(thread.pid) else "other"
        if self._is_supplied_by_threads(thread.pid):
            return "supplier"
        return "GIL holder" if self._gil.keeps(thread.pid, thread.tid) else "other"

    def pool(self, pid: int) -> list[ThreadSeries]:
        """A process's intra-op thread pool: native threads (OpenMP and the like) that wait in futexes only."""
        if pid not in self._pools:
            python = self._gil.python_threads(pid)
            self._pools[pid] = [
                thread
                for thread in self._threads.besides_main(pid)
                if thread.tid not in python
                and not thread.name.startswith(NOT_IN_POOL)
                and set(thread.syscalls) <= {None, *OF_POOLS}
            ]
        return self._pools[pid]

    def pool_works(self, pid: int, time_ns: int) -> bool:
        """Whether a thread of a process's intra-op pool is busy at an instant."""
        return any(thread.at(time_ns).is_busy for thread in self.pool(pid))

    def pool_delay(self, pid: int, time_ns: int) -> float:
        """Of the time in which a thread of the pool wants a CPU, the fraction that it lacks one; the worst of them."""
        states = [thread.at(time_ns) for thread in self.pool(pid)]
        return max((state.delay_fraction for state in states if state.is_runnable), default=0.0)

    def exchange_at(self, time_ns: int) -> bool:
        """Whether ranks of this host exchange something at an instant: threads of a collective are at work."""
        if self._exchanging is None:
            threads = (thread for rank in self._processes.trainers for thread in self._threads.of(rank.pid))
            self._exchanging = [thread for thread in threads if thread.name.startswith(EXCHANGES)]
        return any(thread.at(time_ns).is_runnable for thread in self._exchanging)

    def _is_supplied_by_threads(self, pid: int) -> bool:
        """Whether a trainer was seen waiting for something that threads of its own may hand to it."""
        if pid not in self._supplied:
            times = self._threads.main_times(pid)
            waits = sum(self._waits_for_others(pid, time) for time in times)
            self._supplied[pid] = waits >= thresholds.SUPPLIED_BY_THREADS * len(times)
        return self._supplied[pid]

    def _waits_for_others(self, pid: int, time_ns: int) -> bool:
        state = self._threads.main_at(pid, time_ns)
        if state.is_runnable or state.is_blocked:
            return False
        location = self._locator.locate(pid, time_ns, state)
        return location.waits or location.phase == "data"
