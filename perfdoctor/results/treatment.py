"""What came of trying fixes: what the reports of `perfdoctor treat` are made from. Plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from perfdoctor.diagnosis import Advice, Diagnosis
from perfdoctor.messages import Text
from perfdoctor.results.edits import Edit


class Outcome(Enum):
    """What a trial showed."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    UNDECIDED = "undecided"
    FAILED = "failed"
    OTHER_TRAINING = "trains differently"
    NO_MEMORY = "too little memory"
    NOT_TRIED = "not tried"


class Training(Enum):
    """How the losses of a trial compare with those of the controls; from inside, what is known without comparing."""

    IDENTICAL = "bit-identical losses"
    WITHIN_NOISE = "losses within the noise"
    DIFFERENT = "other losses"
    UNKNOWN = "no losses seen"
    UNTOUCHED = "computes the same"
    ROUNDED = "may round differently"


@dataclass(frozen=True, slots=True)
class Speedup:
    """A measured speed-up.

    Attributes:
        speedup: old time per step over new, by the geometric means of the runs.
        low: lower end of its interval; None where there were too few runs for one.
        high: its upper end.
        runs: how many runs had the change.
        controls: how many did not.
    """

    speedup: float
    low: float | None
    high: float | None
    runs: int
    controls: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One change, or several together, and what came of it.

    Attributes:
        id: what was changed, in short; several joined by `` + ``.
        advice: each change in words, with what makes it permanent.
        causes: those that it can help against.
        predicted: the speed-up that the diagnosis predicts for it; None where it does not advise this change.
        at_most: what an end of all that it is against would bring; None where that cannot be said.
        bound: it only shows what could be gained at most, and cannot be kept.
        measured: None where no run had an end that counts.
        detail: why it failed or was not tried; "" otherwise.
        first_step_s: seconds until the first step, as a median, where that is much longer than without the change.
        memory_bytes: peak of the job's processes together.
        gpu_memory_bytes: peak that torch allocated on the GPU; None without one.
    """

    id: str
    advice: tuple[Advice, ...]
    causes: tuple[str, ...]
    predicted: float | None
    at_most: float | None
    bound: bool
    outcome: Outcome
    measured: Speedup | None = None
    training: Training | None = None
    detail: Text = ""
    first_step_s: float | None = None
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """The job as it is.

    Attributes:
        step_s: seconds per step, the geometric mean of the runs.
        spread: standard deviation of the runs' seconds per step, as a fraction; None for a single run.
        runs: how many there were.
        first_step_s: seconds from the start to the end of the first step, as a median.
        warmup_steps: steps that are left out.
        steps: steps that are measured in each run.
        step_is: ``optimizer step`` or ``batch``.
        deterministic: whether the losses of all runs are the same to the last bit; None where none were seen.
    """

    step_s: float
    spread: float | None
    runs: int
    first_step_s: float
    warmup_steps: int
    steps: int
    step_is: str
    memory_bytes: int
    gpu_memory_bytes: int | None
    deterministic: bool | None


@dataclass(frozen=True, slots=True)
class Treated:
    """Everything that the reports of a treatment say.

    Attributes:
        diagnosis: of the job as it is.
        control: None where nothing was tried.
        trials: what was tried, the most gain first; then what was not.
        combined: trials of several changes together, against the best so far.
        best: the change, or changes together, that is kept, as measured once more by fresh runs; None if none is.
        patch: a unified diff that makes the best permanent where the place is known; "" where it is not.
        saved_aside: paths outside of its working folder that the job saved to, and that were taken aside.
        spent: ``seconds``, ``budget_s``, ``runs``.
        interrupted: the user, or the end of the job, ended the trials before the search was through.
        inside: the changes were made between steps of the running job; what is a run elsewhere is a block of steps.
        not_asked: changes that may round differently, and were not tried as nobody asked for such.
        by_hand: what the diagnosis advises beside these, with a predicted gain: changes of the user's own code.
    """

    diagnosis: Diagnosis
    command: tuple[str, ...]
    control: Control | None
    trials: tuple[Trial, ...]
    combined: tuple[Trial, ...] = ()
    best: Trial | None = None
    patch: str = ""
    saved_aside: tuple[str, ...] = ()
    spent: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    inside: bool = False
    not_asked: tuple[Trial, ...] = ()
    by_hand: tuple[Advice, ...] = ()
