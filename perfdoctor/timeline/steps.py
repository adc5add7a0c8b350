"""The steps of a trainer that marked them from inside: when they were, how long, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.marks import Marks, Segment, Segments, StepEvents
from perfdoctor.timeline.quantiles import median, quantiles

Times = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
COLLECTOR = "collector"


class Step(NamedTuple):
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
        self._pauses = marks.pauses
        self.all = _without_usual(_observed(marks.events))
        self._begins, self._works, self._ends = np.array(self.all, dtype=np.int64).reshape(-1, 3).T

    @cached_property
    def lengths_ns(self) -> Times:
        """What each step is charged with, in order."""
        return np.asarray(self._ends - self._works)

    @cached_property
    def by_phase(self) -> dict[str, npt.NDArray[np.float64]]:
        """Per phase, seconds in each step."""
        return spent_in(self._segments, self._works, self._ends)

    def spent_between(self, edges_ns: Times) -> dict[str, Floats]:
        """By the name of a part, how many seconds of it lie between each two neighbouring instants, in steps or not."""
        return spent_in(self._segments, edges_ns[:-1], edges_ns[1:])

    @property
    def outside_ns(self) -> int:
        """What no step is charged with, from the first one's start to the last one's end; 0 without steps."""
        return self.all[-1].end_ns - self.all[0].start_ns - int(self.lengths_ns.sum()) if self.all else 0

    @property
    def evaluated_ns(self) -> int:
        """What evaluations take that lie between the steps; 0 without steps."""
        return int((self._works - self._begins).sum())

    def evaluates_at(self, time_ns: int) -> bool:
        """Whether an evaluation that lies between two steps runs at an instant."""
        index = int(self._begins.searchsorted(time_ns, side="right")) - 1
        return index >= 0 and bool(time_ns < self._works[index])

    def evaluated_s(self, edges_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How many seconds of evaluations between the steps lie between each two neighbouring instants."""
        if not self.all:
            return np.zeros(len(edges_ns) - 1)
        return np.diff(_spent_until(edges_ns, self._begins, self._works)) / NS_PER_S

    def observed_s(self, edges_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How many seconds of observed steps lie between each two neighbouring instants."""
        return np.diff(self._charged(edges_ns)) / NS_PER_S

    def holds(self, phase: str) -> bool:
        """Whether some step has a part of this name."""
        return bool(phase in self.by_phase)

    def at(self, time_ns: int) -> Segment | None:
        """The part of a step at an instant; None before the first mark and after the last."""
        index = self._segments.index_at(time_ns)
        return None if index < 0 else self._segments[index]

    def names_at(self, times_ns: Times) -> npt.NDArray[np.object_]:
        """The names of the parts at some instants, "other" where there is none."""
        return self._segments.names_at(times_ns)

    def first_batch_ns(self, time_ns: int) -> int:
        """Where the first wait for a loader's batch after an instant ends, or training work begins without one."""
        first = max(0, int(self._segments.starts_ns.searchsorted(time_ns, side="right")) - 1)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if segment.detail == "loader wait" and segment.end_ns > time_ns:
                return segment.end_ns
            if segment.phase in TRAINING_PHASES and segment.end_ns > time_ns:
                return max(time_ns, segment.start_ns)
        return time_ns

    def collecting_at(self, time_ns: int) -> bool:
        """Whether the cyclic collector runs."""
        return bool(self._collecting(np.array([time_ns]))[0])

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
        strata, exact = self._strata(times_ns), self._totals()
        for stratum in dict.fromkeys(strata.tolist()):
            these = strata == stratum
            sampled = float(seconds[these].sum())
            seconds[these] *= exact[stratum] / sampled if sampled > 0 else 0.0
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
            "collector_s": float(self._collected_s.sum()) / len(self.all),
            "outside_s": self.outside_ns / NS_PER_S,
        }

    def _charged(self, times_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Nanoseconds of observed steps up to each instant."""
        return _spent_until(times_ns, self._works, self._ends)

    def _collecting(self, times_ns: Times) -> npt.NDArray[np.bool_]:
        """Whether the cyclic collector runs, at some instants."""
        if not len(self._pauses):
            return np.zeros(len(times_ns), dtype=bool)
        index = self._pauses[:, 0].searchsorted(times_ns, side="right") - 1
        return np.asarray((index >= 0) & (times_ns < self._pauses[index, 1]))

    def _strata(self, times_ns: Times) -> npt.NDArray[np.object_]:
        return np.where(self._collecting(times_ns), COLLECTOR, self.names_at(times_ns))

    def _totals(self) -> Amounts[str]:
        """Seconds of all observed steps by stratum."""
        totals = Amounts({name: float(spent.sum()) for name, spent in self.by_phase.items()})
        strata = self._strata(self._pauses[:, 0] - 1)
        for stratum, part in zip(strata.tolist(), self._collected_s.tolist(), strict=True):
            if part > 0:
                totals[COLLECTOR] += part
                totals[stratum] -= part
        return Amounts({name: max(0.0, amount) for name, amount in totals.items()})

    @cached_property
    def _collected_s(self) -> npt.NDArray[np.float64]:
        """What each pause of the collector takes of observed steps."""
        before, after = (self._charged(self._pauses[:, edge].astype(np.float64)) for edge in (0, 1))
        return (after - before) / NS_PER_S


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
        "median_s": median(lengths_s),
        "mean_s": float(lengths_s.mean()),
        "p95_s": float(quantiles(lengths_s, (0.95,))[0]),
        "phases": {
            name: {
                "median_s": median(spent),
                "mean_s": float(spent.mean()),
                "share": float(spent.sum() / lengths_s.sum()),
            }
            for name, spent in sorted(phases.items(), key=lambda item: -item[1].sum())
        },
    }


def _spent_until(times_ns: Floats, begins_ns: Times, ends_ns: Times) -> Floats:
    """Nanoseconds of some spans, in order and apart, up to each instant."""
    if not len(begins_ns):
        return np.zeros(len(times_ns))
    lengths = np.cumsum(ends_ns - begins_ns)
    borders = np.stack([begins_ns, ends_ns], axis=1).ravel().astype(np.float64)
    so_far = np.stack([np.append(0, lengths[:-1]), lengths], axis=1).ravel().astype(np.float64)
    return np.asarray(np.interp(times_ns, borders, so_far), dtype=np.float64)


def spent_in(segments: Segments, begins_ns: Times, ends_ns: Times) -> dict[str, Floats]:
    """Per part of a step, by its name, seconds in each step; both are in order."""
    found: dict[str, Floats] = {}
    for name in dict.fromkeys(part.name for part in segments.parts):
        named = np.array([part.name == name for part in segments.parts], dtype=bool)[segments.numbers]
        spans = segments.starts_ns[named], segments.ends_ns[named]
        until_begin, until_end = (_spent_until(edges.astype(np.float64), *spans) for edges in (begins_ns, ends_ns))
        spent = (until_end - until_begin) / NS_PER_S
        if spent.any():
            found[name] = spent
    return found


class _Observing:
    """Where the step that is under way began, and where it began to work for training.

    The latter is behind the evaluation that comes before it, if there is one. A forward pass without gradients, or of
    a module in evaluation mode, belongs to an evaluation if another batch is asked for after it, before any backward
    pass; where no loader is asked at all, if it comes before one.
    """

    def __init__(self, start_ns: int, *, loads: bool) -> None:
        self.start_ns = self.from_ns = start_ns
        self._loads = loads
        self._fetched = self._evaluated = self._worked = False

    def pass_by(self, time_ns: int, what: str) -> None:
        """An event in it."""
        if what == "worked":
            self._worked = True
        elif self._worked:
            return
        elif what == "fetch" and not self._fetched:
            self._fetched = True
            self.from_ns = time_ns if self._evaluated else self.start_ns
        elif what == "exhausted":
            self._fetched = False
        elif what == "evaluated":
            self._fetched, self._evaluated = False, True
            self.from_ns = self.from_ns if self._loads else time_ns


def _observed(events: StepEvents) -> list[Step]:
    """The steps that lie where steps count."""
    steps: list[Step] = []
    under_way: _Observing | None = None
    counts = False
    loads = "fetch" in events.what
    for time_ns, what in zip(events.times_ns.tolist(), events.what.tolist(), strict=True):
        if what == "step":
            if under_way is not None and counts and time_ns > under_way.start_ns:
                steps.append(Step(under_way.start_ns, under_way.from_ns, time_ns))
            under_way = _Observing(time_ns, loads=loads)
        elif what == "observe":
            counts = True
        elif what == "observed":
            break
        elif what == "leave loop":
            under_way = None
        elif under_way is not None:
            under_way.pass_by(time_ns, what)
        elif what == "enter":
            under_way = _Observing(time_ns, loads=loads)
    return steps


def _without_usual(steps: list[Step]) -> list[Step]:
    late = sum(step.from_ns > step.start_ns for step in steps)
    if late <= thresholds.USUAL_VALIDATION * len(steps):
        return steps
    return [Step(step.start_ns, step.start_ns, step.end_ns) for step in steps]
