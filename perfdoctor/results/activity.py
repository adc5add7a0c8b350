"""What was seen of a job over time, over its code and over its steps: what reports draw. Plain values only."""

from __future__ import annotations

from dataclasses import dataclass

TRAINER, WORKER, GPU = "trainer", "worker", "gpu"


@dataclass(frozen=True, slots=True)
class Track:
    """What the main thread of one process did over the watched time, in bins of equal length.

    Attributes:
        role: ``TRAINER`` or ``WORKER`` (of a loader).
        rank: of the trainer, or of the one that the worker serves.
        bin_s: the length of a bin in seconds; the first one begins with the recording.
        seen: by bin, whether the thread was sampled in it.
        shares: by cause, or by phase, largest first: by bin, the fraction of its time. What a trainer was seen in sums
            to 1; a worker idles for what is left.
    """

    role: str
    rank: int
    pid: int
    bin_s: float
    seen: tuple[bool, ...]
    shares: dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class CodeNode:
    """A function in the calls of one process, and what it calls.

    Attributes:
        line: where in the function its time goes, most often.
        causes: fraction of the process's time by cause, largest first; "" where it idles.
        calls: functions that it calls, largest first; small ones are left out.
    """

    function: str
    file: str
    line: int
    causes: dict[str, float]
    calls: tuple[CodeNode, ...] = ()

    @property
    def share(self) -> float:
        """Fraction of the process's time in which the function is on the stack."""
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class CodeTree:
    """Where in the code the main thread of one process was.

    Attributes:
        role: as of a track.
        rank: as of a track.
        calls: the outermost functions, largest first. Library code that all stacks begin with is left out.
    """

    role: str
    rank: int
    pid: int
    calls: tuple[CodeNode, ...]


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the job's own code that costs time, as ``file:line function``.

    Attributes:
        share: the mean over all ranks of the fraction of wall time that goes there, by itself or by making others wait.
    """

    line: str
    cause: str
    share: float


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of the job's own source.

    Attributes:
        text: secrets masked; cut where it is long.
        share: fraction of wall time that goes there, as of a hot line; 0 where the line was never seen.
        cause: what most of that goes to; "" where there is none.
    """

    number: int
    text: str
    share: float = 0.0
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Source around one or several lines that cost time.

    Attributes:
        function: of the line that costs most.
        changed: the file was written after the job had been started: these may not be the lines that ran.
    """

    file: str
    function: str
    changed: bool
    lines: tuple[ExcerptLine, ...]

    @property
    def share(self) -> float:
        """Fraction of wall time that goes to its lines."""
        return sum(line.share for line in self.lines)


@dataclass(frozen=True, slots=True)
class SourceView:
    """The source of the lines that cost most.

    Attributes:
        excerpts: what costs most first.
        not_read: files that could not be read, and why.
    """

    excerpts: tuple[Excerpt, ...] = ()
    not_read: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LanePart:
    """What a worker or a GPU did in a part of a step.

    Attributes:
        what: of a worker a cause, "" where it idles; of a GPU the part of the step that it was in, "" where only that
            it was busy is known.
        start_s: seconds since the step began.
        fraction: of that time.
        base: what lies below it in a picture, where several things share a stretch.
    """

    what: str
    start_s: float
    length_s: float
    fraction: float = 1.0
    base: float = 0.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A loader worker or a GPU during one step.

    Attributes:
        role: ``WORKER`` or ``GPU``.
        name: the worker's process id, "" for all of them; or the GPU (``gpu:0``; "" for several, or without a number).
        parts: in order; none where it was looked at too rarely to tell.
        every_s: the usual time between two samples; None where that is not known, or it has marked its parts itself.
        steps: of so many steps of about this length it is the mean.
    """

    role: str
    name: str
    parts: tuple[LanePart, ...] = ()
    every_s: float | None = None
    steps: int = 1


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of a step.

    Attributes:
        phase: as it was marked.
        start_s: seconds since the step began.
        cause: of what was seen there where no phase was marked; "" elsewhere, and where nothing was.
    """

    phase: str
    start_s: float
    length_s: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class StepParts:
    """One step in parts.

    Attributes:
        number: of the step among those observed, from 1.
        parts: in order.
        lanes: who else was seen meanwhile.
    """

    number: int
    length_s: float
    parts: tuple[StepPart, ...]
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The observed steps of one rank.

    Attributes:
        starts_s: when each began, in seconds since the recording did.
        lengths_s: what each is charged with: an evaluation before it is not.
        outlier_s: a longer step is a long one (``perfdoctor.timeline.long_steps``).
        every: after so many steps there is a long one, within one step; None where they come irregularly.
        passes: they are backward passes, of which it is not known how many make a step.
        usual: the step of the median length.
        slowest: the longest one.
    """

    rank: int
    starts_s: tuple[float, ...]
    lengths_s: tuple[float, ...]
    outlier_s: float
    usual: StepParts
    slowest: StepParts
    every: int | None = None
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Activity:
    """All that reports draw of a job beside its measurements.

    Attributes:
        watched_s: for how long threads were sampled, where all pictures over time end; 0 where that is not known.
        phases: of a trainer of which steps are drawn, by phase: as they were marked, or else as stacks show them.
        workers_left_out: loader workers without a track, where there are very many.
    """

    watched_s: float = 0.0
    tracks: tuple[Track, ...] = ()
    phases: tuple[Track, ...] = ()
    code: tuple[CodeTree, ...] = ()
    lines: tuple[HotLine, ...] = ()
    source: SourceView = SourceView()
    steps: tuple[StepTimes, ...] = ()
    workers_left_out: int = 0
