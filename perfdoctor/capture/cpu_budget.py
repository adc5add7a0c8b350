"""Keeps perfdoctor's own CPU time, its helpers' included, within its budget, by looking less often and at less."""

import os
import time
from collections.abc import Callable, Container, Iterator

from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, stat_fields
from perfdoctor.recording.clock import NS_PER_S, helpers_s, seconds
from perfdoctor.recording.schema import Event

# Of one core, for all that perfdoctor does while it watches: DESIGN allows 5 %, and the end costs something as well.
BUDGET = 0.046
# Threads that train are sampled so often at least.
SLOWEST_HZ = 20.0
# Probes with a shorter period are slowed down first. Where things are thinned, so are those that read counters, which
# have this period or a longer one, but not beyond the last figure, and stacks, whose period lies between, to a half.
FAST_S, COUNTERS_S, RAREST_S = 0.03, 0.4, 2.0
# The slower probes take their turns within this time, and what is committed is.
_EVERY_NS = NS_PER_S // 2
# What was used meanwhile is no more than a hint for the time that follows.
_STEP = 1.5
# What was used too much is made up for within this time, with at least this part of the budget left.
_MADE_UP_S, _LEFT = 5.0, 0.3
# Helpers use their time in bursts: their mean counts, over this time at least.
_HELPERS_S = 4.0
_LEAST_SHARE = 0.01
# A mean rate below this part of the intended one is reported.
_WORTH_REPORTING = 0.9


class Used:
    """CPU time in nanoseconds.

    Attributes:
        own: of this process.
        helpers: of its children, those that have ended and those that run.
    """

    def __init__(self, own: int, helpers: int) -> None:
        self.own, self.helpers = own, helpers


def used_so_far(but: Container[int]) -> Used:
    """What perfdoctor has used since it was started.

    Args:
        but: children that are no helpers, since they belong to the job.
    """
    running = sum(_ticks_of(child) for child in _children() if child not in but)
    helpers = round((helpers_s() + running / CLOCK_TICKS_PER_S) * NS_PER_S)
    return Used(time.process_time_ns(), helpers)


def _children() -> Iterator[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            yield from map(int, file.read().split())
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return


def _ticks_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            user, system = stat_fields(file.read())[11:13]
    except OSError:
        return 0
    return int(user) + int(system)


class Governor:
    """Says how often probes are to look, and at how much.

    What a sample costs depends on the job, which owns the caches and may have thousands of threads: it can only be
    measured on the spot.

    Args:
        fastest_hz: the rate at which the fast probes sample when nothing is stretched.

    Attributes:
        stretch: of the fast probes' periods; 1 where the budget suffices.
        share: of what probes can do without, which is thinned once they are as slow as they may be.
    """

    def __init__(self, fastest_hz: float) -> None:
        self.stretch = self.share = 1.0
        self._fastest_hz = fastest_hz
        self._slowest = max(fastest_hz / SLOWEST_HZ, 1.0)
        self._pressure = 1.0
        self._rates_hz: list[float] = []
        self._began_ns = self._since_ns = 0
        self._at_first = self._before = Used(0, 0)

    def begin(self, now_ns: int, used: Used) -> None:
        """Counts from here on."""
        self._began_ns = self._since_ns = now_ns
        self._at_first = self._before = used

    def govern(self, now_ns: int, measure: Callable[[], Used]) -> None:
        """Twice a second: adapts both to the CPU time that was used.

        Args:
            now_ns: the time.
            measure: what says how much that is.
        """
        elapsed = now_ns - self._since_ns
        if elapsed < _EVERY_NS:
            return
        used = measure()
        helpers = used.helpers - self._at_first.helpers
        watched_ns = now_ns - self._began_ns
        lately = (used.own - self._before.own) / elapsed + helpers / max(watched_ns, _HELPERS_S * NS_PER_S)
        too_much_ns = used.own - self._at_first.own + helpers - BUDGET * watched_ns
        affordable = max(BUDGET - max(0.0, seconds(too_much_ns)) / _MADE_UP_S, _LEFT * BUDGET)
        self._since_ns, self._before = now_ns, used
        self._rates_hz.append(self._fastest_hz / self.stretch)
        self._pressure *= min(max(lately / affordable, 1 / _STEP), _STEP)
        self._pressure = min(max(self._pressure, 1.0), self._slowest / _LEAST_SHARE)
        self.stretch = min(self._pressure, self._slowest)
        self.share = self.stretch / self._pressure

    def period_s(self, period_s: float) -> float:
        """The period of a probe that would have this one in a small job."""
        if period_s < FAST_S:
            return period_s * self.stretch
        rarest_s = max(period_s, RAREST_S) if period_s >= COUNTERS_S else 2 * period_s
        return min(period_s / self.share, rarest_s)

    def report(self, now_ns: int) -> Iterator[Event]:
        """At the end: the mean rate, where it was lowered."""
        mean_hz = sum(self._rates_hz) / len(self._rates_hz) if self._rates_hz else self._fastest_hz
        if mean_hz < _WORTH_REPORTING * self._fastest_hz:
            text = f"threads were sampled at {mean_hz:.0f} Hz instead of {self._fastest_hz:.0f}"
            yield Event(now_ns, "rate lowered", f"{text}: more would have cost over {BUDGET:.1%} of a core")
