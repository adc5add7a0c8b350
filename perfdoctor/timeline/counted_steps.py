"""Steps of a trainer that marks none, from calls that were counted from outside.

A step is what lies between two updates of the weights: it ends where an optimizer's step begins. Optimizers that take
their steps one after the other, with no backward pass between them, end one together, as those of several groups of
parameters do. Two that take turns, each after backward passes of its own (a GAN's), end a step each. Several backward
passes may lie in one step: gradients that are accumulated, or a second derivative.

Where no optimizer of PyTorch's was seen, for instance since its step was compiled, how many backward passes make a step
is not known. Then these are counted, and never called steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.diagnosis import BACKWARD_PASSES, OPTIMIZER_STEPS
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import BACKWARD_CALL, OPTIMIZER_CALL, CountedCall
from perfdoctor.timeline.marks import Marks, StepEvents
from perfdoctor.timeline.step_borders import Border, BorderFinder
from perfdoctor.timeline.steps import Steps, describe_steps


@dataclass(frozen=True, slots=True)
class CountedSteps:
    """What was counted of one trainer.

    Attributes:
        unit: what lies between two borders: ``OPTIMIZER_STEPS``, or ``BACKWARD_PASSES``.
        steps: each of them, at least one, without parts.
    """

    unit: str
    steps: Steps

    def summary(self) -> dict[str, Any]:
        """As of marked steps, without what only marks tell, and with the unit."""
        return {"unit": self.unit, **describe_steps(self.steps.lengths_ns / NS_PER_S, {})}


def read_counted(calls: Iterable[CountedCall]) -> dict[int, CountedSteps]:
    """By process, its steps; those of which none was seen from end to end are left out."""
    found = {}
    for pid, (unit, borders) in _borders(calls).items():
        steps = Steps(Marks(events=StepEvents.listed(_events(borders))))
        if steps.all:
            found[pid] = CountedSteps(unit, steps)
    return found


def step_ends(calls: Iterable[CountedCall]) -> dict[int, list[int]]:
    """By process, when its last steps ended, in order; backward passes are no steps."""
    return {
        pid: [border.time_ns for border in borders]
        for pid, (unit, borders) in _borders(calls).items()
        if unit == OPTIMIZER_STEPS
    }


def _borders(calls: Iterable[CountedCall]) -> dict[int, tuple[str, list[Border]]]:
    """By process, what was counted, and where one ends and the next begins."""
    by_process: dict[int, list[CountedCall]] = {}
    for call in sorted(calls):
        by_process.setdefault(call.pid, []).append(call)
    return {pid: _borders_of(_of_busiest_thread(made)) for pid, made in by_process.items()}


def _of_busiest_thread(calls: Sequence[CountedCall]) -> list[CountedCall]:
    """The calls of the thread that trains: of several the one that makes most."""
    counts = Counter(call.tid for call in calls)
    trains = max(counts, key=lambda tid: counts[tid])
    return [call for call in calls if call.tid == trains]


def _borders_of(calls: Sequence[CountedCall]) -> tuple[str, list[Border]]:
    kinds = {call.what for call in calls}
    if OPTIMIZER_CALL not in kinds:
        return BACKWARD_PASSES, list(BorderFinder(BACKWARD_CALL).find(calls))
    return OPTIMIZER_STEPS, list(BorderFinder(OPTIMIZER_CALL, after_backward=BACKWARD_CALL in kinds).find(calls))


def _events(borders: Iterable[Border]) -> Iterator[tuple[int, str]]:
    """The same as if they had been marked."""
    for number, border in enumerate(borders):
        if not number:
            yield border.time_ns, "observe"
        if not number or border.after_gap:
            yield border.time_ns, "leave loop"
            yield border.time_ns, "enter"
        else:
            yield border.time_ns, "step"
