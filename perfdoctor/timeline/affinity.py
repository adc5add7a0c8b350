"""On which cores each thread may run: whom it competes with is who may run on the same ones."""

from __future__ import annotations

from collections.abc import Mapping

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import core_list
from perfdoctor.timeline.threads import JobThreads, ThreadSeries


class Affinity:
    """The affinity masks of a job's threads, as they were read last.

    A process may have threads that were started before its mask was narrowed, and OpenMP binds each thread of its pool
    to a core of its own. So masks are those of threads, and a process has the cores of those that compute.

    Args:
        facts: of the recording; a thread is named there only if its mask is not its process's.
        threads: of the job.
    """

    def __init__(self, facts: Mapping[tuple[str, str], str], threads: JobThreads) -> None:
        self._masks = {
            subject: frozenset(core_list(text)) for (subject, name), text in facts.items() if name == "affinity"
        }
        self._of_main = {pid: self.of(threads.by_tid.get(threads.main_tid(pid))) for pid in threads.pids}
        self._of_process = {
            pid: main.union(*map(self.of, filter(_computes, threads.of(pid)))) for pid, main in self._of_main.items()
        }

    def of(self, thread: ThreadSeries | None) -> frozenset[int]:
        """The cores that a thread may run on; empty where that is not known."""
        if thread is None:
            return frozenset()
        return self._masks.get(f"tid:{thread.tid}") or self._masks.get(f"pid:{thread.pid}", frozenset())

    def of_main(self, pid: int) -> frozenset[int]:
        """Those of a process's main thread."""
        return self._of_main.get(pid, frozenset())

    def of_process(self, pid: int) -> frozenset[int]:
        """Those on which a process computes: of its main thread, and of others that want a core for long."""
        return self._of_process.get(pid, frozenset())

    def cores_of_job(self, usable: float) -> float:
        """How many cores the job computes on, of so many that it may use: a quota may leave it less than its masks."""
        masks = frozenset().union(*self._of_process.values())
        return min(usable, float(len(masks))) if masks else usable


def _computes(thread: ThreadSeries) -> bool:
    return thread.wanted_part >= thresholds.BUSY_THREAD
