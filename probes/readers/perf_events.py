"""Sampling a thread's instruction pointer with perf_event_open(2), the kernel's own profiler.

The kernel writes samples into a ring that we read when we like: nobody is stopped, and a sample costs the
job a timer interrupt of a few µs. Only user mode is looked at, which kernel.perf_event_paranoid up to 2
grants for one's own processes. Layouts: <linux/perf_event.h>, ``struct perf_event_attr`` (size 112, Linux
4.1 and later) and ``struct perf_event_mmap_page``.
"""

import ctypes
import errno
import mmap
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.permissions import CAP_PERFMON, CAP_SYS_ADMIN, NO_FILTER, capable

# Numbers of <linux/perf_event.h>, and of <time.h> for the clock.
_SYSCALL = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_ATTR = struct.Struct("<IIQQQQQIIQQQQIiQIHH")
_TYPE_SOFTWARE, _CPU_CLOCK = 1, 0
_SAMPLE_IP, _SAMPLE_TID, _SAMPLE_TIME = 1, 2, 4
_EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQ, _USE_CLOCKID = 1 << 5, 1 << 6, 1 << 10, 1 << 25
_CLOCK_MONOTONIC, _FLAG_CLOEXEC = 1, 8
_DATA_HEAD, _DATA_TAIL = 1024, 1032  # offsets in struct perf_event_mmap_page
_DATA_PAGES = 2  # 8 KiB hold 256 samples, 2.5 s at 99 Hz, and stay far below kernel.perf_event_mlock_kb
_RECORD = struct.Struct("<IHH")
_SAMPLE = struct.Struct("<QIIQ")
_RECORD_SAMPLE = 9


class CodePlace(NamedTuple):
    """A thread's instruction pointer at one instant of CLOCK_MONOTONIC."""

    time_ns: int
    tid: int
    address: int


class PerfEvent:
    """Samples one thread while it is on a CPU in user mode.

    Args:
        tid: kernel id of the thread; its children are not followed.
        frequency: samples per second of CPU time.

    Raises:
        OSError: with the reason in ``errno``: ESRCH (no such thread), EACCES or EPERM (not allowed), ENOSYS
            (not there) …
    """

    def __init__(self, tid: int, frequency: int) -> None:
        self._file = _open(tid, frequency)
        try:
            self._ring = mmap.mmap(self._file, (1 + _DATA_PAGES) * mmap.PAGESIZE)
        except OSError:
            os.close(self._file)
            raise

    def read(self) -> list[CodePlace]:
        """The samples since the last call, oldest first."""
        size = _DATA_PAGES * mmap.PAGESIZE
        head, tail = struct.unpack_from("<QQ", self._ring, _DATA_HEAD)
        if head == tail:
            return []
        data = self._ring[mmap.PAGESIZE :]
        start = tail % size
        records = (data[start:] + data[:start])[: head - tail]
        struct.pack_into("<Q", self._ring, _DATA_TAIL, head)
        return _places(records)

    def close(self) -> None:
        """Stops sampling."""
        self._ring.close()
        os.close(self._file)


def refusal(root: Path = Path("/")) -> Refusal | None:
    """Why instruction pointers cannot be sampled here at all; None if they can.

    Found out on the calling thread, whose sampling ends at once.

    Args:
        root: where /proc is.
    """
    try:
        paranoid = int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Refusal("This kernel has no performance events.", "a kernel with CONFIG_PERF_EVENTS")
    privileged = capable(CAP_PERFMON, root) or capable(CAP_SYS_ADMIN, root)
    if paranoid > 2 and not privileged:
        return Refusal(f"kernel.perf_event_paranoid is {paranoid}.", "sudo sysctl kernel.perf_event_paranoid=2")
    if platform.machine() not in _SYSCALL:
        return Refusal(f"Machine code is not sampled on {platform.machine()}.", "x86_64 or aarch64")
    try:
        os.close(_open(0, 1))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            return Refusal(f"The system call perf_event_open is filtered here ({error.strerror}).", NO_FILTER)
        return Refusal(f"perf_event_open fails: {error.strerror}.", NO_FILTER)
    return None


def _places(records: bytes) -> list[CodePlace]:
    places = []
    at = 0
    while at + _RECORD.size <= len(records):
        kind, _, size = _RECORD.unpack_from(records, at)
        if kind == _RECORD_SAMPLE:
            address, _, tid, time_ns = _SAMPLE.unpack_from(records, at + _RECORD.size)
            places.append(CodePlace(time_ns, tid, address))
        at += max(size, _RECORD.size)
    return places


def _open(tid: int, frequency: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(38, f"perf_event_open is not known for {platform.machine()}")
    attributes = _ATTR.pack(
        _TYPE_SOFTWARE,
        _ATTR.size,
        _CPU_CLOCK,
        frequency,
        _SAMPLE_IP | _SAMPLE_TID | _SAMPLE_TIME,
        0,  # read format
        _EXCLUDE_KERNEL | _EXCLUDE_HV | _FREQ | _USE_CLOCKID,
        *(0, 0, 0, 0, 0, 0, 0),  # wake-up, breakpoints, branches, registers
        _CLOCK_MONOTONIC,
        *(0, 0, 0, 0),
    )
    library = ctypes.CDLL(None, use_errno=True)
    file: int = library.syscall(
        ctypes.c_long(number),
        ctypes.c_char_p(attributes),
        ctypes.c_int(tid),
        ctypes.c_int(-1),  # on any CPU
        ctypes.c_int(-1),  # no group
        ctypes.c_ulong(_FLAG_CLOEXEC),
    )
    if file < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return file
