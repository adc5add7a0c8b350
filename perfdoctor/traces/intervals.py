"""Sets of time, as sorted intervals, and ranges that nest on their threads: which is the innermost at a moment?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perfdoctor.traces.model import Bools, HostRanges, Int32s, distinct, is_among

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
        """Where the depth is as wanted: this set counts 1, the other one its weight."""
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
    return np.interp(times, *sum_up(start, end, amounts)) if len(start) else np.zeros(len(times))


def sum_up(start: Int64s, end: Int64s, amounts: Floats) -> tuple[Int64s, Floats]:
    """Moments, and how much lies before each of amounts that are spread so; between two of them it grows evenly."""
    length = np.maximum(end - start, 1)
    edges = np.concatenate((start, start + length))
    steps = np.concatenate((amounts / length, -amounts / length))
    order = np.argsort(edges, kind="stable")
    slopes = np.cumsum(steps[order])[:-1]
    return edges[order], np.concatenate(([0.0], np.cumsum(slopes * np.diff(edges[order]))))


NONE = -1  # stands for the number of an interval where there is none


class Nesting:
    """Some ranges of a table.

    Attributes:
        rows: of the table, in order of thread and start; what encloses others comes before them.
        parent: for each, which one encloses it most closely: an index into ``rows``, or ``NONE``.
    """

    def __init__(self, rows: Int64s, start: Int64s, end: Int64s, thread: Int32s) -> None:
        """Sorts them out.

        Args:
            rows: which rows of the table; those without duration enclose nothing and are left out.
            start: of all rows of the table, as are the following.
            end: not before the start.
            thread: ranges of different threads have nothing to do with each other.
        """
        rows = rows[end[rows] > start[rows]]
        # One axis for all threads, each on a stretch of its own.
        self._stretch = int(end[rows].max()) + 1 if len(rows) else 1
        self._threads = distinct(thread[rows])
        key = self._key(thread[rows], start[rows])
        order = np.lexsort((-end[rows], key))
        self.rows = rows[order]
        self._start = key[order]
        self._end = self._start + (end - start)[self.rows]
        self.parent = self._find_parents()
        self._edges, self._state = self._find_states()

    def __len__(self) -> int:
        return len(self.rows)

    def innermost(self, thread: Int64s | Int32s, time: Int64s) -> Int64s:
        """For each of many moments of some thread, the row of the table that is innermost then, or ``NONE``."""
        if not len(self.rows):
            return np.full(len(time), NONE, dtype=np.int64)
        known = is_among(thread, self._threads) & (time >= 0) & (time < self._stretch)
        place = np.searchsorted(self._edges, self._key(thread, time), side="right") - 1
        state = np.where(known & (place >= 0), self._state[place], NONE)
        return np.where(state == NONE, NONE, self.rows[state])

    def outermost(self, count: int) -> Int64s:
        """For each of the ``count`` rows of the table, the row of what encloses it and is enclosed by nothing.

        ``NONE`` for rows that are not among these.
        """
        root = self.around(np.arange(len(self.rows)), np.ones(len(self.rows), dtype=np.bool_))
        found = np.full(count, NONE, dtype=np.int64)
        found[self.rows] = self.rows[root]
        return found

    def around(self, of: Int64s, passed: Bools) -> Int64s:
        """For each of some ranges the innermost one around it, or itself, that is not passed over.

        Args:
            of: which ones, as indices into ``rows``.
            passed: of all ranges, which to pass over; where nothing else encloses one, its outermost counts.
        """
        while (inner := passed[of] & (self.parent[of] != NONE)).any():
            of = np.where(inner, self.parent[of], of)
        return of

    def own_time(self) -> Floats:
        """Nanoseconds of each range that are in none that it encloses, in the order of ``rows``."""
        length = (self._end - self._start).astype(np.float64)
        enclosed = self.parent != NONE
        inner = np.bincount(self.parent[enclosed], weights=length[enclosed], minlength=len(length))
        return np.asarray(np.maximum(length - inner, 0.0))

    def stretches(self) -> tuple[Int64s, Int64s, Int64s]:
        """When each range is the innermost one, which may be several times.

        Returns:
            Which one, as an index into ``rows``; start and end. In order of thread and time.
        """
        lasts, of = np.diff(self._edges), self._state[:-1]
        kept = (of != NONE) & (lasts > 0)
        start = self._edges[:-1][kept] % self._stretch
        return of[kept], start, start + lasts[kept]

    def inside(self, start: int, end: int) -> Bools:
        """Which of ``rows`` begin in a span."""
        offset = self._start % self._stretch
        return np.asarray((offset >= start) & (offset < end))

    def _key(self, thread: Int64s | Int32s, time: Int64s) -> Int64s:
        return np.asarray(np.searchsorted(self._threads, thread) * self._stretch + time, dtype=np.int64)

    def _find_parents(self) -> Int64s:
        parent = np.full(len(self.rows), NONE, dtype=np.int64)
        depth = np.arange(len(self.rows)) - np.searchsorted(np.sort(self._end), self._start, side="right")
        by_depth = np.argsort(depth, kind="stable")
        cuts = np.flatnonzero(np.diff(depth[by_depth])) + 1
        levels = np.split(by_depth, cuts)
        for outer, inner in pairwise(levels):
            place = np.searchsorted(self._start[outer], self._start[inner], side="right") - 1
            candidate = outer[np.maximum(place, 0)]
            encloses = (place >= 0) & (candidate < inner) & (self._end[candidate] > self._start[inner])
            parent[inner] = np.where(encloses, candidate, NONE)
        return parent

    def _find_states(self) -> tuple[Int64s, Int64s]:
        """Moments at which the innermost range changes, and which one it is from then on."""
        # At one moment inner ranges end before outer ones, and all ends come before starts.
        edges = np.concatenate((self._end[::-1], self._start))
        state = np.concatenate((self.parent[::-1], np.arange(len(self.rows))))
        order = np.argsort(edges, kind="stable")
        return edges[order], state[order]


def nest(host: HostRanges, wanted: Bools) -> Nesting:
    """How some of the ranges on the host nest."""
    return Nesting(np.flatnonzero(wanted), host.start, host.end, host.thread)
