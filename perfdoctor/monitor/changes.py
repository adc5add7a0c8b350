"""When a level changes: of the pace of a job, beat by beat, or of a share of its time, window by window.

Some points that came last are held against the level before them, at several scales: one alone, which shows a large
change at once, and means of several, which show a small one. The level's own variation and how much its neighbours
depend on each other (``perfdoctor.compare.estimates``) say what may be chance; points under suspicion are no part of
the level yet. What returns was a dip, what stays is the new level.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from perfdoctor.compare.estimates import Estimate, Ratio, dependence, difference
from perfdoctor.knowledge import thresholds


class LevelPoint(NamedTuple):
    """A value, and when what it is about began and ended, in seconds since 1970."""

    began: float
    ended: float
    value: float


class ChangeState(Enum):
    """What is known of a change: it has been seen, was over again, or has stayed."""

    SEEN = auto()
    OVER = auto()
    STAYS = auto()


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of the level.

    Attributes:
        since: when the first point off the level began.
        until: when the last one ended, where it is over.
        before: the mean before.
        after: the mean meanwhile.
    """

    state: ChangeState
    since: float
    until: float | None
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Scales:
    """How changes are looked for.

    Attributes:
        least: by how many points are looked at together, the least change that counts.
        fewest: points that make a level, against which large changes can be detected.
        enough: points of which small ones can, too: fewer do not show how far they depend on each other.
        most: points of it that are remembered.
        settled: points after which a change has stayed.
        back: points at the old level after which it is over.
        newest: points that came last and are no part of the level yet, as they may be off.
    """

    least: dict[int, float]
    fewest: int
    enough: int
    most: int
    settled: int
    back: int
    newest: int = 16


OF_PACE = Scales(
    {1: thresholds.CHANGED_BEAT, 4: thresholds.CHANGED_PACE, 16: thresholds.CHANGED_PACE}, 6, 24, 120, 20, 4
)
OF_SHARES = Scales({1: thresholds.CHANGED_WINDOW, 3: thresholds.CHANGED_SHARE}, 6, 12, 60, 6, 2)


class Level:
    """The level of something, and its changes.

    Args:
        scales: how changes are looked for.
    """

    def __init__(self, scales: Scales) -> None:
        self._scales = scales
        self._known: deque[LevelPoint] = deque(maxlen=scales.most)
        self._newest: list[LevelPoint] = []
        self._off: list[LevelPoint] = []

    def take(self, point: LevelPoint) -> LevelChange | None:
        """What the next point changes in what is known; None where nothing."""
        if self._off:
            return self._go_on(point)
        if len(self._known) < self._scales.fewest:
            self._known.append(point)
            return None
        self._newest.append(point)
        if any(self._is_off(count, least) for count, least in self._scales.least.items()) or self._is_beyond():
            first = self._first_off()
            self._known.extend(self._newest[:first])
            self._off, self._newest = self._newest[first:], []
            return self._change(ChangeState.SEEN)
        if len(self._newest) > self._scales.newest:
            self._known.append(self._newest.pop(0))
        return None

    @property
    def going_on(self) -> LevelChange | None:
        """The change that was seen, as it is known by now; None where none is, or where it is over or has stayed."""
        return self._change(ChangeState.SEEN) if self._off else None

    def _is_off(self, count: int, least: float) -> bool:
        """Whether the last points together are off the level, by more than is chance."""
        if len(self._newest) < count:
            return False
        level = [point.value for point in self._known]
        mean = statistics.fmean(level)
        off_by = _mean(self._newest[-count:]) - mean
        if abs(off_by) < (least if len(level) >= self._scales.enough else max(self._scales.least.values())):
            return False
        before = Ratio(level, [1.0] * len(level)).estimate(dependence([value - mean for value in level]))
        variance = (before.variance or 0.0) * len(level) / count
        after = Estimate(mean + off_by, variance, before.freedom)
        found = difference(before, after, 1 - thresholds.FALSE_ALARM)
        return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)

    def _is_beyond(self) -> bool:
        """Whether the last points are all beyond all others, in an order that is no chance, and far from their mean.

        However much a level varies: of 21 points without a change, the last eight are the largest or the smallest once
        in 100,000 times (Mann and Whitney 1947), and of the fewest, the last 16 once in 37,000 times.
        """
        values = [point.value for point in (*self._known, *self._newest)]
        for count in range(1, len(self._newest) + 1):
            before, last = values[:-count], values[-count:]
            rare = 2 / math.comb(len(values), count) <= thresholds.FALSE_ALARM or count >= self._scales.newest
            if rare and (min(last) > max(before) or max(last) < min(before)):
                off_by = abs(statistics.fmean(last) - statistics.fmean(before))
                if off_by >= max(self._scales.least.values()):
                    return True
        return False

    def _first_off(self) -> int:
        """Among the newest points the first that is off: where two levels fit best."""
        mean = _mean(self._known)

        def misfit(first: int) -> float:
            after = _mean(self._newest[first:])
            return sum((point.value - (after if at >= first else mean)) ** 2 for at, point in enumerate(self._newest))

        return min(range(len(self._newest)), key=misfit)

    def _go_on(self, point: LevelPoint) -> LevelChange | None:
        self._off.append(point)
        back = self._scales.back
        if len(self._off) > back and self._has_returned(self._off[-back:], self._off[:-back]):
            returned = self._off[-back:]
            del self._off[-back:]
            over = self._change(ChangeState.OVER)
            self._off, self._newest = [], returned
            return over
        if len(self._off) < self._scales.settled:
            return None
        stays = self._change(ChangeState.STAYS)
        self._known = deque(self._off, maxlen=self._scales.most)
        self._off = []
        return stays

    def _has_returned(self, last: Sequence[LevelPoint], others: Sequence[LevelPoint]) -> bool:
        before, off, now = _mean(self._known), _mean(others), _mean(last)
        change = abs(off - before)
        return abs(now - before) < min(change / 2, max(min(self._scales.least.values()), change / 4))

    def _change(self, state: ChangeState) -> LevelChange:
        until = self._off[-1].ended if state is ChangeState.OVER else None
        # The first point may be of both levels.
        return LevelChange(state, self._off[0].began, until, _mean(self._known), _mean(self._off[1:] or self._off))


def _mean(points: Sequence[LevelPoint] | deque[LevelPoint]) -> float:
    return statistics.fmean(point.value for point in points)
