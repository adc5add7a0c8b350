"""How much of the CPU a watch for days may use, and when there is enough for another window."""

from __future__ import annotations

import time
from collections.abc import Callable

from perfdoctor.recording.clock import helpers_s

# Of one core, for the counting, the windows and the reports together: with what is used ahead the first hour stays
# below a hundredth.
BUDGET = 0.009
# What may be used ahead of that, so that the first windows come at once.
AHEAD_S = 3.0
# What may be saved up, in windows: no burst of them may become a burden to the job.
_SAVED = 5
# What a window costs before one was made, in CPU seconds (docs/monitor.md).
_COSTS_S = 1.5


def used_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return time.process_time() + helpers_s()


class Budget:
    """Says whether a window may be begun.

    Args:
        cores: how much may be used, of one core.
        clock: seconds that pass.
        used: CPU seconds so far.
    """

    def __init__(
        self,
        cores: float = BUDGET,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = used_s,
    ) -> None:
        self._cores, self._clock, self._used = cores, clock, used
        self._seen_s, self._seen_used_s = clock(), used()
        self._saved_s = AHEAD_S
        self._costs_s = _COSTS_S

    def costs(self, cost_s: float) -> None:
        """A window has taken so many CPU seconds."""
        self._costs_s = cost_s

    def allows(self, *, urgent: bool) -> bool:
        """Whether a window can be afforded; one that is not urgent leaves enough for one that is."""
        now_s, used = self._clock(), self._used()
        self._saved_s += self._cores * (now_s - self._seen_s) - (used - self._seen_used_s)
        self._saved_s = min(self._saved_s, max(AHEAD_S, _SAVED * self._costs_s))
        self._seen_s, self._seen_used_s = now_s, used
        return self._saved_s >= self._costs_s * (1 if urgent else 2)
