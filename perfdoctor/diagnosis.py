"""The diagnosis: what all reports are made from. Plain values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

from perfdoctor.causes import CAUSES
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Message, Text, say
from perfdoctor.results.activity import Activity
from perfdoctor.results.blocks import Block
from perfdoctor.results.rank_groups import Crowd
from perfdoctor.results.stuck import Stuck

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from perfdoctor.knowledge.versions import Since

Part = Literal["findings", "verdict", "breakdown", "evidence", "fixes", "ranks", "series", "not_examined"]
"""What of a diagnosis can be had as a DataFrame."""

# What a verdict rests on.
OUTSIDE = "sampled from outside"
INSIDE = "measured inside"
TRACED = "traced"
CONFIRMED = "confirmed by trial"

# What one step is where steps were counted from outside: ``steps.unit`` in the JSON.
OPTIMIZER_STEPS = "optimizer steps"
BACKWARD_PASSES = "backward passes"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measured number that a finding rests on.

    Attributes:
        name: what was measured, in words.
        value: the number, or a short text where it is not a number.
        unit: its unit, "" for text and plain counts.
        probe: which probe saw it.
    """

    name: Text
    value: float | Text
    unit: str
    probe: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change to make in this job.

    Attributes:
        why: why it helps here.
        change: the change itself: code, command or setting.
        predicted_speedup: what it brings; None where that cannot be computed.
        speedup_range: what it brings at least and at most, 1 and more; None likewise.
        changes_step: a step is other work with it, a larger batch for instance: what it brings is in the same work.
    """

    title: str
    why: str
    change: str
    predicted_speedup: float | None = None
    speedup_range: tuple[float, float] | None = None
    changes_step: bool = False


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of a library in the job's own source.

    Attributes:
        file: as stacks name it.
        line: at which the text begins.
        text: the statement that it stands in, or the call itself.
        names: what is called, by its last name, and whatever takes the same arguments.
    """

    file: str
    line: int
    text: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What is known of how the job is written and started, to say what a change looks like there.

    Attributes:
        calls: of which it is clear that advice is about them, at most one of each kind.
        command: by which the job was started; "" where that could not be typed again.
        loader_arguments: of whoever makes a loader for the job, by those of a ``DataLoader``; empty where the job does.
        torch: the version of PyTorch that runs it; "" where that is not known.
        missing: what that version does not have yet.
    """

    calls: tuple[OwnCall, ...] = ()
    command: str = ""
    loader_arguments: Mapping[str, str] = field(default_factory=dict)
    torch: str = ""
    missing: tuple[Since, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """A fix of perfdoctor's own: its message has the words for title, why and change.

    Attributes:
        own: the job's own code, in which the change is shown.
        other_loader: the change is about another loader than the one that the training goes over.
        changes_step: as of a ``Fix``.
        price: what it gives up for its gain, to be said of it; None where that is nothing, or its own words say it.
    """

    message: Message
    predicted_speedup: float | None = None
    speedup_range: tuple[float, float] | None = None
    own: OwnCode = OwnCode()
    other_loader: bool = False
    changes_step: bool = False
    price: Message | None = None


def advise(what: str, /, **values: Any) -> Advice:
    """Advice with its values; ``perfdoctor.rules.gains`` knows what it brings."""
    return Advice(say(what, **values))


def frees_much(fix: Fix | Advice) -> bool:
    """Whether a change is expected to free so much of the time that a sound job's first line should say so."""
    freed = 1 - 1 / (fix.predicted_speedup or 1.0)
    return freed >= thresholds.WORTH_THE_HEADLINE


def expected_freed(fix: Fix | Advice) -> float:
    """The middle of the fractions of the time that a change may free."""
    least, most = fix.speedup_range or (fix.predicted_speedup or 1.0,) * 2
    return 1 - (1 / least + 1 / most) / 2


@dataclass(frozen=True, slots=True)
class LookAlike:
    """Another cause that shows itself like the one that was found, and what was measured of it.

    Attributes:
        share: fraction of wall time that goes there; None where that was not examined.
        ruled_out: too little goes there to be reported.
        evidence: numbers that tell the two apart, as far as they were measured.
    """

    cause: str
    share: float | None
    ruled_out: bool
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that costs time.

    Attributes:
        share: fraction of wall time that a fix would free, 0 to 1.
        severity: ``high``, ``medium``, ``low``; ``none`` where it is no bottleneck.
        predicted_speedup: what fixing it brings, bounded by the next bottleneck; that of the first of its fixes whose
            gain can be computed.
        summary: one sentence that says what happens.
        refuted_by: the test that would prove this finding wrong.
        ranks: the ranks in which the cause lies; empty for a job of one trainer.
        look_alikes: causes that look like this one, and what was measured of them.
        title: what it is, in a few words, where that is more than its cause says; else "".
    """

    cause: str
    share: float
    severity: str
    predicted_speedup: float
    summary: Text
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix | Advice, ...] = ()
    refuted_by: Text = ""
    ranks: tuple[int, ...] = ()
    look_alikes: tuple[LookAlike, ...] = ()
    title: Text = ""

    @property
    def bottleneck(self) -> str | None:
        """The resource that the cause belongs to."""
        return CAUSES[self.cause].bottleneck


class Why(Enum):
    """Why no bottleneck can be named."""

    NOTHING_SEEN = auto()
    NOT_TRAINING = auto()
    TOO_BRIEF = auto()
    STILL = auto()
    STUCK = auto()
    UNATTRIBUTED = auto()
    LATE_RANK = auto()
    TRACE = auto()


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """That no bottleneck can be named.

    Attributes:
        why: the reason, on which the next move depends.
        summary: what is missing, for people.
        pid: the process that hangs or is stopped.
        straggler_rank: the rank that the others wait for, where it is not known why.
    """

    why: Why
    summary: Text
    pid: int | None = None
    straggler_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first cause.

    Attributes:
        bottleneck: ``cpu``, ``gpu``, ``io``, ``communication``; None where the evidence does not suffice.
        cause: cause id; None together with ``bottleneck``.
        confidence: 0 to 1, how often the same cause comes first when the recording is resampled in blocks.
        level: what it rests on: ``OUTSIDE``, ``INSIDE``, ``TRACED`` or ``CONFIRMED``.
        summary: one sentence; where there is no verdict, what is missing.
        missing: why there is no verdict; None where there is one.
    """

    bottleneck: str | None
    cause: str | None
    share: float
    confidence: float
    predicted_speedup: float
    straggler_rank: int | None
    level: str
    summary: Text
    missing: NoVerdict | None = None


@dataclass(frozen=True, slots=True)
class CauseShare:
    """One line of the breakdown: a cause and the fraction of wall time that went there."""

    cause: str
    share: float


@dataclass(frozen=True, slots=True)
class NotExamined:
    """What was not examined, why, and what would enable it.

    Attributes:
        too_brief: nothing is in the way but time: watching longer makes up for it.
    """

    probe: str
    reason: Text
    enable: Text
    too_brief: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """A measurement over time, for charts.

    Attributes:
        chart: series with the same chart title are drawn together.
        times: seconds since the recording began.
        values: same length; None where it could not be read.
    """

    chart: str
    name: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that a report says.

    Attributes:
        breakdown: shares by cause, largest first, that sum to 1.
        ranks: per trainer: ``{"rank", "pid", "breakdown": [...], "workers": n}``;
            of a traced rank ``pid`` and ``workers`` are None, and ``trace`` is the file's name.
        steps: what is known of the steps, ``{}`` if nothing.
        overhead: what the diagnosis cost: ``{"cpu_cores", "memory_bytes", "late_ticks", …}``.
        job: what was watched: command, pid, host, cores, torch and Python where known, seconds watched.
        activity: what was seen over time, over the code and over the steps, for pictures.
        method: how its numbers came about in this job, one sentence each.
        not_drawn: what of that was not seen, and why, one sentence each.
        blocks: the same time stretch by stretch, to tell how much the job varies.
        crowd: the ranks in short, where there are many; None where there are few.
        stuck: what holds a job up that makes no progress; None for one that steps, and where that was not seen.
    """

    version: str
    verdict: Verdict
    breakdown: tuple[CauseShare, ...]
    findings: tuple[Finding, ...]
    ranks: tuple[dict[str, Any], ...] = ()
    steps: dict[str, Any] = field(default_factory=dict)
    not_examined: tuple[NotExamined, ...] = ()
    overhead: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    activity: Activity = field(default_factory=Activity)
    not_drawn: tuple[Text, ...] = ()
    method: tuple[Text, ...] = ()
    blocks: tuple[Block, ...] = ()
    crowd: Crowd | None = None
    stuck: Stuck | None = None

    @property
    def verdict_finding(self) -> Finding | None:
        """The finding of the cause that the verdict names; None where there is none."""
        return next((finding for finding in self.findings if finding.cause == self.verdict.cause), None)

    def to_frame(self, part: Part = "findings") -> pd.DataFrame:
        """One part of it as a pandas DataFrame; ``docs/notebook.md`` lists the columns.

        Raises:
            ValueError: there is no such part.
        """
        from perfdoctor.reports.dataframes import render

        return render(self, part)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from perfdoctor.reports import notebook

        return notebook.render(self)
