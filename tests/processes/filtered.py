"""Programs under a real seccomp filter that refuses some system calls, as a container's does.

Run as a program, it puts itself under the filter and becomes the command: ``python filtered.py NAME,NAME COMMAND…``.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

# Numbers of <asm/unistd.h>.
_CALLS = {
    "x86_64": {"perf_event_open": 298, "process_vm_readv": 310, "ptrace": 101},
    "aarch64": {"perf_event_open": 241, "process_vm_readv": 270, "ptrace": 117},
}
KNOWN = os.uname().machine in _CALLS


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def refuse(*names: str) -> None:
    """Has the kernel refuse these calls, with EPERM, to this process and to all that it starts."""
    numbers = [_CALLS[os.uname().machine][name] for name in names]
    # BPF: load the call's number; if it is one of them, return the error, else allow (linux/seccomp.h).
    steps = [(0x20, 0, 0, 0)]
    steps += [(0x15, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x50001)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    filters = _Filter(len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filters), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter could be set")


def without(names: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command that runs another one under the filter."""
    return [sys.executable, str(Path(__file__)), ",".join(names), *command]


if __name__ == "__main__":
    refuse(*sys.argv[1].split(","))
    os.execvp(sys.argv[2], sys.argv[2:])
