"""The Python interpreter of each process: who holds its lock, and whether its garbage collector runs."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import InterpreterSample, PythonThread
from perfdoctor.timeline.threads import JobThreads

# A sample shows instants within this time of it.
_REACH_NS = int(thresholds.GIL_REACH_S * NS_PER_S)


class InterpreterSamples(NamedTuple):
    """Samples of interpreters in order of time, as columns.

    Attributes:
        times_ns: when each was taken.
        pids: of which process.
        holders: as ``gil_tid`` of a sample.
        collecting: as that of a sample; a number for the truth of it.
    """

    times_ns: list[int]
    pids: list[int]
    holders: list[int | None]
    collecting: list[int | None]

    @classmethod
    def read(cls, recording: Recording) -> InterpreterSamples:
        """Those of a recording."""
        return cls(*recording.columns(InterpreterSample, "time_ns", "pid", "gil_tid", "collecting"))


class _InterpreterState(NamedTuple):
    """One sample of an interpreter."""

    time_ns: int
    holder: int | None
    collecting: int | None


class _InterpreterSamples:
    """The samples of one process's interpreter."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self.holders: list[int | None] = []
        self.collecting: list[int | None] = []

    def nearest(self, time_ns: int, but: int | None = None) -> int | None:
        """The sample nearest to an instant in which this thread does not hold the GIL; None if none is near."""
        after = bisect.bisect_left(self.times_ns, time_ns)
        found, distance = None, _REACH_NS
        for index in range(after, len(self.times_ns)):
            if self.times_ns[index] - time_ns > distance:
                break
            if but is None or self.holders[index] != but:
                found, distance = index, self.times_ns[index] - time_ns - 1
                break
        for index in range(after - 1, -1, -1):
            if time_ns - self.times_ns[index] > distance:
                break
            if but is None or self.holders[index] != but:
                return index
        return found


class Gil:
    """The interpreters of all processes.

    Args:
        threads: of the job.
        python_threads: Python's own names and identifiers of threads.
        samples: of the interpreters.
        span: from when to when the job was watched, in ns.
    """

    def __init__(
        self,
        threads: JobThreads,
        python_threads: Iterable[PythonThread],
        samples: InterpreterSamples,
        span: tuple[int, int],
    ) -> None:
        self._threads, self._span = threads, span
        self._processes: defaultdict[int, _InterpreterSamples] = defaultdict(_InterpreterSamples)
        self._held: Counter[tuple[int, int]] = Counter()
        self._known: Counter[int] = Counter()
        self._python: dict[int, set[int]] = {}
        self._idents: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._contended: dict[int, bool] = {}
        for thread in python_threads:
            self._idents[thread.tid] = thread.ident
            self._names[thread.tid] = thread.name or self._names.get(thread.tid, "")  # not every sample shows it
            self._python.setdefault(thread.pid, set()).add(thread.tid)
        for time_ns, pid, holder, collecting in zip(*samples, strict=True):
            process = self._processes[pid]
            process.times_ns.append(time_ns)
            process.holders.append(holder)
            process.collecting.append(collecting)
        for pid, process in self._processes.items():
            for holder, times in Counter(process.holders).items():
                if holder is not None:
                    self._known[pid] += times
                    self._held[pid, holder] += times
                    if holder:
                        self._python.setdefault(pid, set()).add(holder)

    def holder_at(self, pid: int, time_ns: int) -> int | None:
        """Which thread of a process holds the GIL at an instant; 0 if nobody does, None where that is unknown."""
        found = self._nearest(pid, time_ns)
        return None if found is None else found.holder

    def is_taken(self, pid: int, time_ns: int) -> bool:
        """Whether another thread than those that train holds the GIL of a process at an instant."""
        return self._is_other(pid, self.holder_at(pid, time_ns))

    def _is_other(self, pid: int, holder: int | None) -> bool:
        """Whether a holder of the GIL is another thread than those that train."""
        return holder not in (None, 0, self._threads.main_tid(pid)) and all(
            thread.tid != holder for thread in self._threads.autograd(pid)
        )

    def is_awaited(self, pid: int, time_ns: int) -> bool:
        """Whether a training thread that is asleep at an instant, in code that waits for nobody else, wants the GIL.

        Threads that want it take turns every 5 ms, and it is sampled less often. One that sleeps does not hold it, so
        the nearest sample that may be of this instant is one in which it does not.
        """
        return self._is_contended(pid) and self.other_holder(pid, time_ns) is not None

    def other_holder(self, pid: int, time_ns: int) -> int | None:
        """The thread that holds the GIL of a process while its main thread does not; None where none is known to."""
        process = self._processes[pid]
        index = process.nearest(time_ns, but=self._threads.main_tid(pid))
        holder = None if index is None else process.holders[index]
        return holder if self._is_other(pid, holder) else None

    def _is_contended(self, pid: int) -> bool:
        """Whether other threads than those that train hold the GIL of a process for a part of the time that matters."""
        if pid not in self._contended:
            held = sum(count for (of, tid), count in self._held.items() if of == pid and self._is_other(pid, tid))
            self._contended[pid] = held >= thresholds.CONTENDED_GIL * self._known[pid] > 0
        return self._contended[pid]

    def is_collecting(self, pid: int, time_ns: int) -> bool:
        """Whether the garbage collector of a process runs at an instant; False where that is unknown."""
        found = self._nearest(pid, time_ns)
        return found is not None and bool(found.collecting)

    def _nearest(self, pid: int, time_ns: int) -> _InterpreterState | None:
        """The sample of a process's interpreter that shows an instant; None if none does."""
        process = self._processes.get(pid)
        index = None if process is None else process.nearest(time_ns)
        if process is None or index is None:
            return None
        return _InterpreterState(process.times_ns[index], process.holders[index], process.collecting[index])

    def python_threads(self, pid: int) -> set[int]:
        """Threads that run Python code: Python has an identifier for them, or they were seen to hold the GIL."""
        return self._python.get(pid, set())

    def ident(self, tid: int) -> int | None:
        """Python's identifier of a thread, by which stacks name it; None if it was not read."""
        return self._idents.get(tid)

    def python_name(self, tid: int) -> str:
        """Python's own name of a thread; "" if it was not read."""
        return self._names.get(tid, "")

    def keeps(self, pid: int, tid: int) -> bool:
        """Whether a thread computes in Python itself, rather than in a library that gives the GIL back."""
        thread = self._threads.by_tid.get(tid)
        if thread is None or not self._known[pid]:
            return False
        used, _ = thread.use(*self._span)
        return used > 0 and self._held[pid, tid] / self._known[pid] >= thresholds.COMPUTES_IN_PYTHON * used
