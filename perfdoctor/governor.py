"""Keeps perfdoctor's own CPU time within its budget, by looking less often."""

from collections.abc import Iterator

from perfdoctor.clock import NS_PER_S
from perfdoctor.samples import Event

# Of one core, for everything but py-spy, which has a budget of its own: DESIGN allows 5 % for both.
BUDGET = 0.026
SLOWEST_HZ = 5.0
# Probes with a longer period are not worth slowing down.
FAST_S = 0.1
_EVERY_NS = NS_PER_S
# What was used in one second is no more than a hint, and the next one may be different.
_STEP = 1.5


class Governor:
    """Says by how much the periods of the fast probes are to be stretched.

    What the CPU time of a look is depends on the job, which owns the caches: it can only be measured on the spot.

    Args:
        fastest_hz: the rate at which the fast probes look when nothing is stretched.

    Attributes:
        stretch: 1 where the budget suffices.
    """

    def __init__(self, fastest_hz: float) -> None:
        self.stretch = 1.0
        self._fastest_hz = fastest_hz
        self._told = 1.0
        self._since_ns = self._used_ns = 0

    def begin(self, now_ns: int, used_ns: int) -> None:
        """Counts from here on, with ``used_ns`` of CPU time used so far."""
        self._since_ns, self._used_ns = now_ns, used_ns

    def govern(self, now_ns: int, used_ns: int) -> Iterator[Event]:
        """Once a second: adapts the stretch, and tells when it is larger than ever."""
        elapsed = now_ns - self._since_ns
        if elapsed < _EVERY_NS:
            return
        share = (used_ns - self._used_ns) / elapsed
        self.begin(now_ns, used_ns)
        step = min(max(share / BUDGET, 1 / _STEP), _STEP)
        self.stretch = min(max(self.stretch * step, 1.0), self._fastest_hz / SLOWEST_HZ)
        if self.stretch > self._told * 1.25:
            self._told = self.stretch
            rate = self._fastest_hz / self.stretch
            text = f"threads are sampled at {rate:.0f} Hz, since perfdoctor used {share:.1%} of a core"
            yield Event(now_ns, "rate lowered", text)
