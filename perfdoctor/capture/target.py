"""The process that a user names: is it there, can it be looked at, may its job train; and if not, what to do?"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from perfdoctor.capture.job import find_root
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import Text, say
from perfdoctor.probes.readers.permissions import as_root, rights_over
from perfdoctor.probes.readers.process import python_of, uses_torch
from perfdoctor.probes.readers.procfs import status_fields

# A Python process younger than this may be about to load PyTorch: that takes seconds, from a slow disk a minute.
YOUNG_S = 60.0
_SHOWN = 4
_LIST = say("moves.list_processes")


def process_id(text: str) -> int:
    """The number of a process on a command line.

    Raises:
        ArgumentTypeError: it is no number.
    """
    try:
        return int(text)
    except ValueError:
        error = PerfDoctorError(f"{text!r} is not the number of a process.", hint=_LIST)
        raise argparse.ArgumentTypeError(f"{error} {error.hint}") from None


def require_linux() -> None:
    """Makes sure that this is Linux.

    Raises:
        PerfDoctorError: it is not.
    """
    if not sys.platform.startswith("linux"):
        raise PerfDoctorError(
            f"Watching a running process works on Linux only; this is {sys.platform}.",
            hint="Run perfdoctor on the Linux machine or in the container where the job runs.",
        )


def require_proc(root: Path = Path("/")) -> None:
    """Makes sure that this is Linux, and that /proc is mounted.

    Raises:
        PerfDoctorError: it is not.
    """
    require_linux()
    if not (root / "proc/self/status").exists():
        raise PerfDoctorError("/proc is not mounted.", hint="mount -t proc proc /proc")


def require_process(pid: int, root: Path = Path("/")) -> None:
    """Makes sure that a process is there and alive.

    Args:
        pid: the process that the user named.
        root: where /proc is.

    Raises:
        PerfDoctorError: there is no such process, or it has ended; or this is not Linux.
    """
    require_proc(root)
    try:
        status = status_fields((root / f"proc/{pid}/status").read_bytes())
    except OSError:
        raise PerfDoctorError(f"There is no process {pid}.", hint=_elsewhere(pid, root)) from None
    _require_living(pid, status)


def require_target(pid: int, root: Path = Path("/")) -> None:
    """Makes sure that a process is there, alive, and may be looked at.

    Args:
        pid: the process that the user named.
        root: where /proc is.

    Raises:
        PerfDoctorError: as for ``require_process``; or the process is somebody else's.
    """
    require_process(pid, root)
    try:
        rights = rights_over(pid, root)
    except OSError:
        raise PerfDoctorError(f"Process {pid} has just ended.", hint=_LIST) from None
    if not rights.read:
        raise PerfDoctorError(rights.why_not.reason, hint=f"Run: {rights.why_not.enable}")


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
        hint=say("moves.name_trainer"),
    )


def listed(family: list[Relative]) -> str:
    """Processes by name and number, the first few of many."""
    more = len(family) - _SHOWN
    return ", ".join(map(str, family[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _require_living(pid: int, status: dict[str, str]) -> None:
    if status.get("State", "").startswith(("Z", "X")):
        raise PerfDoctorError(f"Process {pid} has ended; only its exit status is left (a zombie).", hint=_LIST)
    leader = int(status.get("Tgid", pid))
    if leader != pid:
        raise PerfDoctorError(f"{pid} is a thread of process {leader}.", hint=say("moves.attach", pid=leader))
    if "VmSize" not in status:
        raise PerfDoctorError(f"Process {pid} is a thread of the kernel.", hint=_LIST)


def _elsewhere(pid: int, root: Path) -> Text:
    """Where the process may be that was meant: hidden, or in a container with numbers of its own."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return f"It exists, but /proc is mounted so that it is hidden (hidepid). Run: {as_root(pid)}"
    except (OSError, OverflowError):
        pass
    inner = [outer for outer in _numbered_inside(pid, root) if outer != pid]
    return say("moves.attach_outer", inner=pid, outer=tuple(inner[:3])) if inner else _LIST


def _numbered_inside(pid: int, root: Path) -> list[int]:
    """Processes that have this number in a pid namespace below ours."""
    found = []
    for entry in (root / "proc").glob("[0-9]*"):
        try:
            numbers = status_fields((entry / "status").read_bytes()).get("NSpid", "").split()
        except OSError:
            continue
        if str(pid) in numbers[1:]:
            found.append(int(entry.name))
    return sorted(found)


def _is_python(pid: int) -> bool:
    try:
        return python_of(pid) is not None
    except OSError:
        return False
