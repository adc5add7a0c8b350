"""Before anything is touched: which probes would work on this process, and what would enable the others."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from perfdoctor.capture.job import TORCH_LIBRARIES
from perfdoctor.capture.permissions import Rights, rights_over
from perfdoctor.capture.pythons import Python, newest_of_py_spy, python_of
from perfdoctor.capture.syscall_filters import memory_refusal, perf_refusal
from perfdoctor.capture.target import require_proc, require_process
from perfdoctor.diagnosis import say
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes.readers.cgroup import groups_of
from perfdoctor.probes.readers.nvml import Nvml, why_no_gpu
from perfdoctor.probes.stacks import find_py_spy
from perfdoctor.reports.wording import worded

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
        _with_cost(_stacks(target), target),
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
    require_proc(root)
    if pid is None:
        return _Target(None, Rights(True, True), Python(None), True)
    require_process(pid, root)
    member = _trainer_below(pid, root)
    try:
        rights = rights_over(member, root)
    except OSError:
        raise PerfDoctorError(f"Process {member} has just ended.") from None
    try:
        return _Target(member, rights, python_of(member, root), _has_torch(member, root))
    except OSError:
        # What may not be looked at is reported as such; what it is, is not guessed.
        return _Target(member, rights, Python(None), None)


def _trainer_below(pid: int, root: Path) -> int:
    """The first process with torch at or below this one: of a launcher, a trainer; or else itself."""
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return pid
    for member in family:
        try:
            if _has_torch(member, root):
                return member
        except OSError:
            continue
    return pid


def _has_torch(pid: int, root: Path) -> bool:
    maps = (root / f"proc/{pid}/maps").read_bytes()
    return any(library in maps for library in TORCH_LIBRARIES)


def _threads(target: _Target) -> Check:
    if not target.rights.trace:
        return Check(
            "threads", True, f"System calls stay unseen. {target.rights.reason}", target.rights.enable
        )
    return Check("threads", True)


def _stacks(target: _Target) -> Check:
    py_spy = find_py_spy()
    if py_spy is None:
        return Check("stacks", False, "py-spy is not installed.", "pip install py-spy")
    if target.python is None:
        return _not_python("stacks", target)
    newest = newest_of_py_spy(py_spy)
    version = target.python.version
    if version and (version < _OLDEST_STACKS or (newest is not None and version > (3, newest))):
        return Check(
            "stacks", False, f"This py-spy does not know {target.python}.", "pip install --upgrade py-spy"
        )
    if (refusal := _memory_refused(target)) is not None:
        return Check("stacks", False, *refusal)
    if target.torch is False:
        reason = (
            f"Process {target.pid} has not loaded torch: stacks are sampled, phases of training are not seen."
        )
        return Check("stacks", True, reason, "name the process that trains, or its launcher")
    return Check("stacks", True)


def _with_cost(stacks: Check, target: _Target) -> Check:
    """Says what it costs to do without stacks, where there are any."""
    if stacks.ok or target.python is None:
        return stacks
    return replace(stacks, reason=f"{stacks.reason} {worded(say('coverage.without_stacks'))}")


def _interpreter(target: _Target) -> Check:
    if target.python is None:
        return _not_python("interpreter", target)
    version = target.python.version
    if version and not _OLDEST_INTERPRETER <= version <= _NEWEST_INTERPRETER:
        reason = f"The interpreter lock of {target.python} cannot be read."
        return Check("interpreter", False, reason, "run the job on CPython 3.8 to 3.14")
    if (refusal := _memory_refused(target)) is not None:
        return Check("interpreter", False, *refusal)
    return Check("interpreter", True)


def _code(target: _Target, root: Path) -> Check:
    refusal = perf_refusal(root)
    if refusal is None and not target.rights.read:
        refusal = target.rights.reason, target.rights.enable
    return Check("code", refusal is None, *(refusal or ("", "")))


def _cpu(pid: int | None, root: Path) -> Check:
    missing = []
    try:
        membership = (root / f"proc/{pid or 'self'}/cgroup").read_text(errors="replace")
        if not groups_of(membership, "cpu", root):
            missing.append("CPU quotas")
    except OSError:
        missing.append("CPU quotas")
    if not (root / "proc/pressure/cpu").exists():
        missing.append("pressure")
    if not missing:
        return Check("cpu", True)
    return Check(
        "cpu", True, f"Not visible here: {' and '.join(missing)}.", "mount /sys/fs/cgroup; boot with psi=1"
    )


def _memory(target: _Target, root: Path) -> Check:
    if not target.rights.read:
        reason = f"Shares of shared memory stay unseen. {target.rights.reason}"
        return Check("memory", True, reason, target.rights.enable)
    if not (root / "proc/pressure/memory").exists():
        return Check("memory", True, "The kernel keeps no pressure information.", "boot with psi=1")
    return Check("memory", True)


def _io(target: _Target) -> Check:
    if not target.rights.read:
        reason = f"Only devices are seen, not what the process reads. {target.rights.reason}"
        return Check("io", True, reason, target.rights.enable)
    return Check("io", True)


def _network(target: _Target) -> Check:
    if not target.rights.read:
        reason = f"Only interfaces are seen, not the process's sockets. {target.rights.reason}"
        return Check("network", True, reason, target.rights.enable)
    return Check("network", True)


def _gpu(root: Path) -> Check:
    nvml = Nvml()
    reason = nvml.open()
    if reason is not None:
        return Check("gpu", False, *why_no_gpu(root, reason))
    count = nvml.query("", "nvmlDeviceGetCount")
    nvml.close()
    if not count:
        return Check(
            "gpu", False, "The NVIDIA driver shows no GPU.", "docker run --gpus all, where in a container"
        )
    return Check("gpu", True)


def _not_python(probe: str, target: _Target) -> Check:
    reason = f"Process {target.pid} is not a Python process."
    return Check(probe, False, reason, "name the process that trains, or its launcher")


def _memory_refused(target: _Target) -> tuple[str, str] | None:
    if not target.rights.trace:
        return target.rights.reason, target.rights.enable
    return memory_refusal()
