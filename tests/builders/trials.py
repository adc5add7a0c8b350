"""Runs of a job that never ran, with a planted pace, a laboratory that makes them, and what reports of trials need."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perfdoctor.causes import INPUT_PREPROCESSING
from perfdoctor.diagnosis import Diagnosis, advise
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.treatment import Control, Outcome, Speedup, Training, Treated, Trial
from perfdoctor.treat.run import RunChange, SeenRun
from perfdoctor.treat.search import Arm, Found
from perfdoctor.treat.situation import Treatment
from tests.builders.diagnoses import input_bound


def a_run(step_s: float, *, losses: Sequence[float] = (), steps: int = 30, applied: Sequence[str] = ()) -> SeenRun:
    """A run whose steps all take the same."""
    ends = [round((3 + step_s * number) * NS_PER_S) for number in range(steps)]
    facts = [{"kind": "applied", "change": kind} for kind in applied]
    return SeenRun(0, ends, losses=list(losses), facts=facts, memory_bytes=10**9, first=5, steps=20)


def a_treatment(name: str, **how: Any) -> Treatment:
    """A treatment that sets an environment variable of its own."""
    how.setdefault("change", RunChange(variables={name.upper(): "1"}))
    return Treatment(name, advise("treat.sleeping_threads"), (INPUT_PREPROCESSING,), **how)


def arms(found: Found, *treatments: Treatment) -> Found:
    """What a search begins with."""
    found.arms = [Arm((one,), one.change, found.controls) for one in treatments]
    return found


class Laboratory:
    """Makes runs at once, by a clock of its own.

    Args:
        speedup: of the environment variables of a run.
        noise: standard deviation of the logarithm of a run's pace.
        budget_s: by the clock.
        takes_s: how long a run takes by it.
    """

    def __init__(
        self, speedup: Callable[[set[str]], float], noise: float, budget_s: float, takes_s: float = 10, seed: int = 0
    ) -> None:
        self.budget_s = budget_s
        self.names: list[str] = []
        self._speedup = speedup
        self._noise = noise
        self._takes_s = takes_s
        self._spent_s = 0.0
        self._random = random.Random(seed)

    def run(self, change: RunChange, name: str, *, slow_start: bool = False) -> SeenRun:
        self.names.append(name)
        self._spent_s += self._takes_s
        speedup = self._speedup(set(change.variables))
        return a_run(math.exp(self._random.gauss(0, self._noise)) / speedup, losses=[1.0] * 20)

    def left_s(self) -> float:
        return self.budget_s - self._spent_s

    def run_s(self) -> float:
        return self._takes_s


def a_trial(name: str = "num_workers=2", **how: Any) -> Trial:
    """A trial of more loader workers that were faster."""
    made = Trial(
        name,
        (advise("treat.more_workers", workers=2, now=0),),
        (INPUT_PREPROCESSING,),
        1.7,
        2.5,
        False,
        Outcome.FASTER,
        Speedup(1.84, 1.71, 1.98, 3, 4),
        Training.WITHIN_NOISE,
    )
    return replace(made, **how)


def a_control() -> Control:
    return Control(0.0349, 0.01, 4, 3.1, 23, 89, "optimizer step", 520_000_000, None, True)


def treated(diagnosis: Diagnosis | None = None, **how: Any) -> Treated:
    """A treatment that has found something."""
    patch = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-<old>\n+<new>\n"
    made = Treated(
        diagnosis or input_bound(),
        ("python", "train.py"),
        a_control(),
        (a_trial(), a_trial("slow", outcome=Outcome.SLOWER, measured=Speedup(0.8, 0.7, 0.9, 2, 4))),
        best=a_trial(),
        patch=patch,
        spent={"seconds": 120.0, "budget_s": 600.0, "runs": 12},
    )
    return replace(made, **how)
