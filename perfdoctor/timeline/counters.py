"""Counters of a recording over time: how much each grew in any span."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass
class Counter:
    """A counter, or a level, over time; between two readings it is interpolated."""

    times_ns: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]

    def growth(self, from_ns: float, to_ns: float) -> float:
        """How much it grew in a span; where it began anew, what it fell by does not count."""
        first, last = np.searchsorted(self.times_ns, [from_ns, to_ns])
        ends = np.interp([from_ns, to_ns], self.times_ns, self.values)
        values = np.concatenate([ends[:1], self.values[first:last], ends[1:]])
        return float(np.maximum(np.diff(values), 0.0).sum())


class Counters:
    """All counters of a recording, by subject and name."""

    def __init__(self, series: Mapping[tuple[str, str], tuple[Sequence[int], Sequence[float]]]) -> None:
        self._series = {
            key: Counter(np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))
            for key, (times, values) in series.items()
        }

    def get(self, subject: str, name: str) -> Counter | None:
        """One counter; None if it was never read."""
        return self._series.get((subject, name))

    def growth(self, subject: str, name: str, from_ns: float = -math.inf, to_ns: float = math.inf) -> float:
        """How much one grew in a span, or all the time; 0 if it was never read."""
        counter = self.get(subject, name)
        return counter.growth(from_ns, to_ns) if counter is not None else 0.0

    def subjects(self, name: str) -> list[str]:
        """Subjects that have a counter of this name."""
        return [subject for subject, found in self._series if found == name]

    def median(self, name: str) -> float | None:
        """Median of all readings of a name; None if there are none."""
        found = [counter.values for (_, found), counter in self._series.items() if found == name]
        return float(np.median(np.concatenate(found))) if found else None
