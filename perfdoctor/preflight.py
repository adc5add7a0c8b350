"""Before anything is touched: which probes would work here and on this process, and what would enable the others."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from perfdoctor.job import uses_torch
from perfdoctor.probes.cgroup import groups_of
from perfdoctor.probes.nvml import Nvml, why_no_gpu
from perfdoctor.probes.stacks import find_py_spy
from perfdoctor.pythons import Python, newest_of_py_spy, python_of
from perfdoctor.rights import Rights, as_root, rights_over
from perfdoctor.syscall_filters import memory_refusal, perf_refusal
from perfdoctor.target import require_target

PROBES = ("threads", "stacks", "interpreter", "code", "cpu", "memory", "io", "network", "gpu")
_OLDEST_INTERPRETER, _NEWEST_INTERPRETER = (3, 8), (3, 14)
_OLDEST_STACKS = (3, 3)


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one probe would work.

    Attributes:
        probe: its name, one of ``PROBES``.
        ok: it works, perhaps only in part: then ``reason`` says what is missing.
        reason: one sentence; empty if nothing is missing.
        enable: the command or setting that enables what is missing; empty likewise.
    """

    probe: str
    ok: bool
    reason: str = ""
    enable: str = ""

    @property
    def state(self) -> str:
        """``works``, ``in part`` or ``no``."""
        if not self.ok:
            return "no"
        return "in part" if self.reason else "works"


@dataclass(frozen=True, slots=True)
class _Target:
    """What was found out about the process; without one, all that depends on it counts as granted."""

    pid: int | None
    rights: Rights
    python: Python | None
    torch: bool | None


def preflight(pid: int | None, root: Path = Path("/")) -> list[Check]:
    """Says which probes would work, without attaching to anything.

    Args:
        pid: the process to be watched, or a launcher above it; None to examine the machine alone.
        root: where /proc and /sys are.

    Returns:
        One check per probe, in the order of ``PROBES``.

    Raises:
        PerfDoctorError: there is no such process, or it has ended.
    """
    if not sys.platform.startswith("linux"):
        reason = f"Watching a running process works on Linux only; this is {sys.platform}."
        return [Check(probe, False, reason, "run perfdoctor where the job runs") for probe in PROBES]
    target = _examine(pid, root)
    checks = (
        _threads(target),
        _stacks(target),
        _interpreter(target),
        _code(target, root),
        _cpu(pid, root),
        _memory(target, root),
        _io(target),
        _network(target),
        _gpu(root),
    )
    return list(checks)


def _examine(pid: int | None, root: Path) -> _Target:
    if pid is None:
        return _Target(None, Rights(True, True), Python(None), True)
    require_target(pid, root, permitted=False)
    pid = _trainer_below(pid)
    rights = rights_over(pid, root)
    try:
        return _Target(pid, rights, python_of(pid, root), uses_torch(pid, root))
    except OSError:
        # Whether it is a Python cannot be seen: what may not be looked at is reported, what it is is not guessed.
        return _Target(pid, rights, Python(None), None)


def _trainer_below(pid: int) -> int:
    """The first process with torch at or below this one (of a launcher, a trainer); itself if there is none."""
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        family = [pid]
    return next((member for member in family if uses_torch(member)), pid)
