"""Keeps perfdoctor's own CPU time within its budget, by sampling less often."""

from collections.abc import Iterator

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Event

# Of one core, for everything but py-spy, which has a budget of its own: DESIGN allows 5 % for both.
BUDGET = 0.026
SLOWEST_HZ = 5.0
# Probes with a longer period are not worth slowing down.
FAST_S = 0.1
# The slower probes take their turns within this time, and what is committed is.
_EVERY_NS = NS_PER_S // 2
# What was used meanwhile is no more than a hint for the time that follows.
_STEP = 1.5
# A mean rate below this part of the intended one is reported.
_WORTH_REPORTING = 0.9


class Governor:
    """Says by how much the periods of the fast probes are to be stretched.

    What a sample costs depends on the job, which owns the caches: it can only be measured on the spot.

    Args:
        fastest_hz: the rate at which the fast probes sample when nothing is stretched.

    Attributes:
        stretch: 1 where the budget suffices.
    """

    def __init__(self, fastest_hz: float) -> None:
        self.stretch = 1.0
        self._fastest_hz = fastest_hz
        self._rates_hz: list[float] = []
        self._since_ns = self._used_ns = 0

    def begin(self, now_ns: int, used_ns: int) -> None:
        """Counts from here on, with ``used_ns`` of CPU time used so far."""
        self._since_ns, self._used_ns = now_ns, used_ns

    def govern(self, now_ns: int, used_ns: int) -> None:
        """Twice a second: adapts the stretch to the CPU time that was used."""
        elapsed = now_ns - self._since_ns
        if elapsed < _EVERY_NS:
            return
        step = (used_ns - self._used_ns) / elapsed / BUDGET
        self.begin(now_ns, used_ns)
        self._rates_hz.append(self._fastest_hz / self.stretch)
        self.stretch *= min(max(step, 1 / _STEP), _STEP)
        self.stretch = min(max(self.stretch, 1.0), max(self._fastest_hz / SLOWEST_HZ, 1.0))

    def report(self, now_ns: int) -> Iterator[Event]:
        """At the end: the mean rate, where it was lowered."""
        mean_hz = sum(self._rates_hz) / len(self._rates_hz) if self._rates_hz else self._fastest_hz
        if mean_hz < _WORTH_REPORTING * self._fastest_hz:
            text = f"threads were sampled at {mean_hz:.0f} Hz instead of {self._fastest_hz:.0f}"
            yield Event(now_ns, "rate lowered", f"{text}: more would have cost over {BUDGET:.1%} of a core")
