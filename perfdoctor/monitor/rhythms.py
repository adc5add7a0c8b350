"""Losses of time that recur, whatever makes them: their rhythm, in steps or by the clock, and what they take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from perfdoctor.knowledge import thresholds

# Fewer show no rhythm.
FEWEST = 4
# A rhythm is over that has missed more of its gaps.
MISSED_GAPS = 10
# Two kinds are distinguished where the lengths between them are missing by this factor.
_OTHER_KIND = 2.0
_PER_DEVIATION = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


class Loss(NamedTuple):
    """Time that the training has lost at once: in a long step, while it was slower, or while it was not there.

    Attributes:
        at: when it began, in seconds since 1970, and ``ended`` when it was over.
        lost_s: the seconds that were lost meanwhile.
        number: how many steps of the job were counted before it; None where that is not known.
    """

    at: float
    ended: float
    lost_s: float
    number: int | None = None

    @property
    def depth(self) -> float:
        """Of the time while it lasted, what was lost."""
        return self.lost_s / (self.ended - self.at)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Losses of one kind.

    Attributes:
        losses: them.
        every_steps: after so many steps another one comes; None where they keep no rhythm, or that of the clock.
        every_s: after so many seconds; None where they keep no rhythm.
        by_the_clock: the gaps in seconds are more alike than those in steps, so that the job is not what sets them.
    """

    losses: tuple[Loss, ...]
    every_steps: float | None
    every_s: float | None
    by_the_clock: bool

    @property
    def lost_s(self) -> float:
        """How many seconds each takes, as a mean."""
        return statistics.fmean(loss.lost_s for loss in self.losses)

    @property
    def lasted_s(self) -> float:
        """Over how many seconds each of them goes, as a mean."""
        return statistics.fmean(loss.ended - loss.at for loss in self.losses)

    @property
    def share(self) -> float:
        """Of the wall time, what they take."""
        first, last = self.losses[0], self.losses[-1]
        return sum(loss.lost_s for loss in self.losses[:-1]) / (last.at - first.at) if last.at > first.at else 0.0

    def is_next(self, at: float, depth: float) -> bool:
        """Whether a loss that begins now, and may go on, comes when another one is due, and is no deeper than these."""
        if self.every_s is None:
            return False
        gaps = (at - self.losses[-1].at) / self.every_s
        is_due = 1 <= round(gaps) <= MISSED_GAPS and abs(gaps - round(gaps)) <= thresholds.REGULAR_GAPS
        return is_due and depth <= _OTHER_KIND * self.lost_s / self.lasted_s


def rhythms(losses: Sequence[Loss]) -> list[Rhythm]:
    """The kinds of losses that keep a rhythm, or take much of the time; those that take most first.

    Args:
        losses: in order of time.
    """
    kinds = [_rhythm(kind) for kind in _kinds(losses) if len(kind) >= FEWEST]
    kept = [kind for kind in kinds if kind.every_s is not None or kind.share >= thresholds.RECURRING_SHARE]
    return sorted(kept, key=lambda kind: -kind.share)


def together(losses: Sequence[Loss]) -> list[Rhythm]:
    """All losses as one kind, whatever they take each, if that is much of the time together; none where it is not."""
    found = [_rhythm(losses)] if len(losses) >= FEWEST else []
    return [kind for kind in found if kind.share >= thresholds.RECURRING_SHARE]


def _kinds(losses: Sequence[Loss]) -> list[list[Loss]]:
    """By how long they take."""
    ordered = sorted(loss.lost_s for loss in losses)
    borders = [after for before, after in pairwise(ordered) if after > _OTHER_KIND * before]
    found: list[list[Loss]] = [[] for _ in range(len(borders) + 1)]
    for loss in losses:
        found[sum(loss.lost_s >= border for border in borders)].append(loss)
    return found


def _rhythm(kind: Sequence[Loss]) -> Rhythm:
    in_steps, in_seconds = _gaps(kind)
    of_steps, of_seconds = _spread(in_steps), _spread(in_seconds)
    regular = min(of_steps, of_seconds) <= thresholds.REGULAR_GAPS
    # Where the pace has changed once, most gaps are alike in both: here all of them count.
    by_the_clock = regular and bool(in_steps) and _mean_deviation(in_seconds) < _mean_deviation(in_steps) / 2
    return Rhythm(
        losses=tuple(kind),
        every_steps=statistics.median(in_steps) if regular and in_steps and not by_the_clock else None,
        every_s=statistics.median(in_seconds) if regular else None,
        by_the_clock=by_the_clock,
    )


def _gaps(kind: Sequence[Loss]) -> tuple[list[int], list[float]]:
    """Those between losses, in steps, none where these are not known, and in seconds."""
    in_steps, in_seconds = [], []
    for before, after in pairwise(kind):
        if before.number is None or after.number is None:
            in_seconds.append(after.at - before.at)
        elif after.number > before.number:  # numbers start anew where the job does: what lies between is no gap
            in_steps.append(after.number - before.number)
            in_seconds.append(after.at - before.at)
    return in_steps, in_seconds


def _spread(gaps: Sequence[float]) -> float:
    """How much gaps vary, as a fraction of the median one; infinite where too few are known."""
    if len(gaps) < FEWEST - 1:
        return float("inf")
    usual = statistics.median(gaps)
    return _PER_DEVIATION * statistics.median(abs(gap - usual) for gap in gaps) / usual


def _mean_deviation(gaps: Sequence[float]) -> float:
    usual = statistics.median(gaps)
    return statistics.fmean(abs(gap - usual) for gap in gaps) / usual
