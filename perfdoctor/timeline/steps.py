"""The steps of a trainer that marked them from inside: when they were, how long, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.marks import Marks, Segment, StepEvent

Times = npt.NDArray[np.int64]
COLLECTOR = "collector"


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the training loop.

    Attributes:
        start_ns: where the one before ended.
        from_ns: where it began to work for training: later than ``start_ns`` after an evaluation.
        end_ns: where it ended.
    """

    start_ns: int
    from_ns: int
    end_ns: int


class Steps:
    """The observed steps of one trainer.

    Args:
        marks: what it marked.

    Attributes:
        all: the steps in order; empty if none was complete.
        tracks: as in ``Marks``.
        events: as in ``Marks``.
    """

    def __init__(self, marks: Marks) -> None:
        self.tracks = marks.tracks
        self.events = marks.events
        self._segments = marks.segments
        self._starts = np.array([segment.start_ns for segment in marks.segments], dtype=np.int64)
        self._pauses = np.array(marks.pauses, dtype=np.int64).reshape(-1, 2)
        self.all = _without_usual(list(_observed(marks.events)))
        self._begins = np.array([step.start_ns for step in self.all], dtype=np.int64)

    @cached_property
    def lengths_ns(self) -> Times:
        """What each step is charged with, in order."""
        return np.array([step.end_ns - step.from_ns for step in self.all], dtype=np.int64)

    @cached_property
    def by_phase(self) -> dict[str, npt.NDArray[np.float64]]:
        """Per phase, seconds in each step."""
        return spent_in(self._segments, self.all)

    @property
    def outside_ns(self) -> int:
        """What no step is charged with, from the first one's start to the last one's end; 0 without steps."""
        return self.all[-1].end_ns - self.all[0].start_ns - int(self.lengths_ns.sum()) if self.all else 0

    @property
    def evaluated_ns(self) -> int:
        """What evaluations take that lie between the steps; 0 without steps."""
        return sum(step.from_ns - step.start_ns for step in self.all)

    def evaluates_at(self, time_ns: int) -> bool:
        """Whether an evaluation that lies between two steps runs at an instant."""
        index = int(np.searchsorted(self._begins, time_ns, side="right")) - 1
        return index >= 0 and time_ns < self.all[index].from_ns

    def evaluated_s(self, edges_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How many seconds of evaluations between the steps lie between each two neighbouring instants."""
        if not self.all:
            return np.zeros(len(edges_ns) - 1)
        return np.diff(_spent_until(edges_ns, [(step.start_ns, step.from_ns) for step in self.all])) / NS_PER_S

    def observed_s(self, edges_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How many seconds of observed steps lie between each two neighbouring instants."""
        return np.diff(self._charged(edges_ns)) / NS_PER_S

    def holds(self, phase: str) -> bool:
        """Whether some step has a part of this name."""
        return bool(phase in self.by_phase)

    def at(self, time_ns: int) -> Segment | None:
        """The part of a step at an instant; None before the first mark and after the last."""
        index = int(np.searchsorted(self._starts, time_ns, side="right")) - 1
        if index < 0 or time_ns >= self._segments[index].end_ns:
            return None
        return self._segments[index]

    def first_batch_ns(self, time_ns: int) -> int:
        """Where the first wait for a loader's batch after an instant ends, or training work begins without one."""
        first = max(0, int(np.searchsorted(self._starts, time_ns, side="right")) - 1)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if segment.detail == "loader wait" and segment.end_ns > time_ns:
                return segment.end_ns
            if segment.phase in TRAINING_PHASES and segment.end_ns > time_ns:
                return max(time_ns, segment.start_ns)
        return time_ns

    def collecting_at(self, time_ns: int) -> bool:
        """Whether the cyclic collector runs."""
        index = int(np.searchsorted(self._pauses[:, 0], time_ns, side="right")) - 1
        return index >= 0 and time_ns < int(self._pauses[index, 1])

    def weigh(self, times_ns: Times, edges_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How many seconds of observed steps each sample stands for.

        Args:
            times_ns: when the samples were taken.
            edges_ns: borders of what they stand for, one more than samples.

        Returns:
            Seconds; 0 outside of steps. How long each phase took is known exactly, so the samples in a phase share its
            time (post-stratification); the time of phases without a sample goes to all others.
        """
        seconds = self.observed_s(edges_ns)
        strata = [self._stratum(int(time)) for time in times_ns]
        exact, sampled = self._totals(), Amounts[str]()
        for stratum, part in zip(strata, seconds.tolist(), strict=True):
            sampled[stratum] += part
        seconds *= [exact[stratum] / sampled[stratum] if sampled[stratum] > 0 else 0.0 for stratum in strata]
        total = float(seconds.sum())
        return seconds * (exact.total / total) if total > 0 else seconds

    def summary(self) -> dict[str, Any]:
        """Count, and seconds per step: median, mean, 95th percentile, and by phase; ``{}`` without steps.

        The means of the phases sum to the mean of the step.
        """
        if not self.all:
            return {}
        return {
            **describe_steps(self.lengths_ns / NS_PER_S, self.by_phase),
            "collector_s": self._collected() / len(self.all),
            "outside_s": self.outside_ns / NS_PER_S,
        }

    def _charged(self, times_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Nanoseconds of observed steps up to each instant."""
        return _spent_until(times_ns, [(step.from_ns, step.end_ns) for step in self.all])

    def _stratum(self, time_ns: int) -> str:
        if self.collecting_at(time_ns):
            return COLLECTOR
        segment = self.at(time_ns)
        return segment.name if segment is not None else "other"

    def _totals(self) -> Amounts[str]:
        """Seconds of all observed steps by stratum."""
        totals = Amounts({name: float(spent.sum()) for name, spent in self.by_phase.items()})
        for start, end in self._pauses.tolist():
            if (part := self._step_seconds(start, end)) > 0:
                totals[COLLECTOR] += part
                totals[self._stratum(start - 1)] -= part
        return Amounts({name: max(0.0, amount) for name, amount in totals.items()})

    def _collected(self) -> float:
        return sum(self._step_seconds(start, end) for start, end in self._pauses.tolist())

    def _step_seconds(self, start_ns: int, end_ns: int) -> float:
        before, after = self._charged(np.array([start_ns, end_ns], dtype=np.float64))
        return float(after - before) / NS_PER_S


def describe_steps(
    lengths_s: npt.NDArray[np.float64], by_phase: Mapping[str, npt.NDArray[np.float64]]
) -> dict[str, Any]:
    """Count, and seconds per step: median, mean, 95th percentile, and by phase, longest first.

    Args:
        lengths_s: of each step; at least one.
        by_phase: seconds in each step; phases that none has are left out.
    """
    phases = {name: spent for name, spent in by_phase.items() if spent.any()}
    return {
        "count": len(lengths_s),
        "median_s": float(np.median(lengths_s)),
        "mean_s": float(lengths_s.mean()),
        "p95_s": float(np.percentile(lengths_s, 95)),
        "phases": {
            name: {
                "median_s": float(np.median(spent)),
                "mean_s": float(spent.mean()),
                "share": float(spent.sum() / lengths_s.sum()),
            }
            for name, spent in sorted(phases.items(), key=lambda item: -item[1].sum())
        },
    }


def _spent_until(times_ns: npt.NDArray[np.float64], spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
    """Nanoseconds of some spans, in order and apart, up to each instant."""
    borders = np.array(spans, dtype=np.float64)
    lengths = np.cumsum(borders[:, 1] - borders[:, 0])
    so_far = np.stack([np.concatenate([[0.0], lengths[:-1]]), lengths], axis=1)
    return np.asarray(np.interp(times_ns, borders.ravel(), so_far.ravel()), dtype=np.float64)


def spent_in(segments: Sequence[Segment], steps: Sequence[Step]) -> dict[str, npt.NDArray[np.float64]]:
    """Per part of a step, by its name, seconds in each step; both are in order."""
    found: dict[str, npt.NDArray[np.float64]] = {}
    number = 0
    for segment in segments:
        while number < len(steps) and steps[number].end_ns <= segment.start_ns:
            number += 1
        for index in range(number, len(steps)):
            step = steps[index]
            if step.start_ns >= segment.end_ns:
                break
            spent = min(segment.end_ns, step.end_ns) - max(segment.start_ns, step.from_ns)
            if spent > 0:
                found.setdefault(segment.name, np.zeros(len(steps)))[index] += spent / NS_PER_S
    return found


def _observed(events: Sequence[StepEvent]) -> Iterator[Step]:
    """The steps that lie where steps count."""
    start: int | None = None
    counts = False
    loads = any(event.what == "fetch" for event in events)
    since: list[StepEvent] = []
    for event in events:
        since.append(event)
        if event.what == "observe":
            counts = True
        elif event.what == "enter" and start is None:
            start, since = event.time_ns, []
        elif event.what == "step":
            if start is not None and counts and event.time_ns > start:
                yield Step(start, _begins(start, since, loads=loads), event.time_ns)
            start, since = event.time_ns, []
        elif event.what == "leave loop":
            start = None
        elif event.what == "observed":
            return


def _begins(start_ns: int, events: Sequence[StepEvent], *, loads: bool) -> int:
    """Where a step begins to work for training: behind the evaluation that comes before it, if there is one.

    A forward pass without gradients, or of a module in evaluation mode, belongs to an evaluation if another batch is
    asked for after it, before any backward pass; where no loader is asked at all, if it comes before one.
    """
    begins, fetched, evaluated = start_ns, False, False
    for event in events:
        if event.what == "worked":
            break
        if event.what == "evaluated":
            fetched, evaluated = False, True
            begins = begins if loads else event.time_ns
        elif event.what == "exhausted":
            fetched = False
        elif event.what == "fetch" and not fetched:
            fetched = True
            begins = event.time_ns if evaluated else start_ns
    return begins


def _without_usual(steps: list[Step]) -> list[Step]:
    late = sum(step.from_ns > step.start_ns for step in steps)
    if late <= thresholds.USUAL_VALIDATION * len(steps):
        return steps
    return [Step(step.start_ns, step.start_ns, step.end_ns) for step in steps]
