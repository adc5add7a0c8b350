"""The training jobs of this host as a list, and the choice of one where a command was given no process."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from perfdoctor.capture.jobs import TrainingJob, TrainingJobs, our_allocation
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.reports.language import ENGLISH, language
from perfdoctor.reports.wording import job_words, worded
from perfdoctor.reports.wrapping import fitted

UNKNOWN = "—"
# So many words of a path are shown, the last ones; and so many columns of a command where there is no terminal.
_PATH_WORDS = 2
_PIPE_COLUMNS = 200
# In a sentence, of so many jobs so many columns of each command.
_MOST_LISTED, _COMMAND_COLUMNS = 8, 50


def listing(jobs: Sequence[TrainingJob], *, numbered: bool = False, columns: int | None = None) -> str:
    """One line for each job below a line of headings; the command is cut where the line ends.

    Args:
        jobs: what to list.
        numbered: whether each has a number to choose it by.
        columns: how long a line may be; None for the terminal's width.
    """
    from rich.cells import cell_len

    columns = columns or (shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS)
    rows = [job_words().HEADINGS, *map(_row, jobs)]
    if numbered:
        numbers = ("", *(str(number) for number in range(1, len(jobs) + 1)))
        rows = [(number, *row) for number, row in zip(numbers, rows, strict=True)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    aligned = [[fitted(*cell, left=False) for cell in zip(row[:-1], widths, strict=True)] for row in rows]
    lines = ("  ".join((*cells, row[-1])) for cells, row in zip(aligned, rows, strict=True))
    return "\n".join(_cut(line, columns) for line in lines)


def unread(found: TrainingJobs) -> str:
    """What could not be looked at, in a sentence or two; "" if nothing was left out."""
    if found.why_unread is None:
        return ""
    return worded(say("jobs.unread", processes=found.unread, reason=worded(found.why_unread.reason)))


def none_found(found: TrainingJobs) -> str:
    """That there is no training job, in one sentence."""
    return worded(say("jobs.none_found", some_unread=found.why_unread is not None))


@language(ENGLISH)  # as all questions and errors are
def choose(found: TrainingJobs, name: str | None = None, *, alone: bool = False) -> TrainingJob:
    """The job to attach to where the user has named no process: the only one here, or the one that is chosen.

    A job that takes no CPU time, as a notebook between two cells, is passed over where just one other is at work; and
    where perfdoctor itself was started within a job of Slurm's, so are those that were not.

    Args:
        found: the jobs of this host.
        name: what the job is called; None for any.
        alone: nobody is there to be asked: the same command runs on other hosts too.

    Raises:
        PerfDoctorError: there is none; or there are several, and nobody can be asked or nobody chooses.
    """
    if not found.jobs:
        see = f"Or, to see more: {found.why_unread.enable}" if found.why_unread else ""
        start = f"Start one, or {'wait for it: --wait SECONDS' if alone else 'name a process: perfdoctor attach PID'}"
        raise PerfDoctorError(f"{none_found(found)} {unread(found)}".rstrip(), hint=f"{start}. {see}".rstrip(". "))
    jobs = _called(found.jobs, name) if name is not None else _in_our_allocation(found.jobs)
    at_work = [job for job in jobs if not job.is_idle] or jobs
    job = at_work[0] if len(at_work) == 1 else _refuse(at_work) if alone else _ask(jobs)
    print(f"perfdoctor: attaching to {job.pid}: {shortened(job.command)}", file=sys.stderr)
    return job


def _called(jobs: Sequence[TrainingJob], name: str) -> Sequence[TrainingJob]:
    """Those of a name.

    Raises:
        PerfDoctorError: there is none.
    """
    if called := [job for job in jobs if name in job.names]:
        return called
    listed = "; ".join(_in_short(job, jobs) for job in jobs[:_MOST_LISTED])
    raise PerfDoctorError(
        f"No training job on this host is called {name}; there {'is' if len(jobs) == 1 else 'are'} {listed}.",
        hint="Name it by its Slurm job, its --rdzv-id, or the address where its ranks meet.",
    )


def _in_our_allocation(jobs: Sequence[TrainingJob]) -> Sequence[TrainingJob]:
    """Those of the Slurm job that perfdoctor was started in; all where there is none of it."""
    return [job for job in jobs if our_allocation() in job.names] or jobs


def _refuse(jobs: Sequence[TrainingJob]) -> NoReturn:
    called = [one for job in jobs if (one := _own_name(job, jobs))]
    everywhere = f"Name one, as all hosts know it: perfdoctor attach --job {called[0]}" if called else ""
    raise PerfDoctorError(
        _several(jobs), hint=everywhere or "Name a process of it, on each host: perfdoctor attach PID"
    )


def _several(jobs: Sequence[TrainingJob]) -> str:
    """That there are several jobs, and which, in one sentence."""
    listed = "; ".join(_in_short(job, jobs) for job in jobs[:_MOST_LISTED])
    more = f" and {len(jobs) - _MOST_LISTED} more" if len(jobs) > _MOST_LISTED else ""
    return f"{len(jobs)} training jobs run on this host: {listed}{more}."


def _in_short(job: TrainingJob, jobs: Sequence[TrainingJob]) -> str:
    """A job in a sentence: its name, if it has one that no other has, and its process and command."""
    process = f"{job.pid} ({_cut(shortened(job.command), _COMMAND_COLUMNS)})"
    name = _own_name(job, jobs)
    return f"{name}: {process}" if name else process


def _own_name(job: TrainingJob, jobs: Sequence[TrainingJob]) -> str:
    others = {name for other in jobs if other is not job for name in other.names}
    return next((name for name in job.names if name not in others), "")


def _ask(jobs: Sequence[TrainingJob]) -> TrainingJob:
    """Asks on the terminal, until a number is given that is in the list."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise PerfDoctorError(_several(jobs), hint="Name one: perfdoctor attach PID")
    columns = shutil.get_terminal_size().columns
    print(listing(jobs, numbered=True, columns=columns), file=sys.stderr)
    while True:
        print(f"Which one? 1 to {len(jobs)}, or nothing for none: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            raise PerfDoctorError("No job was chosen.", hint="Name one: perfdoctor attach PID")
        if answer.isdecimal() and 1 <= int(answer) <= len(jobs):
            return jobs[int(answer) - 1]


def shortened(command: str) -> str:
    """A command line with the last words only of long paths."""
    from perfdoctor.reports.text import clean

    short = [
        f"…/{'/'.join(parts[-_PATH_WORDS:])}" if len(parts := word.split("/")) > _PATH_WORDS + 1 else word
        for word in clean(command).split(" ")
    ]
    program = re.sub(r".*/", "", short[0])
    return " ".join([program, *short[1:]])


def _cut(text: str, columns: int) -> str:
    from rich.cells import cell_len

    return text if cell_len(text) <= columns else fitted(text, columns - 1) + "…"


def _row(job: TrainingJob) -> tuple[str, ...]:
    from perfdoctor.reports.text import clean, duration, number, size

    words = job_words()
    return (
        str(job.pid),
        clean(job.user),
        str(len(job.trainers)),
        str(job.workers),
        UNKNOWN if job.gpus is None else " ".join(gpu.removeprefix("gpu:") for gpu in job.gpus) or words.NO_GPU,
        duration(round(job.age_s)),
        words.IDLE if job.is_idle else f"{job.cores:.1f}",
        UNKNOWN if job.memory_bytes is None else size(job.memory_bytes),
        UNKNOWN if job.steps_per_s is None else number(job.steps_per_s),
        shortened(job.command),
    )  # fmt: skip
