"""Two runs of a job side by side: what the reports of `perfdoctor compare` are made from. Plain values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Interval:
    """A number, and the interval in which it lies with the confidence that was asked for; None where not known."""

    value: float
    low: float | None = None
    high: float | None = None

    def exp(self) -> Interval:
        """The number whose logarithm this is."""
        return Interval(
            math.exp(self.value), *(None if end is None else math.exp(end) for end in (self.low, self.high))
        )


class Answer(Enum):
    """What a difference shows."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference can be shown"
    UNKNOWN = "unknown"


class Weight(Enum):
    """What a difference between two runs means for their comparison.

    ``FORBIDS``: a step is other work, or is not measured alike. ``EXPLAINS``: the pace may differ for that
    alone. ``NOTED``: it may be the very change that is tried.
    """

    FORBIDS = "forbids"
    EXPLAINS = "explains"
    NOTED = "noted"


class Promise(Enum):
    """What became of a predicted gain."""

    KEPT = "came true"
    LESS = "less than predicted"
    MORE = "more than predicted"
    NOT_SEEN = "not seen"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One side of the comparison.

    Attributes:
        source: the file or folder, as it was named.
        kind: ``recording``, ``report`` or ``trace``.
        summary: its verdict in one sentence.
        cause: the verdict's; None where there is none.
        level: what the verdict rests on.
        watched_s: how long it was watched.
        steps: how many steps its pace rests on; None where it has no steps.
        step_is: how they are known, and so what one is: ``marked``, ``traced``, or what was counted from outside,
            ``optimizer steps`` or ``backward passes``; "" where it has no steps.
    """

    source: str
    kind: str
    summary: str
    cause: str | None
    level: str
    watched_s: float
    steps: float | None
    step_is: str = ""


# What a difference of the command lines is called.
COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same in both runs.

    Attributes:
        what: what it is, ``settings.workers`` for instance.
        before: as text; None where there is none.
        after: likewise.
    """

    what: str
    before: str | None
    after: str | None
    weight: Weight


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a step takes.

    Attributes:
        before: seconds per step.
        after: likewise.
        batches: of both runs, seconds per step in each of the stretches that tell how much it varies.
        speedup: old time per step over new.
        confidence: with which the speed-up lies in its interval.
        floor: the noise: a smaller speed-up than 1 plus this cannot be distinguished from none; None where unknown.
        answer: ``SAME`` within the noise.
    """

    before: float
    after: float
    batches: tuple[tuple[float, ...], tuple[float, ...]]
    speedup: Interval
    confidence: float
    floor: float | None
    answer: Answer


@dataclass(frozen=True, slots=True)
class CauseChange:
    """What a cause costs.

    Attributes:
        before: seconds per step, or the share of wall time where the pace of one of them is unknown.
        after: likewise.
        change: by how much more it is afterwards.
        answer: ``FASTER`` where it costs less.
    """

    cause: str
    before: float
    after: float
    change: Interval
    answer: Answer


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the first fix of the run before promised, beside what was measured.

    Attributes:
        cause: what the fix is against.
        fix: its title.
        speedup: what it was said to bring.
        least: at least.
        most: at most.
        changes_step: a step is other work with it: what became of it does not show in how long one takes.
    """

    cause: str
    fix: str
    speedup: float
    least: float
    most: float
    promise: Promise
    changes_step: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the reports of a comparison say.

    Attributes:
        version: perfdoctor's.
        pace: None where it is not known of both, or where they are not comparable.
        implied: where the pace is not known, the speed-up if the model's own arithmetic takes what it took for a step.
        causes: what costs most in either first; in seconds per step where the pace is compared, else shares.
        differences: between the runs, those that forbid a comparison first.
        prediction: None where the run before promised nothing.
        limit: by what fraction a step may take longer; None where nobody asked.
        regressed: whether it takes longer than that, whole interval and all; None where that cannot be determined, as
            where it may, and the noise floor is above the limit.
    """

    version: str
    before: ComparedRun
    after: ComparedRun
    pace: Pace | None
    implied: Interval | None
    causes: tuple[CauseChange, ...]
    differences: tuple[Difference, ...]
    prediction: Prediction | None
    limit: float | None = None
    regressed: bool | None = None

    @property
    def hidden_by_noise(self) -> bool:
        """Whether a regression was asked for, and is not known for nothing but what the runs vary by."""
        known = self.pace is not None and self.pace.answer is not Answer.UNKNOWN
        return known and self.limit is not None and self.regressed is None

    @property
    def may_be_other_work(self) -> bool:
        """Whether a step takes another time, but the job was started by another command, and may do more in one."""
        differs = self.pace is not None and self.pace.answer in (Answer.FASTER, Answer.SLOWER)
        return differs and any(one.what == COMMAND for one in self.differences)

    @property
    def forbidding(self) -> tuple[Difference, ...]:
        """What forbids to compare the paces."""
        return tuple(one for one in self.differences if one.weight is Weight.FORBIDS)
