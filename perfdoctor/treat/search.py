"""The search for what makes a job faster: rounds of runs with each change, between runs without, until it is clear."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Text, say
from perfdoctor.results.treatment import Outcome, Speedup, Training
from perfdoctor.treat.judging import compare, compare_losses, judge
from perfdoctor.treat.run import RunChange, SeenRun
from perfdoctor.treat.situation import Treatment
from perfdoctor.treat.treatments import together

# Before so many changes in a round comes a control.
_CONTROL_EVERY = 3
# So many rounds must be affordable for a change to be tried at all: what ran once says nothing.
_ROUNDS_OF_ALL = 2


class Lab(Protocol):
    """Where runs are made.

    Attributes:
        budget_s: seconds that all of it may take.
    """

    budget_s: float

    def run(self, change: RunChange, name: str, *, slow_start: bool = False) -> SeenRun:
        """Makes a run.

        Args:
            change: what is other than usual.
            name: how it is called where progress is shown.
            slow_start: its first step may take minutes.
        """

    def left_s(self) -> float:
        """Seconds of the budget that are left."""

    def run_s(self) -> float:
        """Seconds that a run takes."""


@dataclass(slots=True)
class Arm:
    """A change, or several together, and the runs that were made with it.

    Attributes:
        controls: what its runs are compared with.
        closed: nothing more is to be learnt about it.
        detail: why it was closed, where its runs do not say so.
        patient: its runs are short, so that a first one that is slow says little.
    """

    treatments: tuple[Treatment, ...]
    change: RunChange
    controls: list[SeenRun]
    runs: list[SeenRun] = field(default_factory=list)
    closed: bool = False
    outcome: Outcome = Outcome.UNDECIDED
    training: Training | None = None
    detail: Text = ""
    patient: bool = False

    @property
    def name(self) -> str:
        """What is changed, in short."""
        return " + ".join(one.id for one in self.treatments)

    @property
    def measured(self) -> Speedup | None:
        """What its runs show so far."""
        return compare(paces(self.controls), paces(self.runs)) if self.controls and self.runs else None

    @property
    def speedup(self) -> float:
        """What its runs show so far, as a number; 0 for nothing."""
        return self.measured.speedup if self.measured else 0.0

    def skip(self, why: Text, outcome: Outcome = Outcome.NOT_TRIED) -> None:
        """Closes it without a run."""
        self.closed, self.outcome, self.detail = True, outcome, why

    def take(self, run: SeenRun) -> None:
        """Keeps a run, or closes the arm if it has failed."""
        missing = set(self.change.settings) - run.applied()
        if run.failure or missing:
            self.closed, self.outcome = True, Outcome.FAILED
            self.detail = run.failure or say("treat.not_applied")
            return
        self.runs.append(run)

    def judge(self) -> None:
        """Closes it if its runs are clear enough; only what trains the same, in the memory there is, is faster."""
        measured = self.measured
        if self.closed or measured is None or self.outcome is Outcome.FAILED:
            return
        if len(self.runs) == 1:
            if measured.speedup < thresholds.HOPELESS and not self.patient:
                self.closed, self.detail = True, say("treat.given_up")
            return
        self.outcome = judge(measured)
        self.training = compare_losses(
            [run.losses for run in self.controls],
            [run.losses for run in self.runs],
            exact=all(one.exact for one in self.treatments),
        )
        if self.outcome is Outcome.FASTER and not self.is_bound:
            if self.training is Training.DIFFERENT:
                self.outcome = Outcome.OTHER_TRAINING
            elif any(run.lacks_memory for run in self.runs):
                self.outcome = Outcome.NO_MEMORY
        decided = self.outcome is not Outcome.UNDECIDED or self.is_bound
        self.closed = decided or len(self.runs) >= thresholds.ROUNDS

    @property
    def is_bound(self) -> bool:
        """Whether it only shows what could be gained at most."""
        return any(one.bound for one in self.treatments)


@dataclass(slots=True)
class Found:
    """What a search has found, also when it was cut short.

    Attributes:
        controls: all runs without a change that are of use.
        arms: changes by themselves, as they were tried.
        combined: changes together, against the best so far.
        best: the best of all, by fresh runs; None where none is faster by these.
    """

    controls: list[SeenRun] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    combined: list[Arm] = field(default_factory=list)
    best: Arm | None = None


def paces(runs: Sequence[SeenRun]) -> list[float]:
    """Seconds per step of each run."""
    return [pace for run in runs if (pace := run.pace()) is not None]


def search(found: Found, lab: Lab) -> None:
    """Tries changes by themselves, then together, then the best once more.

    Args:
        found: has the arms to try, the most promising first; takes what is found, as it is found.
        lab: where runs are made.
    """
    _run_rounds(found, lab)
    if winners := _winners(found.arms):
        best = _combine(winners, found, lab)
        found.best = _confirm(best, found, lab)


def _winners(arms: Sequence[Arm]) -> list[Arm]:
    """Those that are faster and can be kept, the fastest first."""
    faster = [arm for arm in arms if arm.outcome is Outcome.FASTER and not arm.is_bound]
    return sorted(faster, key=lambda arm: -arm.speedup)


def _reserve_s(lab: Lab) -> float:
    """What the last runs of the best take; a small budget cannot hold them all."""
    return min(2 * thresholds.CONFIRMING_RUNS * lab.run_s(), thresholds.CONFIRMING_PART * lab.budget_s)


def _run_rounds(found: Found, lab: Lab) -> None:
    """Runs all changes in turn, again and again, those that are clear no more."""
    affordable = (lab.left_s() - _reserve_s(lab)) / lab.run_s()
    tried = max(1, int(affordable / _ROUNDS_OF_ALL * _CONTROL_EVERY / (_CONTROL_EVERY + 1)))
    for arm in found.arms[tried:]:
        arm.skip(say("treat.no_time", needed=2 * lab.run_s()))
    for number in range(int(thresholds.ROUNDS)):
        open_arms = [arm for arm in found.arms if not arm.closed]
        if not open_arms:
            break
        faster = bool(_winners(found.arms))
        reserve_s = _reserve_s(lab) if faster or number < _ROUNDS_OF_ALL else 0.0
        # While nothing is faster there is no best for which time would have to be kept: what looks best gets it.
        order = _rotated(open_arms, number) if reserve_s else sorted(open_arms, key=lambda arm: -arm.speedup)
        if not _run_round(order, found, lab, reserve_s) and (faster or not reserve_s):
            break
    for arm in found.arms:
        arm.judge()


def _run_round(arms: Sequence[Arm], found: Found, lab: Lab, reserve_s: float) -> bool:
    """Runs each change once, and controls between them; returns whether there was time for all of them."""
    for place, arm in enumerate(arms):
        if place % _CONTROL_EVERY == 0 and not _run_control(found.controls, lab, reserve_s):
            return False
        if lab.left_s() < lab.run_s() + reserve_s:
            return False
        arm.take(lab.run(arm.change, arm.name, slow_start=any(one.slow_start for one in arm.treatments)))
        arm.judge()
    return True


def _run_control(controls: list[SeenRun], lab: Lab, reserve_s: float) -> bool:
    """Makes a run without a change; returns whether there was time for it."""
    if lab.left_s() < lab.run_s() + reserve_s:
        return False
    run = lab.run(RunChange(), "as it is")
    if not run.failure:
        controls.append(run)
    return True


def _rotated(arms: list[Arm], by: int) -> list[Arm]:
    """Another order for each round: what comes after what should not matter."""
    by %= len(arms)
    return arms[by:] + arms[:by]


def _combine(winners: Sequence[Arm], found: Found, lab: Lab) -> Arm:
    """Adds one change after the other to the best, and keeps those that make it faster still."""
    best = winners[0]
    for arm in winners[1:]:
        treatments = (*best.treatments, *arm.treatments)
        change = together(treatments)
        if change is None or change == best.change:
            continue
        base = Arm(best.treatments, best.change, [])
        both = Arm(treatments, change, base.runs)
        if lab.left_s() < 4 * lab.run_s() + _reserve_s(lab):
            break
        found.combined.append(both)
        _alternate(base, both, lab, lambda: lab.left_s() >= 2 * lab.run_s() + _reserve_s(lab))
        if both.outcome is Outcome.FASTER:
            best = both
    return best


def _alternate(base: Arm, arm: Arm, lab: Lab, time_left: Callable[[], bool], at_least: int = 2) -> None:
    """Runs two kinds in turn until it is clear which is faster."""
    for number in range(int(thresholds.ROUNDS)):
        if not time_left():
            return
        order = (base, arm) if number % 2 == 0 else (arm, base)
        for one in order:
            one.take(lab.run(one.change, one.name, slow_start=any(part.slow_start for part in one.treatments)))
        if base.closed:
            return
        if number + 1 >= at_least:
            arm.judge()
        if arm.closed:
            return


def _confirm(best: Arm, found: Found, lab: Lab) -> Arm | None:
    """Measures the best once more by runs of its own: those that made it the best were the lucky ones, too.

    Its controls are all there are: no luck has chosen them.
    """
    control = Arm((), RunChange(), [], runs=found.controls)
    fresh = Arm(best.treatments, best.change, found.controls)
    _alternate(control, fresh, lab, lambda: lab.left_s() >= 2 * lab.run_s(), int(thresholds.CONFIRMING_RUNS))
    fresh.judge()
    return fresh if fresh.outcome is Outcome.FASTER else None


def first_step_s(runs: Sequence[SeenRun]) -> float | None:
    """Seconds until the first step, the median of runs."""
    return statistics.median([run.first_step_s or 0.0 for run in runs]) if runs else None
