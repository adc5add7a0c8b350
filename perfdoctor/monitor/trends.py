"""Slow drift: whether a number rises or falls over hours, by more than it varies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from perfdoctor.knowledge import thresholds
from perfdoctor.monitor.changes import LevelPoint

# As many batches tell a trend from chance, and hardly depend on each other.
_BATCHES = 24
_PER_BATCH = 4
# So many points are remembered; beyond that each two become one.
_MOST = 960


@dataclass(frozen=True, slots=True)
class Trend:
    """A number that drifts.

    Attributes:
        since: when the first point began.
        first: where it was, in the first quarter of the time.
        last: where it is, in the last quarter.
        per_s: by how much it changes in a second, as the median of all pairs (Theil 1950, Sen 1968).
        lately_per_s: the same over the last half of the time.
    """

    since: float
    first: float
    last: float
    per_s: float
    lately_per_s: float


class BoundedSeries:
    """A number over days, in a bounded number of points."""

    def __init__(self) -> None:
        self._points: list[LevelPoint] = []
        self._joined, self._waiting = 1, list[LevelPoint]()

    def take(self, point: LevelPoint) -> None:
        """The next point."""
        self._waiting.append(point)
        if len(self._waiting) >= self._joined:
            self._points.append(_join(self._waiting))
            self._waiting = []
        if len(self._points) >= _MOST:
            self._points = [_join(self._points[at : at + 2]) for at in range(0, _MOST, 2)]
            self._joined *= 2

    @property
    def last(self) -> float | None:
        """The last value; None before the first."""
        newest = (self._waiting or self._points)[-1:]
        return newest[0].value if newest else None

    def clear(self) -> None:
        """Forgets all."""
        self._points, self._waiting, self._joined = [], [], 1

    def trend(self) -> Trend | None:
        """The trend in it; None where none can be distinguished from chance (Mann 1945, Kendall 1975)."""
        if len(self._points) < _BATCHES * _PER_BATCH:
            return None
        batches = [
            _join(self._points[len(self._points) * at // _BATCHES : len(self._points) * (at + 1) // _BATCHES])
            for at in range(_BATCHES)
        ]
        if abs(_tau([batch.value for batch in batches])) < thresholds.TREND:
            return None
        quarter = _BATCHES // 4
        return Trend(
            since=batches[0].began,
            first=statistics.median(batch.value for batch in batches[:quarter]),
            last=statistics.median(batch.value for batch in batches[-quarter:]),
            per_s=_slope(batches),
            lately_per_s=_slope(batches[_BATCHES // 2 :]),
        )


def _join(points: Sequence[LevelPoint]) -> LevelPoint:
    return LevelPoint(points[0].began, points[-1].ended, statistics.fmean(point.value for point in points))


def _tau(values: Sequence[float]) -> float:
    """Kendall's tau with the order: 1 where each is larger than the one before."""
    signs = [(later > earlier) - (later < earlier) for earlier, later in combinations(values, 2)]
    return sum(signs) / len(signs)


def _slope(points: Sequence[LevelPoint]) -> float:
    return statistics.median(
        (later.value - earlier.value) / (later.began - earlier.began) for earlier, later in combinations(points, 2)
    )
