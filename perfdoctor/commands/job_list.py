"""The training jobs of this host as a list, and the choice of one where a command was given no process."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence

from perfdoctor.capture.jobs import TrainingJob, TrainingJobs
from perfdoctor.errors import PerfDoctorError

UNKNOWN = "—"
_HEADINGS = ("PID", "USER", "RANKS", "WORKERS", "GPUS", "AGE", "CPU", "MEMORY", "STEPS/S", "COMMAND")
# So many words of a path are shown, the last ones; and so many columns of a command where there is no terminal.
_PATH_WORDS = 2
_PIPE_COLUMNS = 200
# In a sentence, of so many jobs so many columns of each command.
_MOST_TOLD, _TOLD_COLUMNS = 8, 50


def listing(jobs: Sequence[TrainingJob], *, numbered: bool = False, columns: int | None = None) -> str:
    """One line for each job below a line of headings; the command is cut where the line ends.

    Args:
        jobs: what to list.
        numbered: whether each has a number to choose it by.
        columns: how long a line may be; None for the terminal's width.
    """
    columns = columns or (shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS)
    rows = [_HEADINGS, *map(_row, jobs)]
    if numbered:
        numbers = ("", *(str(number) for number in range(1, len(jobs) + 1)))
        rows = [(number, *row) for number, row in zip(numbers, rows, strict=True)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = ("  ".join((*map(str.rjust, row[:-1], widths), row[-1])) for row in rows)
    return "\n".join(_cut(line, columns) for line in lines)


def unread(found: TrainingJobs) -> str:
    """What could not be looked at, in a sentence or two; "" if nothing was left out."""
    if found.why_unread is None:
        return ""
    many = "1 process" if found.unread == 1 else f"{found.unread} processes"
    missing = f"{many} may not be read, and jobs among them are missing here. " if found.unread else ""
    return f"{missing}{found.why_unread.reason}"


def none_found(found: TrainingJobs) -> str:
    """That there is no training job, in one sentence."""
    of_which = " that may be read" if found.why_unread else ""
    return f"No training job runs on this host: no process{of_which} has PyTorch loaded."


def choose(found: TrainingJobs) -> int:
    """The process to attach to where the user has named none: that of the only training job, or the one chosen.

    A job that takes no CPU time, as a notebook between two cells, is passed over where just one other is at work.

    Raises:
        PerfDoctorError: there is none; or there are several, and nobody can be asked or nobody chooses.
    """
    if not found.jobs:
        see = f"Or, to see more: {found.why_unread.enable}" if found.why_unread else ""
        start = "Start one, or name a process: perfdoctor attach PID"
        raise PerfDoctorError(f"{none_found(found)} {unread(found)}".rstrip(), hint=f"{start}. {see}".rstrip(". "))
    at_work = [job for job in found.jobs if not job.is_idle] or found.jobs
    job = at_work[0] if len(at_work) == 1 else _ask(found.jobs)
    print(f"perfdoctor: attaching to {job.pid}: {shortened(job.command)}", file=sys.stderr)
    return job.pid


def _ask(jobs: Sequence[TrainingJob]) -> TrainingJob:
    """Asks on the terminal, until a number is given that is in the list."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        told = ", ".join(f"{job.pid} ({_cut(shortened(job.command), _TOLD_COLUMNS)})" for job in jobs[:_MOST_TOLD])
        more = f" and {len(jobs) - _MOST_TOLD} more" if len(jobs) > _MOST_TOLD else ""
        raise PerfDoctorError(
            f"{len(jobs)} training jobs run on this host: {told}{more}.", hint="Name one: perfdoctor attach PID"
        )
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
    return text if len(text) <= columns else text[: columns - 1] + "…"


def _row(job: TrainingJob) -> tuple[str, ...]:
    from perfdoctor.reports.text import clean, duration, number, size

    return (
        str(job.pid),
        clean(job.user),
        str(len(job.trainers)),
        str(job.workers),
        UNKNOWN if job.gpus is None else " ".join(gpu.removeprefix("gpu:") for gpu in job.gpus) or "none",
        duration(round(job.age_s)),
        "idle" if job.is_idle else f"{job.cores:.1f}",
        UNKNOWN if job.memory_bytes is None else size(job.memory_bytes),
        UNKNOWN if job.steps_per_s is None else number(job.steps_per_s),
        shortened(job.command),
    )  # fmt: skip
