"""The Python interpreter of each process: who holds its lock, and whether its garbage collector runs."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import InterpreterSample, PythonThread
from perfdoctor.timeline.threads import Threads

# A sample shows instants within this time of it.
_REACH_NS = int(thresholds.GIL_REACH_S * NS_PER_S)


class Gil:
    """The interpreters of all processes.

    Args:
        threads: of the job.
        python_threads: those of which py-spy said who they are.
        samples: of the interpreters, in order of time.
        span: from when to when the job was watched, in ns.
    """

    def __init__(
        self,
        threads: Threads,
        python_threads: Iterable[PythonThread],
        samples: Iterable[InterpreterSample],
        span: tuple[int, int],
    ) -> None:
        self._threads, self._span = threads, span
        self._samples: dict[int, list[InterpreterSample]] = {}
        self._held: Counter[tuple[int, int]] = Counter()
        self._known: Counter[int] = Counter()
        self._python: dict[int, set[int]] = {}
        self._idents: dict[int, int] = {}
        for thread in python_threads:
            self._idents[thread.tid] = thread.ident
            self._python.setdefault(thread.pid, set()).add(thread.tid)
        for sample in samples:
            self._samples.setdefault(sample.pid, []).append(sample)
            if sample.gil_tid is None:
                continue
            self._known[sample.pid] += 1
            self._held[sample.pid, sample.gil_tid] += 1
            if sample.gil_tid:
                self._python.setdefault(sample.pid, set()).add(sample.gil_tid)

    def holder_at(self, pid: int, time_ns: int) -> int | None:
        """Which thread of a process holds the GIL at an instant; 0 if nobody does, None where that is unknown."""
        sample = self._nearest(pid, time_ns)
        return None if sample is None else sample.gil_tid

    def is_taken(self, pid: int, time_ns: int) -> bool:
        """Whether another thread than those that train holds the GIL of a process at an instant."""
        holder = self.holder_at(pid, time_ns)
        return holder not in (None, 0, pid) and all(thread.tid != holder for thread in self._threads.autograd(pid))

    def is_collecting(self, pid: int, time_ns: int) -> bool:
        """Whether the garbage collector of a process runs at an instant; False where that is unknown."""
        sample = self._nearest(pid, time_ns)
        return bool(sample is not None and sample.collecting)

    def python_threads(self, pid: int) -> set[int]:
        """Threads that run Python code: py-spy named them, or they were seen to hold the GIL."""
        return self._python.get(pid, set())

    def ident(self, tid: int) -> int | None:
        """Python's identifier of a thread, in which stacks speak; None if py-spy did not name it."""
        return self._idents.get(tid)

    def keeps(self, pid: int, tid: int) -> bool:
        """Whether a thread computes in Python itself, rather than in a library that gives the GIL back."""
        thread = self._threads.by_tid.get(tid)
        if thread is None or not self._known[pid]:
            return False
        used, _ = thread.use(*self._span)
        return used > 0 and self._held[pid, tid] / self._known[pid] >= thresholds.COMPUTES_IN_PYTHON * used

    def _nearest(self, pid: int, time_ns: int) -> InterpreterSample | None:
        samples = self._samples.get(pid, [])
        after = bisect.bisect_left(samples, time_ns, key=lambda sample: sample.time_ns)
        around = samples[max(0, after - 1) : after + 1]
        near = min(around, key=lambda sample: abs(sample.time_ns - time_ns), default=None)
        return None if near is None or abs(near.time_ns - time_ns) > _REACH_NS else near
