"""Sets of time: sorted intervals that do not touch, and what can be done with them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of times, as half-open intervals.

    Attributes:
        start: ascending.
        end: same length; each end lies before the next start.
    """

    start: Int64s
    end: Int64s

    @classmethod
    def union(cls, start: Int64s, end: Int64s, *, joining: int = 0) -> Intervals:
        """The union of intervals that may overlap and come in any order.

        Args:
            start: where they begin.
            end: where they end; empty ones are dropped.
            joining: intervals that are at most this far apart become one.
        """
        wanted = end > start
        start, end = start[wanted], end[wanted]
        if len(start) == 0:
            return cls.none()
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        first = np.concatenate(([True], start[1:] > reach[:-1] + joining))
        last = np.concatenate((first[1:], [True]))
        return cls(start[first], reach[last])

    @classmethod
    def none(cls) -> Intervals:
        """The empty set."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def one(cls, start: int, end: int) -> Intervals:
        """A single interval."""
        return cls.union(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """The length of all together."""
        return int((self.end - self.start).sum())

    def __or__(self, other: Intervals) -> Intervals:
        """What is in one of them."""
        if not len(self) or not len(other):
            return self if len(self) else other
        return Intervals.union(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Intervals) -> Intervals:
        """What is in both."""
        return self._combined(other, weight=1, wanted=2) if len(self) and len(other) else Intervals.none()

    def __sub__(self, other: Intervals) -> Intervals:
        """What is in this one only."""
        return self._combined(other, weight=-1, wanted=1) if len(self) and len(other) else self

    def _combined(self, other: Intervals, *, weight: int, wanted: int) -> Intervals:
        """Where the depth is as wanted: this set counts 1, the other one as told."""
        edges = np.concatenate((self.start, self.end, other.start, other.end))
        steps = np.repeat(np.array([1, -1, weight, -weight]), [len(self), len(self), len(other), len(other)])
        order = np.argsort(edges, kind="stable")
        edges, depth = edges[order], np.cumsum(steps[order])
        inside = depth[:-1] == wanted
        return Intervals.union(edges[:-1][inside], edges[1:][inside])

    def before(self, times: Int64s) -> Int64s:
        """For each time, how much of the set lies before it."""
        if not len(self):
            return np.zeros(len(times), dtype=np.int64)
        summed = np.concatenate(([0], np.cumsum(self.end - self.start)))
        row = np.searchsorted(self.start, times, side="right")
        last = np.maximum(row - 1, 0)
        within = np.clip(times - self.start[last], 0, self.end[last] - self.start[last])
        return np.where(row == 0, 0, summed[last] + within).astype(np.int64)

    def summed(self) -> tuple[Floats, Floats]:
        """Moments, and how much of the set lies before each; between two of them it grows evenly."""
        lengths = np.cumsum(self.end - self.start, dtype=np.float64)
        edges = np.stack((self.start, self.end), axis=1).ravel().astype(np.float64)
        return edges, np.stack((lengths - (self.end - self.start), lengths), axis=1).ravel()

    def within(self, start: Int64s, end: Int64s) -> Int64s:
        """For each of many intervals, how much of the set lies in it."""
        return self.before(end) - self.before(start)


def spread(start: Int64s, end: Int64s, amounts: Floats, times: Int64s) -> Floats:
    """For each time, how much lies before it of amounts that are spread evenly over their spans, which may overlap."""
    if not len(start):
        return np.zeros(len(times))
    length = np.maximum(end - start, 1)
    edges = np.concatenate((start, start + length))
    steps = np.concatenate((amounts / length, -amounts / length))
    order = np.argsort(edges, kind="stable")
    slopes = np.cumsum(steps[order])[:-1]
    summed = np.concatenate(([0.0], np.cumsum(slopes * np.diff(edges[order]))))
    return np.interp(times, edges[order], summed)
