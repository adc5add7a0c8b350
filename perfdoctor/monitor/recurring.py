"""Long steps that recur: their rhythm, in steps or by the clock, and what they take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfdoctor.knowledge import thresholds
from perfdoctor.results.history import LongStep

# Fewer show no rhythm.
FEWEST = 4
# Two kinds are distinguished where the lengths between them are missing by this factor.
_OTHER_KIND = 2.0
_PER_DEVIATION = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Long steps of one kind.

    Attributes:
        steps: them.
        every_steps: after so many steps another one comes; None where they keep no rhythm, or that of the clock.
        every_s: after so many seconds; None where they keep no rhythm.
        by_the_clock: the gaps in seconds are more alike than those in steps, so that the job is not what sets them.
    """

    steps: tuple[LongStep, ...]
    every_steps: float | None
    every_s: float | None
    by_the_clock: bool

    @property
    def longer_s(self) -> float:
        """By how many seconds each is longer, as a mean."""
        return statistics.fmean(step.longer_s for step in self.steps)

    @property
    def share(self) -> float:
        """Of the wall time, what they take longer."""
        first, last = self.steps[0], self.steps[-1]
        return sum(step.longer_s for step in self.steps[:-1]) / (last.at - first.at) if last.at > first.at else 0.0


def rhythms(long: Sequence[LongStep]) -> list[Rhythm]:
    """The kinds of long steps that keep a rhythm, or take much of the time; those that take most first.

    Args:
        long: in order of time.
    """
    kinds = [_rhythm(kind) for kind in _kinds(long) if len(kind) >= FEWEST]
    kept = [kind for kind in kinds if kind.every_s is not None or kind.share >= thresholds.RECURRING_SHARE]
    return sorted(kept, key=lambda kind: -kind.share)


def _kinds(long: Sequence[LongStep]) -> list[list[LongStep]]:
    """By how long they take."""
    ordered = sorted(long, key=lambda step: step.longer_s)
    borders = [after.longer_s for before, after in pairwise(ordered) if after.longer_s > _OTHER_KIND * before.longer_s]
    found: list[list[LongStep]] = [[] for _ in range(len(borders) + 1)]
    for step in long:
        found[sum(step.longer_s >= border for border in borders)].append(step)
    return found


def _rhythm(kind: Sequence[LongStep]) -> Rhythm:
    # Numbers start anew where the job does: what lies between is no gap.
    pairs = [(before, after) for before, after in pairwise(kind) if after.number > before.number]
    in_steps = [after.number - before.number for before, after in pairs]
    in_seconds = [after.at - before.at for before, after in pairs]
    of_steps, of_seconds = _spread(in_steps), _spread(in_seconds)
    regular = min(of_steps, of_seconds) <= thresholds.REGULAR_GAPS
    # Where the pace has changed once, most gaps are alike in both: here all of them count.
    by_the_clock = regular and _mean_deviation(in_seconds) < _mean_deviation(in_steps) / 2
    return Rhythm(
        steps=tuple(kind),
        every_steps=statistics.median(in_steps) if regular and not by_the_clock else None,
        every_s=statistics.median(in_seconds) if regular else None,
        by_the_clock=by_the_clock,
    )


def _spread(gaps: Sequence[float]) -> float:
    """How much gaps vary, as a fraction of the median one; infinite where too few are known."""
    if len(gaps) < FEWEST - 1:
        return float("inf")
    usual = statistics.median(gaps)
    return _PER_DEVIATION * statistics.median(abs(gap - usual) for gap in gaps) / usual


def _mean_deviation(gaps: Sequence[float]) -> float:
    usual = statistics.median(gaps)
    return statistics.fmean(abs(gap - usual) for gap in gaps) / usual
