"""Locks of the job's own: which workers queue for one, and what it costs them together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perfdoctor.timeline.code_location import holds_lock_frame
from perfdoctor.timeline.processes import Roles
from perfdoctor.timeline.stacks import Stacks
from perfdoctor.timeline.threads import Moment, Timelines

LOCK_CALLS = frozenset(("flock", "fcntl", "semtimedop"))
# Queues for short locks form and vanish within a sample, so the mean over some ticks is taken.
WINDOW_NS = 250_000_000
# Mean number of workers that queue for a lock below which the lock is not to blame.
MIN_QUEUE = 0.15
# A worker that uses less of a core than this is idle.
IDLE_USE = 0.02


class Locks:
    """Answers for one recording.

    Args:
        cores: how many the job may use.
        stack_at: number of the stack of a process's main thread at a moment.
    """

    def __init__(
        self,
        stacks: Stacks,
        timelines: Timelines,
        roles: Roles,
        cores: float,
        stack_at: Callable[[int, int, Moment], int | None],
    ) -> None:
        self._stacks, self._timelines, self._roles = stacks, timelines, roles
        self._cores, self._stack_at = cores, stack_at
        self._known: dict[tuple[int, int], float] = {}

    def queues(self, pid: int, time_ns: int, moment: Moment) -> bool:
        """Whether a main thread waits for a lock of the job's own inside its work: multiprocessing's, or a file's."""
        if moment.syscall not in ("futex", *LOCK_CALLS):
            return False
        number = self._stack_at(pid, time_ns, moment)
        if number is None:
            return moment.syscall in LOCK_CALLS
        if self._stacks.places[number].detail in ("worker idle", "hand over", "worker start"):
            return False
        return moment.syscall in LOCK_CALLS or holds_lock_frame(self._stacks.frames[number])

    def part(self, trainer_pid: int, time_ns: int) -> float:
        """How much of the workers' pace a lock takes at an instant: 1 minus how many run over how many could."""
        key = (trainer_pid, time_ns // WINDOW_NS)
        if key not in self._known:
            self._known[key] = self._part_around(trainer_pid, time_ns)
        return self._known[key]

    def _part_around(self, trainer_pid: int, time_ns: int) -> float:
        span = (time_ns - WINDOW_NS, time_ns + WINDOW_NS)
        queueing = running = active = 0.0
        for worker in self._roles.workers_of(trainer_pid):
            timeline = self._timelines.main(worker.pid)
            if timeline is None or not worker.alive_at(time_ns):
                continue
            first, last = np.searchsorted(timeline.times_ns, span)
            times = timeline.times_ns[first:last].tolist()
            waits = [self.queues(worker.pid, time, timeline.at(time)) for time in times]
            used = timeline.use(*span)[0]
            queueing += sum(waits) / max(1, len(waits))
            running += used
            active += used > IDLE_USE or any(waits)
        trainer = self._timelines.main(trainer_pid)
        taken = trainer.use(*span)[0] if trainer is not None else 0.0
        could = min(active, max(1.0, self._cores - taken))
        return max(0.0, 1 - running / could) if queueing > MIN_QUEUE and could > 0 else 0.0
