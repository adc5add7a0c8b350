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
        self._names: dict[int, str] = {}
        self._contended: dict[int, bool] = {}
        for thread in python_threads:
            self._idents[thread.tid], self._names[thread.tid] = thread.ident, thread.name
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

    def is_held_by_main(self, pid: int, time_ns: int) -> bool:
        """Whether the main thread of a process holds its GIL at an instant."""
        return self.holder_at(pid, time_ns) == self._threads.main_tid(pid)

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
        if not self._is_contended(pid):
            return False
        sample = self._nearest(pid, time_ns, but=self._threads.main_tid(pid))
        return sample is not None and self._is_other(pid, sample.gil_tid)

    def _is_contended(self, pid: int) -> bool:
        """Whether other threads than those that train hold the GIL of a process for a part of the time that matters."""
        if pid not in self._contended:
            held = sum(count for (of, tid), count in self._held.items() if of == pid and self._is_other(pid, tid))
            self._contended[pid] = held >= thresholds.CONTENDED_GIL * self._known[pid] > 0
        return self._contended[pid]

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

    def python_name(self, tid: int) -> str:
        """Python's own name of a thread; "" if py-spy did not name it."""
        return self._names.get(tid, "")

    def keeps(self, pid: int, tid: int) -> bool:
        """Whether a thread computes in Python itself, rather than in a library that gives the GIL back."""
        thread = self._threads.by_tid.get(tid)
        if thread is None or not self._known[pid]:
            return False
        used, _ = thread.use(*self._span)
        return used > 0 and self._held[pid, tid] / self._known[pid] >= thresholds.COMPUTES_IN_PYTHON * used

    def _nearest(self, pid: int, time_ns: int, but: int | None = None) -> InterpreterSample | None:
        """The sample nearest to an instant in which this thread does not hold the GIL; None if none is near."""
        samples = self._samples.get(pid, [])
        after = bisect.bisect_left(samples, time_ns, key=lambda sample: sample.time_ns)
        sides = (range(after, len(samples)), range(after - 1, -1, -1))
        found = [sample for side in sides if (sample := self._first(samples, side, time_ns, but)) is not None]
        return min(found, key=lambda sample: abs(sample.time_ns - time_ns), default=None)

    @staticmethod
    def _first(
        samples: list[InterpreterSample], indices: range, time_ns: int, but: int | None
    ) -> InterpreterSample | None:
        """The first of some samples, going away from an instant, that is near and not of this holder."""
        for index in indices:
            sample = samples[index]
            if abs(sample.time_ns - time_ns) > _REACH_NS:
                return None
            if but is None or sample.gil_tid != but:
                return sample
        return None
