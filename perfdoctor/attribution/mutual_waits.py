"""Whether ranks wait for each other by turns, or always for the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.threads import Timelines

# As many looks tell fractions to a few hundredths; each asks for the place of every rank.
_LOOKS = 200


class Turns:
    """Answers for one recording.

    Args:
        timelines: of all threads.
        trainers: all ranks.
        in_collective: whether a rank waits for others at an instant.
    """

    def __init__(
        self, timelines: Timelines, trainers: Sequence[Process], in_collective: Callable[[Process, int], bool]
    ) -> None:
        self._timelines, self._trainers, self._in_collective = timelines, trainers, in_collective
        self._known: dict[int, float] = {}

    def mutual(self, waiting: Process, late: Process) -> float:
        """How far a wait for a late rank, while an exchange is under way, is for what is exchanged.

        DistributedDataParallel exchanges gradients while main threads are still in the backward pass. Ranks that wait
        for each other by turns wait for bytes of other layers then, although one of them still computes. A rank
        that others wait for, and that waits for nobody, hides the exchange behind its own work.
        """
        spent = self._late_waits(waiting)
        return min(1.0, self._late_waits(late) / spent) if spent else 0.0

    def _late_waits(self, trainer: Process) -> float:
        """Fraction of a trainer's samples in which it waits while another rank is not in the collective."""
        if trainer.pid not in self._known:
            times = self._timelines.main_times(trainer.pid, most=_LOOKS)
            others = [other for other in self._trainers if other.pid != trainer.pid]
            waits = (
                self._in_collective(trainer, time) and not all(self._in_collective(other, time) for other in others)
                for time in times
            )
            self._known[trainer.pid] = sum(waits) / (len(times) or 1)
        return self._known[trainer.pid]
