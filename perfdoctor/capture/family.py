"""The processes of a job before it is watched: which of them have PyTorch loaded?"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from perfdoctor.capture.job import find_root, uses_torch
from perfdoctor.capture.pythons import python_of
from perfdoctor.errors import PerfDoctorError

# A Python process younger than this may be about to load PyTorch: that takes seconds, from a slow disk a minute.
YOUNG_S = 60.0
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Relative:
    """A process of the job.

    Attributes:
        torch: whether PyTorch is loaded; None if that cannot be read.
        may_load_torch: it has not, but it is a Python process that has just been started.
    """

    pid: int
    name: str
    torch: bool | None
    may_load_torch: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


def family_of(pid: int) -> list[Relative]:
    """A process and all below it, parents before children, without this one; those that end meanwhile are left out."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.Error:
        return []
    found = []
    for process in family:
        try:
            name, age_s = process.name(), time.time() - process.create_time()
        except psutil.Error:
            continue
        torch = uses_torch(process.pid)
        young = torch is False and age_s < YOUNG_S and _is_python(process.pid)
        if process.pid != os.getpid():
            found.append(Relative(process.pid, name, torch, young))
    return found


def require_torch(pid: int) -> None:
    """Makes sure that some process of the job may train: has PyTorch loaded, or may load it any moment.

    Args:
        pid: any process of the job.

    Raises:
        PerfDoctorError: none does; the job would be watched for nothing.
    """
    family = family_of(find_root(pid))
    if not family or any(one.torch is not False or one.may_load_torch for one in family):
        return
    raise PerfDoctorError(
        f"No process of this job has PyTorch loaded: {listed(family)}.",
        hint="Name the process that trains, or one above it; `ps -ef | grep python` lists the Python processes.",
    )


def listed(family: list[Relative]) -> str:
    """Processes by name and number, the first few of many."""
    more = len(family) - _SHOWN
    return ", ".join(map(str, family[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _is_python(pid: int) -> bool:
    try:
        return python_of(pid) is not None
    except OSError:
        return False
