"""Whether the system calls that deeper probes need are let through: they are made, in a harmless way.

Containers filter system calls (seccomp) whatever rights their processes have; only the call itself is a sure
test.
"""

import ctypes
import errno
import os
import struct
from pathlib import Path

from perfdoctor.capture.permissions import CAP_PERFMON, CAP_SYS_ADMIN, capable

# perf_event_open has no wrapper in the C library; its number by machine (asm/unistd.h).
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_CLOEXEC = 8  # PERF_FLAG_FD_CLOEXEC

_NO_FILTER = "docker run --security-opt seccomp=unconfined …; in Kubernetes seccompProfile.type: Unconfined"


def memory_refusal() -> tuple[str, str] | None:
    """Reason and remedy if process_vm_readv(2) is filtered out; None if it is let through. Reads nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    read = libc.process_vm_readv
    read.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]
    read.restype = ctypes.c_ssize_t
    if read(os.getpid(), None, 0, None, 0, 0) == 0:
        return None
    reason = os.strerror(ctypes.get_errno())
    return f"The system call process_vm_readv is filtered here ({reason}).", _NO_FILTER


def perf_refusal(root: Path = Path("/")) -> tuple[str, str] | None:
    """Reason and remedy if instruction pointers cannot be sampled; None if they can.

    Opens a software clock on the calling thread, in user mode only and never started, and closes it again.
    """
    paranoid = _paranoid(root)
    if paranoid is None:
        return "This kernel has no performance events.", "a kernel with CONFIG_PERF_EVENTS"
    privileged = capable(CAP_PERFMON, root) or capable(CAP_SYS_ADMIN, root)
    if paranoid > 2 and not privileged:
        return f"kernel.perf_event_paranoid is {paranoid}.", "sudo sysctl kernel.perf_event_paranoid=2"
    number = _PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        return f"Machine code is not sampled on {os.uname().machine}.", "x86_64 or aarch64"
    failure = _try_perf(number)
    if failure in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return f"The system call perf_event_open is filtered here ({os.strerror(failure)}).", _NO_FILTER
    return None if failure == 0 else (f"perf_event_open fails: {os.strerror(failure)}.", _NO_FILTER)


def _try_perf(number: int) -> int:
    """Opens and closes a clock; returns the error number, 0 for success."""
    libc = ctypes.CDLL(None, use_errno=True)
    # struct perf_event_attr, version 0: type software, size, config task clock, period, sample type, read
    # format, flags (disabled, exclude_kernel, exclude_hv), wake-up, breakpoint type and address.
    attributes = struct.pack("<IIQQQQQIIQ", 1, 64, 1, 10_000_000, 1, 0, 1 | 1 << 5 | 1 << 6, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    descriptor = libc.syscall(
        ctypes.c_long(number),
        buffer,
        ctypes.c_int(0),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(_CLOEXEC),
    )
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def _paranoid(root: Path) -> int | None:
    try:
        return int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return None
