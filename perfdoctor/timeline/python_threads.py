"""A process's own threads: which of them run Python code, and which keep the interpreter lock while they do."""

from __future__ import annotations

from collections import Counter

from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import InterpreterSample, PythonThread
from perfdoctor.timeline.threads import Timelines

# A thread computes in Python if it holds the interpreter lock for at least this part of the time that it has a core.
HOLDS = 0.5


class OwnThreads:
    """Answers for one recording."""

    def __init__(self, recording: Recording, timelines: Timelines) -> None:
        self._timelines = timelines
        self._span = (recording.start_ns, recording.end_ns)
        self._python: dict[int, set[int]] = {}
        self._looks: Counter[int] = Counter()
        self._held: Counter[tuple[int, int]] = Counter()
        self._idents: dict[int, int] = {}
        for thread in recording.rows(PythonThread):
            self._idents[thread.tid] = thread.ident
            self._python.setdefault(thread.pid, set()).add(thread.tid)
        for sample in recording.rows(InterpreterSample):
            if sample.gil_tid is None:
                continue
            self._looks[sample.pid] += 1
            self._held[sample.pid, sample.gil_tid] += 1
            if sample.gil_tid:
                self._python.setdefault(sample.pid, set()).add(sample.gil_tid)

    def python(self, pid: int) -> set[int]:
        """Threads that run Python code: py-spy named them, or they were seen to hold the interpreter lock."""
        return self._python.get(pid, set())

    def ident(self, tid: int) -> int | None:
        """Python's identifier of a thread, in which stacks speak; None if py-spy did not name it."""
        return self._idents.get(tid)

    def holds_lock(self, pid: int, tid: int) -> bool:
        """Whether a thread computes in Python itself, rather than in a library that gives the interpreter lock back."""
        thread = self._timelines.threads.get(tid)
        if thread is None or not self._looks[pid]:
            return False
        used, _ = thread.use(*self._span)
        return used > 0 and self._held[pid, tid] / self._looks[pid] >= HOLDS * used
