"""Sampling a thread's instruction pointer with perf_event_open(2), the kernel's own profiler.

The kernel writes samples into a ring that we read when we like: nobody is stopped, and a sample costs the
job a timer interrupt of a few µs. Only user mode is looked at, which kernel.perf_event_paranoid up to 2
grants for one's own processes. Layouts: <linux/perf_event.h>, ``struct perf_event_attr`` (size 112, Linux
4.1 and later) and ``struct perf_event_mmap_page``. ``probes/readers/uprobes.py`` has another kind of event of
the same kernel's.
"""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.permissions import CAP_PERFMON, CAP_SYS_ADMIN, NO_FILTER, capable

# Numbers of <linux/perf_event.h>, and of <time.h> for the clock.
_SYSCALL = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_ATTR = struct.Struct("<IIQQQQQIIQQQQIiQIHH")
_TYPE_SOFTWARE, _CPU_CLOCK = 1, 0
SAMPLE_IP, SAMPLE_TID, SAMPLE_TIME = 1, 2, 4
_EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQ, _USE_CLOCKID = 1 << 5, 1 << 6, 1 << 10, 1 << 25
_CLOCK_MONOTONIC, _FLAG_CLOEXEC = 1, 8
_DATA_HEAD, _DATA_TAIL = 1024, 1032  # offsets in struct perf_event_mmap_page
_DATA_PAGES = 2  # 8 KiB hold 256 samples, 2.5 s at 99 Hz, and stay far below kernel.perf_event_mlock_kb
_RECORD = struct.Struct("<IHH")
_SAMPLE = struct.Struct("<QIIQ")
RECORD_LOST, RECORD_SAMPLE = 2, 9


class CodePlace(NamedTuple):
    """A thread's instruction pointer at one instant of CLOCK_MONOTONIC."""

    time_ns: int
    tid: int
    address: int


class Ring:
    """What the kernel writes about one event.

    Args:
        event: the open file of the event.
        pages: how much it holds, a power of two.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, event: int, pages: int) -> None:
        self._size = pages * mmap.PAGESIZE
        self._map = mmap.mmap(event, mmap.PAGESIZE + self._size)

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The records since the last call, oldest first: their kind and what follows their header."""
        head, tail = struct.unpack_from("<QQ", self._map, _DATA_HEAD)
        if head == tail:
            return
        data = self._map[mmap.PAGESIZE :]
        start = tail % self._size
        records = (data[start:] + data[:start])[: head - tail]
        struct.pack_into("<Q", self._map, _DATA_TAIL, head)
        at = 0
        while at + _RECORD.size <= len(records):
            kind, _, size = _RECORD.unpack_from(records, at)
            size = max(size, _RECORD.size)
            yield kind, records[at + _RECORD.size : at + size]
            at += size

    def close(self) -> None:
        """Lets go of it; the event goes on."""
        self._map.close()


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
            self._ring = Ring(self._file, _DATA_PAGES)
        except OSError:
            os.close(self._file)
            raise

    def read(self) -> list[CodePlace]:
        """The samples since the last call, oldest first."""
        found = [_SAMPLE.unpack_from(body) for kind, body in self._ring.read() if kind == RECORD_SAMPLE]
        return [CodePlace(time_ns, tid, address) for address, _, tid, time_ns in found]

    def close(self) -> None:
        """Stops sampling."""
        self._ring.close()
        os.close(self._file)


def refusal(root: Path = Path("/")) -> Refusal | None:
    """Why instruction pointers cannot be sampled here at all; None if they can.

    Found out on the calling thread, whose sampling ends at once: a setting of 3 means something to some kernels only.

    Args:
        root: where /proc is.
    """
    try:
        paranoid = int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Refusal("This kernel has no performance events.", "a kernel with CONFIG_PERF_EVENTS")
    if platform.machine() not in _SYSCALL:
        return Refusal(f"Machine code is not sampled on {platform.machine()}.", "x86_64 or aarch64")
    try:
        os.close(_open(0, 1))
    except OSError as error:
        privileged = capable(CAP_PERFMON, root) or capable(CAP_SYS_ADMIN, root)
        if paranoid > 2 and not privileged:
            return Refusal(f"kernel.perf_event_paranoid is {paranoid}.", "sudo sysctl kernel.perf_event_paranoid=2")
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            return Refusal(f"The system call perf_event_open is filtered here ({error.strerror}).", NO_FILTER)
        return Refusal(f"perf_event_open fails: {error.strerror}.", NO_FILTER)
    return None


def _open(tid: int, frequency: int) -> int:
    return open_event(
        tid,
        kind=_TYPE_SOFTWARE,
        config=_CPU_CLOCK,
        period=frequency,
        sampled=SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME,
        flags=_EXCLUDE_KERNEL | _EXCLUDE_HV | _FREQ,
    )


def open_event(
    tid: int, *, kind: int, config: int, period: int, sampled: int, flags: int = 0, place: tuple[int, int] = (0, 0)
) -> int:
    """Opens an event of one thread, on any CPU, with times of CLOCK_MONOTONIC.

    Args:
        tid: kernel id of the thread; 0 for the calling one.
        kind: the type of the event, and below it what is counted, as the kernel numbers them.
        config: see there.
        period: of how many events one is sampled; a frequency where ``flags`` say so.
        sampled: what is written about one.
        flags: bits of the attributes besides.
        place: two numbers that say where, for kinds of events that have a place.

    Returns:
        Its open file.

    Raises:
        OSError: the kernel refuses it.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known for {platform.machine()}")
    attributes = _ATTR.pack(
        kind,
        _ATTR.size,
        config,
        period,
        sampled,
        0,  # read format
        flags | _USE_CLOCKID,
        *(0, 0),  # wake-up, breakpoints
        *place,
        *(0, 0, 0),  # branches, registers
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
