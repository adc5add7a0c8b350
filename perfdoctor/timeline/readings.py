"""Readings of a recording: how much a counter grew in a span, its rate, and the means of levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.hardware import SHARED_BY_INSTANCES
from perfdoctor.recording.clock import NS_PER_S

if TYPE_CHECKING:
    from perfdoctor.recording.reader import Recording


@dataclass
class Counter:
    """A counter, or a level, over time; between two readings it is interpolated."""

    times_ns: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]

    def growth(self, from_ns: float, to_ns: float) -> float:
        """How much it grew in a span; where it began anew, what it fell by does not count."""
        before, after = np.interp((from_ns, to_ns), self.times_ns, self._grown).tolist()
        return float(after - before)

    def growth_around(self, times_ns: npt.NDArray[np.float64], reach_ns: float) -> npt.NDArray[np.float64]:
        """The same for the spans that reach so far to both sides of some instants."""
        before, after = (np.interp(times_ns + side, self.times_ns, self._grown) for side in (-reach_ns, reach_ns))
        return np.asarray(after - before)

    @cached_property
    def _grown(self) -> npt.NDArray[np.float64]:
        """By how much it had grown at each reading since the first."""
        return np.concatenate([[0.0], np.maximum(np.diff(self.values), 0.0).cumsum()])


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


class Readings:
    """The readings and facts of one recording. Whatever was not measured is None, never zero.

    Args:
        recording: where they lie.
    """

    def __init__(self, recording: Recording) -> None:
        self._series = recording.series
        self.facts = recording.facts

    @cached_property
    def counters(self) -> Counters:
        """The same readings as counters."""
        return Counters(self._series)

    def subjects(self, prefix: str) -> list[str]:
        """Subjects that begin with a prefix such as ``gpu:``, sorted."""
        found = {subject for subject, _ in self._series} | {subject for subject, _ in self.facts}
        return sorted(subject for subject in found if subject.startswith(prefix))

    def growth(self, subject: str, name: str) -> tuple[float, float] | None:
        """By how much a counter grew and in how many seconds; None if not read twice. Resets are skipped."""
        times, _ = self.over_time(subject, name)
        if len(times) < 2 or times[-1] - times[0] < thresholds.SHORTEST_RATE_S * NS_PER_S:
            return None
        return self.counters.growth(subject, name), (times[-1] - times[0]) / NS_PER_S

    def rate(self, subject: str, name: str) -> float | None:
        """A counter's growth per second."""
        grown = self.growth(subject, name)
        return None if grown is None else grown[0] / grown[1]

    def ratio(self, subject: str, part: str, whole: str) -> float | None:
        """Growth of one counter by growth of another; None if the latter stood still or one is unknown."""
        over, under = self.growth(subject, part), self.growth(subject, whole)
        return None if over is None or under is None or under[0] <= 0 else over[0] / under[0]

    def over_time(self, subject: str, name: str) -> tuple[Sequence[int], Sequence[float]]:
        """Times in ns and values of a level; empty where it was not read."""
        return self._series.get((_asked(subject, name), name), ((), ()))

    def mean(self, subject: str, name: str) -> float | None:
        """Mean of a level."""
        _, values = self.over_time(subject, name)
        return sum(values) / len(values) if values else None

    def mean_over(self, subjects: Iterable[str], name: str) -> float | None:
        """Mean of a level over several subjects, each of which counts alike; None if it was read of none."""
        values = [value for subject in subjects if (value := self.mean(subject, name)) is not None]
        return sum(values) / len(values) if values else None

    def maximum(self, subject: str, name: str) -> float | None:
        """Largest value of a level."""
        return max(self.over_time(subject, name)[1], default=None)

    def fact(self, subject: str, name: str) -> str | None:
        """A text fact."""
        return self.facts.get((_asked(subject, name), name))


def _asked(subject: str, name: str) -> str:
    """Of whom something is read: for an instance of a partitioned GPU (``gpu:0:1``) much of it of the GPU."""
    kind, *numbers = subject.split(":")
    shared = kind == "gpu" and len(numbers) > 1 and name in SHARED_BY_INSTANCES
    return f"{kind}:{numbers[0]}" if shared else subject


def total(values: Iterable[float | None]) -> float | None:
    """Sum of what was measured; None if nothing was."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
