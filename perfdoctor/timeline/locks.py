"""Who queues for locks of the job's own."""

from __future__ import annotations

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import FILE_LOCKS, SLEEPS
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.code_location import asks_for_file_lock, holds_lock_frame
from perfdoctor.timeline.locator import Locator
from perfdoctor.timeline.processes import ProcessRoles
from perfdoctor.timeline.threads import JobThreads, ThreadSeries, ThreadState

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
        if state.syscall in SLEEPS:
            return asks_for_file_lock(frames)
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
            running += used * (1 - self._polling(series, first, last)) if any(waits) else used
            active += used > thresholds.IDLE_WORKER_USE or any(waits)
        trainer = self._threads.main(trainer_pid)
        taken = trainer.use(*span)[0] if trainer is not None else 0.0
        could = min(active, max(1.0, self._cores - taken))
        return max(0.0, 1 - running / could) if queueing > thresholds.LOCK_QUEUE and could > 0 else 0.0

    def _polling(self, series: ThreadSeries, first: int, last: int) -> float:
        """Of the samples in which a thread runs, the part in which it tries to take a lock of a file once more."""
        times = [time for time in series.times_ns[first:last].tolist() if series.is_runnable_at(time)]
        stacks = [self._locator.stack_at(series.pid, time, series.at(time)) for time in times]
        return sum(stack is not None and asks_for_file_lock(stack[0]) for stack in stacks) / max(1, len(stacks))


def _may_queue(call: str | None) -> bool:
    """Whether a thread in a system call may wait for a lock."""
    return call == "futex" or call in FILE_LOCKS or call in SLEEPS
