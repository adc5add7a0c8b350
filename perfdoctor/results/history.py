"""The history of a job that is watched for days: what `perfdoctor monitor` keeps, one value for each line of its file.

Dates are seconds since 1970; how long something took was measured on the one clock, which nobody sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Union

from msgspec import Struct

# The name of the reading that every history has.
JOB_MEMORY = "job_memory_bytes"


class LongStep(Struct, frozen=True, array_like=True):
    """A step that took much longer than those around it.

    Attributes:
        at: when it began.
        longer_s: what it took longer than an ordinary one, in seconds.
        number: how many steps of the job were counted before it.
    """

    at: float
    longer_s: float
    number: int


class Beat(Struct, frozen=True, tag="beat", omit_defaults=True):
    """Some seconds of the job, in which its steps were counted without a break.

    Attributes:
        began: where it began.
        lasted_s: seconds from there to its end.
        steps: how many ended in it.
        steps_s: how long these took together, in seconds; what lies between two jobs is no step.
        long: those of them that took much longer than the others.
        readings: last or mean value by name of the signal (``perfdoctor.monitor.slow_readings``).
    """

    began: float
    lasted_s: float
    steps: int = 0
    steps_s: float = 0.0
    long: tuple[LongStep, ...] = ()
    readings: Mapping[str, float] = {}

    @property
    def ended(self) -> float:
        """Where it ended."""
        return self.began + self.lasted_s

    @property
    def step_s(self) -> float | None:
        """Seconds that a step took, without what long ones took longer; None without one."""
        return (self.steps_s - sum(one.longer_s for one in self.long)) / self.steps if self.steps else None


class Window(Struct, frozen=True, tag="window", omit_defaults=True):
    """Some seconds in which the job was watched as `perfdoctor attach` does it, and the diagnosis.

    Attributes:
        began: when the watching began.
        lasted_s: for how long the job was watched.
        why: ``interval``; ``slower``; ``long step``, while it lasted; or ``expected``: a long step was due.
        cause: of the verdict; None where there was none.
        shares: fraction of wall time by cause; none of a job that is stuck.
        summary: the verdict in one sentence, or why there is none.
        stuck: what a job that makes no progress sits in; "" for one that steps.
        cost_s: CPU seconds of perfdoctor.
        recording: its file in the folder; "" where there is none.
    """

    began: float
    lasted_s: float
    why: str
    cause: str | None = None
    share: float = 0.0
    confidence: float = 0.0
    shares: Mapping[str, float] = {}
    straggler_rank: int | None = None
    summary: str = ""
    stuck: str = ""
    cost_s: float = 0.0
    recording: str = ""

    @property
    def ended(self) -> float:
        """When the watching ended."""
        return self.began + self.lasted_s

    def per_step(self, step_s: float) -> dict[str, float]:
        """Seconds by cause of a step that takes so many."""
        return {cause: share * step_s for cause, share in self.shares.items()}


class Happened(Enum):
    """What may become of a job."""

    SLOWER = "slower"
    FASTER = "faster"
    DIP = "slower for a while"
    RECURRING = "long steps that recur"
    DRIFT = "slow drift"
    MEMORY = "memory grows"
    NO_STEPS = "no steps"
    CAUSE = "another cause"
    DIPS = "slower again and again"
    RESTARTS = "started again and again"


class Incident(Struct, frozen=True, tag="incident", omit_defaults=True):
    """Something that happened to the job. A later one with the same number takes its place: more is known then.

    Attributes:
        number: counts from 1.
        what: what happened.
        since: when it began.
        until: when it was over; None where it goes on.
        values: numbers by name, as ``perfdoctor.monitor.detector`` sets them; seconds, bytes, or fractions.
        cause: what costs more since (less, where it became faster), or what long steps take their time for; None where
            no window saw it.
        recordings: files that show it, the one before first.
        stuck: what the job sits in while no step is made, as of a window; "" where none has seen that.
        summary: likewise, who holds it up and where, in one sentence.
    """

    number: int
    what: Happened
    since: float
    until: float | None = None
    values: Mapping[str, float] = {}
    cause: str | None = None
    recordings: tuple[str, ...] = ()
    stuck: str = ""
    summary: str = ""


class Appeared(Enum):
    """What became of the job's processes, or of the watching."""

    FOUND = "found"
    ENDED = "ended"
    STARTED_AGAIN = "started again"
    GIVEN_UP = "not started again"
    INTERRUPTED = "watching ended"
    UNSEEN = "could not look"


HERE = (Appeared.FOUND, Appeared.STARTED_AGAIN)  # the job is there from then on


class Presence(Struct, frozen=True, tag="presence", omit_defaults=True):
    """That the job is there, or is not; or its trainer, where a launcher stays meanwhile.

    Attributes:
        at: when that was seen.
        pid: the process at the job's top that is there or was; or its trainer.
        command: its command line, secrets masked.
        text: what was in the way where it could not be looked at.
    """

    at: float
    what: Appeared
    pid: int = 0
    command: str = ""
    text: str = ""


Line = Union[Beat, Window, Incident, Presence]  # noqa: UP007 - msgspec reads it at run time, on Python 3.10 too
