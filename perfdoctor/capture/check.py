"""Before anything is touched: which probes would work on this process, and what would enable the others."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from perfdoctor.capture.target import require_proc, require_process
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import Availability, all_probes
from perfdoctor.probes.readers.process import Candidate, uses_torch
from perfdoctor.probes.steps import StepsProbe

_WITHOUT_STACKS = (
    "Without stacks it is not known whether Python code prepares the input or calls the model, nor at which lines; "
    "that time stays unattributed."
)


def preflight(pid: int | None, root: Path = Path("/")) -> list[Availability]:
    """Says which probes would work, without attaching to anything.

    Args:
        pid: the process to be watched, or a launcher above it; None to examine the machine alone.
        root: where /proc and /sys are.

    Returns:
        One for each probe that looks from outside.

    Raises:
        PerfDoctorError: there is no such process, or it has ended.
    """
    probes = all_probes(root)
    if not sys.platform.startswith("linux"):
        reason = f"Watching a running process works on Linux only; this is {sys.platform}."
        return [Availability(probe.name, False, reason, "run perfdoctor where the job runs") for probe in probes]
    require_proc(root)
    if pid is not None:
        require_process(pid, root)
        pid = trainer_below(pid, root)
    process = Candidate(pid, root)
    try:
        return [_with_cost(probe.check(process), process) for probe in probes]
    except OSError:
        raise PerfDoctorError(f"Process {pid} has just ended.") from None


def steps_availability(pid: int) -> Availability:
    """Says whether the steps of a process could be counted, without touching it.

    Raises:
        PerfDoctorError: it has ended.
    """
    try:
        return StepsProbe().check(Candidate(pid))
    except OSError:
        raise PerfDoctorError(f"Process {pid} has just ended.") from None


def _with_cost(answer: Availability, process: Candidate) -> Availability:
    """Says what it costs to do without stacks, where there would be any."""
    if answer.probe != "stacks" or answer.available or process.python is None:
        return answer
    return answer._replace(reason=f"{answer.reason} {_WITHOUT_STACKS}")


def trainer_below(pid: int, root: Path = Path("/")) -> int:
    """The first process with torch at or below this one: of a launcher, a trainer; or else itself."""
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return pid
    return next((member for member in family if uses_torch(member, root)), pid)
