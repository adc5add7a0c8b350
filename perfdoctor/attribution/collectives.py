"""Whether a trainer waits for other ranks at an instant, and whether ranks wait for each other by turns."""

from __future__ import annotations

from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.job import JobTimeline, Observation
from perfdoctor.timeline.processes import Process

# As many samples determine fractions to a few hundredths; each asks for the location of every rank.
_SAMPLES = 200


class CollectiveWaits:
    """Answers for one recording."""

    def __init__(self, job: JobTimeline) -> None:
        self._job = job
        self._late_waits: dict[int, float] = {}

    def holds(self, seen: Observation) -> bool:
        """Whether a trainer is in a collective, waiting or at a collective's own arithmetic."""
        if seen.is_runnable:
            # That runs on the main thread for moments only.
            return seen.location.detail == "collective"
        return not seen.is_blocked and not seen.is_gone and self.is_waited_in(seen)

    def is_waited_in(self, seen: Observation) -> bool:
        """Whether a trainer that is asleep waits for other ranks."""
        if self._job.processes.world_size < 2 or seen.is_runnable or seen.is_blocked:
            return False
        location = seen.location
        if location.detail == "collective":
            return True
        if seen.syscall != "futex" or location.waits:
            return False
        # DistributedDataParallel waits inside backward (and forward, for buffers) without a frame of its own.
        if location.phase in ("backward", "forward", "optimizer"):
            return not self._job.kinds.pool_works(seen.pid, seen.time_ns)
        return self._only_ranks_are_left(seen, location)

    def _only_ranks_are_left(self, seen: Observation, location: CodeLocation) -> bool:
        """Where steps are shorter than the time between two stacks, the code that goes with a wait is not known.

        But if nobody in this process can hold a lock, since every other Python thread waits in a futex too, the other
        ranks are who else it waits for.
        """
        python = self._job.gil.python_threads(seen.pid)
        others = (thread for thread in self._job.threads.besides_main(seen.pid) if thread.tid in python)
        states = (thread.at(seen.time_ns) for thread in others)
        return location.phase == "other" and not any(not state.is_gone and state.syscall != "futex" for state in states)

    def late(self, waiting: Process, time_ns: int) -> tuple[list[Process], list[Process]]:
        """Other ranks that live at an instant, and those of them that are not in the collective."""
        others = [
            other for other in self._job.processes.trainers if other.pid != waiting.pid and other.alive_at(time_ns)
        ]
        return others, [other for other in others if not self.holds(self._job.observe(other, time_ns))]

    def mutual(self, waiting: Process, late: Process) -> float:
        """How far a wait for a late rank, while an exchange is under way, is for what is exchanged.

        DistributedDataParallel exchanges gradients while main threads are still in the backward pass. Ranks that wait
        for each other by turns wait for bytes of other layers then, although one of them still computes. A rank
        that others wait for, and that waits for nobody, hides the exchange behind its own work.
        """
        spent = self._waits_for_late_ranks(waiting)
        return min(1.0, self._waits_for_late_ranks(late) / spent) if spent else 0.0

    def _waits_for_late_ranks(self, trainer: Process) -> float:
        """Fraction of a trainer's samples in which it waits while another rank is not in the collective."""
        if trainer.pid not in self._late_waits:
            times = self._job.threads.main_times(trainer.pid, most=_SAMPLES)
            others = [other for other in self._job.processes.trainers if other.pid != trainer.pid]
            waits = sum(
                self.holds(self._job.observe(trainer, time))
                and not all(self.holds(self._job.observe(other, time)) for other in others)
                for time in times
            )
            self._late_waits[trainer.pid] = waits / (len(times) or 1)
        return self._late_waits[trainer.pid]
