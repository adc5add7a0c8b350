"""What we may see of a process, why not more, and what would allow it.

The kernel knows two rights over another process (ptrace(2), "Ptrace access mode checking"): to *read* it (its
maps, descriptors, environment, I/O counters) and to *trace* it (its memory and system calls). Both are
found out by reading a file of /proc that asks for just that right; nothing is attached.

Containers filter system calls (seccomp) whatever rights their processes have; only the call itself, made in a harmless
way, is a sure test.
"""

import ctypes
import os
import pwd
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.procfs import status_fields

# Bits of a capability set (linux/capability.h).
CAP_SYS_PTRACE = 19
CAP_SYS_ADMIN = 21
CAP_PERFMON = 38

GRANT_IN_CONTAINER = "docker run --cap-add SYS_PTRACE …; in Kubernetes securityContext.capabilities.add: [SYS_PTRACE]"
NO_FILTER = "docker run --security-opt seccomp=unconfined …; in Kubernetes seccompProfile.type: Unconfined"


class Rights(NamedTuple):
    """What we may do with a process.

    Attributes:
        read: list its descriptors, maps and counters.
        trace: read its memory and system calls.
        why_not: why one of them is refused, and the command that allows it; empty if both are allowed.
    """

    read: bool
    trace: bool
    why_not: Refusal = Refusal("", "")


def rights_over(pid: int, root: Path = Path("/")) -> Rights:
    """Finds out what we may see of a process.

    Args:
        pid: the process.
        root: where /proc is.

    Raises:
        OSError: it is gone.
    """
    proc = root / "proc" / str(pid)
    read, trace = _may_read(proc / "io"), _may_read(proc / "syscall")
    if read and trace:
        return Rights(True, True)
    return Rights(read, trace, why_not(pid, root))


def capable(capability: int, root: Path = Path("/")) -> bool:
    """Whether we have a capability (its number as in capabilities(7))."""
    try:
        return bool(_capabilities(_status(root, "self")) >> capability & 1)
    except OSError:  # no /proc
        return False


def in_container(root: Path = Path("/")) -> bool:
    """Whether we seem to run in a container."""
    marks = (root / ".dockerenv", root / "run/.containerenv", root / "var/run/secrets/kubernetes.io")
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def as_root(pid: int) -> str:
    """The command that watches a process as root; sudo does not search virtual environments."""
    return f'sudo "$(which perfdoctor)" attach {pid}'


def owner_of(pid: int | str, root: Path = Path("/")) -> int:
    """Effective user id of a process.

    Raises:
        OSError: it is gone.
    """
    return int(_status(root, pid)["Uid"].split()[1])


def user_name(uid: int) -> str:
    """The name of a user, with the number; the number alone where it has no name here."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def why_not(pid: int, root: Path = Path("/")) -> Refusal:
    """Why a process is closed to us, and what opens it."""
    try:
        return _first_refusal(pid, root)
    except OSError:
        return Refusal(f"Process {pid} has just ended.", "name a process that goes on")


def _first_refusal(pid: int, root: Path) -> Refusal:
    """The first of the kernel's conditions that fails, in the order of its checks.

    Raises:
        OSError: the process is gone.
    """
    owner, own_uid = owner_of(pid, root), owner_of("self", root)
    privileged = capable(CAP_SYS_PTRACE, root)
    grant = GRANT_IN_CONTAINER if own_uid == 0 else as_root(pid)
    if own_uid != 0 and in_container(root):
        grant += f" (and {GRANT_IN_CONTAINER}, should that not do)"
    if owner != own_uid and not privileged:
        return Refusal(f"Process {pid} belongs to {user_name(owner)}; we are {user_name(own_uid)}.", grant)
    if not privileged and not _is_dumpable(pid, owner, root):
        return Refusal(f"Process {pid} is protected from being looked at (not dumpable).", grant)
    if _capabilities(_status(root, pid), "CapPrm") & ~_capabilities(_status(root, "self"), "CapPrm"):
        return Refusal(f"Process {pid} has capabilities that we lack.", grant)
    return _refused_by_yama(_ptrace_scope(root), privileged, grant) or Refusal(
        f"The kernel forbids tracing process {pid} (a security module, or another user namespace).", grant
    )


def _refused_by_yama(scope: int, privileged: bool, grant: str) -> Refusal | None:
    if scope == 3:
        return Refusal(
            "kernel.yama.ptrace_scope is 3: nobody may trace until the next boot.", "boot with a lower ptrace_scope"
        )
    if not scope or privileged:
        return None
    allowed = "only descendants may be traced" if scope == 1 else "only root may trace"
    lower = "" if scope == 2 else "sudo sysctl kernel.yama.ptrace_scope=0, or "
    return Refusal(f"kernel.yama.ptrace_scope is {scope}: {allowed}.", lower + grant)


def memory_refusal() -> Refusal | None:
    """Why process_vm_readv(2) is filtered out; None if it is let through. Reads nothing."""
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    size, pointer = ctypes.c_ulong, ctypes.c_void_p
    read.argtypes = [ctypes.c_int, pointer, size, pointer, size, size]
    read.restype = ctypes.c_ssize_t
    if read(os.getpid(), None, 0, None, 0, 0) == 0:
        return None
    reason = os.strerror(ctypes.get_errno())
    return Refusal(f"The system call process_vm_readv is filtered here ({reason}).", NO_FILTER)


def _may_read(path: Path) -> bool:
    """Whether a file of a process may be read; some are checked when they are opened, some when read.

    Raises:
        OSError: the process is gone.
    """
    try:
        path.read_bytes()
    except PermissionError:
        return False
    except FileNotFoundError:
        if not path.parent.exists():
            raise
        return False  # Kernels may be built without this file.
    return True


def _status(root: Path, pid: int | str) -> dict[str, str]:
    return status_fields((root / f"proc/{pid}/status").read_bytes())


def _capabilities(status: dict[str, str], which: str = "CapEff") -> int:
    return int(status.get(which, "0"), 16)


def _is_dumpable(pid: int, owner: int, root: Path) -> bool:
    """Whether its files are its owner's; those of a process that must stay unseen are root's (proc(5))."""
    return owner == 0 or (root / f"proc/{pid}/environ").stat().st_uid == owner


def _ptrace_scope(root: Path) -> int:
    try:
        return int((root / "proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0
