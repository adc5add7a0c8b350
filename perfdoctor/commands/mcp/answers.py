"""What is answered about processes, jobs and causes; of diagnoses ``perfdoctor.reports.agents`` knows the words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from perfdoctor.capture.jobs import TrainingJob, TrainingJobs
from perfdoctor.capture.target import listed
from perfdoctor.causes import CAUSES
from perfdoctor.commands.job_list import listing, none_found, unread
from perfdoctor.commands.mcp.calls import Checked
from perfdoctor.probes import Availability
from perfdoctor.reports.agents import ToolAnswer, answer
from perfdoctor.reports.fitting import Section, short, short_lines

_COLUMNS = 160  # wide enough for most command lines; agents do not wrap


@dataclass(frozen=True)
class ReportedJob:
    """A training job of this host; null is what is not known."""

    pid: int
    ranks: int
    workers: int
    gpus: list[str] | None
    age_s: float
    cores: float
    memory_bytes: int | None
    steps_per_s: float | None
    idle: bool
    user: str
    command: str


@dataclass(frozen=True)
class ReportedJobs:
    """The training jobs of this host, and how many processes may not be read."""

    jobs: list[ReportedJob]
    not_read: int


@dataclass(frozen=True)
class ReportedProbe:
    """What a probe would see: ``works``, ``in part`` or ``no``."""

    probe: str
    state: str


@dataclass(frozen=True)
class ReportedCheck:
    """Whether a process can be attached to, and what would be seen; null where no process was named."""

    attachable: bool | None
    probes: list[ReportedProbe]


@dataclass(frozen=True)
class ReportedCause:
    """A cause that perfdoctor can name."""

    cause: str
    title: str
    healthy: bool


def tell_jobs(found: TrainingJobs) -> ToolAnswer:
    """The training jobs of this host."""
    values = asdict(ReportedJobs([_job(job) for job in found.jobs], found.unread))
    heading, *lines = listing(found.jobs, columns=_COLUMNS).split("\n") if found.jobs else (none_found(found),)
    rest = "[…] more jobs run on this host than have room here"
    return answer((Section("", (heading, *lines), rest), Section("", short_lines(unread(found)))), values)


def _job(job: TrainingJob) -> ReportedJob:
    return ReportedJob(
        pid=job.pid,
        ranks=len(job.trainers),
        workers=job.workers,
        gpus=None if job.gpus is None else list(job.gpus),
        age_s=round(job.age_s, 1),
        cores=round(job.cores, 2),
        memory_bytes=job.memory_bytes,
        steps_per_s=job.steps_per_s,
        idle=job.is_idle,
        user=job.user,
        command=job.command,
    )


def tell_check(checked: Checked, pid: int | None) -> ToolAnswer:
    """What perfdoctor could see, and whether attach would take the process."""
    attachable = None if pid is None else checked.refusal is None
    values = asdict(ReportedCheck(attachable, [ReportedProbe(one.probe, one.state) for one in checked.probes]))
    first = [f"Process {pid} can be attached to."]
    if pid is None:
        first = ["Of a process on this host would be seen, by probe:"]
    elif checked.refusal is not None:
        first = [f"Process {pid} cannot be attached to.", *checked.refusal]
    torch = [one for one in checked.family if one.torch]
    if len(checked.family) > 1 and torch:
        first.append(f"Of the {len(checked.family)} processes at and below it these have PyTorch: {listed(torch)}.")
    return answer(
        (
            Section("", short_lines(*first)),
            Section("", tuple(_availabilities(checked.probes))),
            Section(
                "A trace, which no tool takes, but `perfdoctor attach --trace`:", tuple(_availabilities(checked.ways))
            ),
        ),
        values,
    )


def _availabilities(checks: Iterable[Availability]) -> Iterable[str]:
    """One line for each; each remedy once."""
    shown = {""}
    for one in checks:
        remedy = "" if one.enable in shown else f" To enable: {one.enable}"
        shown.add(one.enable)
        yield f"- {short(f'{one.probe}: {one.state}. {one.reason}{remedy}')}"


def tell_cause(cause: str) -> ToolAnswer:
    """What a cause means, what looks like it, what helps, and what would refute it.

    Raises:
        PerfDoctorError: there is no such cause.
    """
    from perfdoctor.commands.explain import require_cause
    from perfdoctor.reports import explained

    require_cause(cause)
    known = CAUSES[cause]
    text = explained.render(cause, width=_COLUMNS, color=False, encoding="utf-8")
    return answer(
        (Section("", tuple(text.strip().split("\n"))),), asdict(ReportedCause(cause, known.title, known.healthy))
    )
