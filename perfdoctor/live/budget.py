"""How much a live view may use of the CPU, and what is put off to keep to it."""

from __future__ import annotations

import time
from collections.abc import Callable

# Of one core, for reading, analysing and drawing together, as a mean since the view began.
BUDGET = 0.05
# Below the job's own, and high enough for a view every second: on a machine whose cores are all taken the lowest
# priority, 19, gets 1.5 % of one (sched(7): a weight of 15 beside 1024), which is half a minute for one diagnosis.
NICENESS = 10
# What may be used ahead of that, so that the first views come at once.
AHEAD_S = 0.3
# Views are made so often, or more rarely, so that they and their drawing leave half of the budget to diagnoses.
EVERY_S = 1.0
_OF_VIEWS = 0.5


class Throttle:
    """Says when something is to be done.

    Args:
        clock: seconds that pass.
        used: CPU seconds of this process so far.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._used = clock, used
        self._began_s, self._at_first_s = clock(), used()
        self._seen_s, self._diagnoses_s = self._at_first_s, 0.0

    def allows(self, cost_s: float) -> bool:
        """Whether a diagnosis that takes so many CPU seconds fits into the budget by now."""
        allowed_s = AHEAD_S + BUDGET * (self._clock() - self._began_s)
        return self._used() - self._at_first_s + cost_s <= allowed_s

    def diagnosed(self, cost_s: float) -> None:
        """A diagnosis has taken so many CPU seconds, which are no part of what views take."""
        self._diagnoses_s += cost_s

    def until_next_view(self) -> float:
        """Seconds from a view to the next one, by what has been used since this was last asked."""
        used_s = self._used()
        of_view_s = used_s - self._seen_s - self._diagnoses_s
        self._seen_s, self._diagnoses_s = used_s, 0.0
        return max(EVERY_S, of_view_s / (_OF_VIEWS * BUDGET))
