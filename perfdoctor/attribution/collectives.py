"""Whether a trainer waits for other ranks at an instant, which of them are late, and whether ranks wait by turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfdoctor.timeline.code_location import EXCHANGING_PHASES, CodeLocation
from perfdoctor.timeline.job import JobTimeline, Observation
from perfdoctor.timeline.processes import Process

# As many samples determine fractions to a few hundredths; each asks for the location of every rank.
_SAMPLES = 200


class CollectiveWaits:
    """Answers for the trainers of one host.

    Attributes:
        job: as it was watched there.
    """

    def __init__(self, job: JobTimeline) -> None:
        self.job = job

    def holds(self, seen: Observation) -> bool:
        """Whether a trainer is in a collective, waiting or at a collective's own arithmetic."""
        if seen.is_runnable:
            # That runs on the main thread for moments only.
            return seen.location.detail == "collective"
        return not seen.is_blocked and not seen.is_gone and self.is_waited_in(seen)

    def is_waited_in(self, seen: Observation) -> bool:
        """Whether a trainer that is asleep waits for other ranks."""
        if self.job.processes.world_size < 2 or seen.is_runnable or seen.is_blocked:
            return False
        location = seen.location
        if location.detail == "collective":
            return True
        if seen.syscall != "futex" or location.waits:
            return False
        if location.phase in EXCHANGING_PHASES:
            return not self.job.kinds.pool_works(seen.pid, seen.time_ns)
        return self._only_ranks_are_left(seen, location)

    def _only_ranks_are_left(self, seen: Observation, location: CodeLocation) -> bool:
        """Where steps are shorter than the time between two stacks, the code that goes with a wait is not known.

        But if nobody in this process can hold a lock, since every other Python thread waits in a futex too, the other
        ranks are who else it waits for.
        """
        python = self.job.gil.python_threads(seen.pid)
        others = (thread for thread in self.job.threads.besides_main(seen.pid) if thread.tid in python)
        states = (thread.at(seen.time_ns) for thread in others)
        return location.phase == "other" and not any(not state.is_gone and state.syscall != "futex" for state in states)


class SeenRank(NamedTuple):
    """A rank at an instant.

    Attributes:
        host: the number of the host that it runs on.
        seen: what it does.
    """

    host: int
    seen: Observation


class AllRanks:
    """All ranks of a job.

    Args:
        hosts: on which it was watched, on one clock.
    """

    def __init__(self, hosts: Sequence[CollectiveWaits]) -> None:
        self._hosts = hosts
        self._late_waits: dict[tuple[int, int], float] = {}

    def others(self, waiting: SeenRank) -> list[SeenRank]:
        """The other ranks that live at an instant, on whichever host."""
        time_ns = waiting.seen.time_ns
        return [
            SeenRank(number, host.job.observe(process, time_ns))
            for number, host in enumerate(self._hosts)
            for process in host.job.processes.trainers
            if (number, process.pid) != (waiting.host, waiting.seen.pid) and process.alive_at(time_ns)
        ]

    def late(self, ranks: Sequence[SeenRank]) -> list[SeenRank]:
        """Those of some ranks that are not in the collective."""
        return [rank for rank in ranks if not self._hosts[rank.host].holds(rank.seen)]

    def mutual(self, waiting: SeenRank, late: SeenRank) -> float:
        """How far a wait for a late rank, while an exchange is under way, is for what is exchanged.

        DistributedDataParallel exchanges gradients while main threads are still in the backward pass. Ranks that wait
        for each other by turns wait for bytes of other layers then, although one of them still computes. A rank
        that others wait for, and that waits for nobody, hides the exchange behind its own work.
        """
        spent = self._waits_for_late_ranks(waiting.host, waiting.seen.process)
        return min(1.0, self._waits_for_late_ranks(late.host, late.seen.process) / spent) if spent else 0.0

    def _waits_for_late_ranks(self, number: int, trainer: Process) -> float:
        """Fraction of a trainer's samples in which it waits while another rank is not in the collective."""
        key = number, trainer.pid
        if key not in self._late_waits:
            host = self._hosts[number]
            times = host.job.threads.main_times(trainer.pid, most=_SAMPLES)
            seen = (SeenRank(number, host.job.observe(trainer, time)) for time in times)
            waits = sum(host.holds(rank.seen) and bool(self.late(self.others(rank))) for rank in seen)
            self._late_waits[key] = waits / (len(times) or 1)
        return self._late_waits[key]
