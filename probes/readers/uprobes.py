"""Counting calls of a function in another process: the kernel's user-space probes (kernel.org, trace/uprobetracer).

The kernel puts a breakpoint at the function's beginning into the pages that the process has of it, writes down each
call of one thread, and lets it go on; no debugger is attached, and nothing waits for us. Whoever opened the probe takes
it out by closing its file; the kernel does so for one that was killed.
"""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers.perf_events import (
    RECORD_LOST,
    RECORD_SAMPLE,
    SAMPLE_TID,
    SAMPLE_TIME,
    Ring,
    open_event,
)

_TYPE = "sys/bus/event_source/devices/uprobe/type"
_SET_FILTER = 0x40042408  # PERF_EVENT_IOC_SET_BPF in <linux/perf_event.h>
_PAGES = 32  # 128 KiB, which hold 5,400 calls
_SAMPLE = struct.Struct("<IIQ")


class ProbeHit(NamedTuple):
    """One call, or where some were lost.

    Attributes:
        time_ns: on the one clock.
        lost: calls after the last one that the ring had no room for; it stands for no call itself then.
    """

    time_ns: int
    lost: bool = False


def probe_type(root: Path = Path("/")) -> int | None:
    """The kernel's number for such probes; None if it has none."""
    try:
        return int((root / _TYPE).read_text())
    except (OSError, ValueError):
        return None


class CallProbe:
    """Counts the calls that one thread makes of one function.

    Args:
        tid: kernel id of the thread; 0 for the calling one.
        file: the library, as we can open it.
        offset: of the function in that file.
        only: an open filter (``perfdoctor.probes.readers.call_filter``); None for all calls.

    Raises:
        OSError: the kernel refuses it, or the thread has ended.
    """

    def __init__(self, tid: int, file: Path, offset: int, only: int | None = None) -> None:
        kind = probe_type()
        if kind is None:
            raise OSError(errno.ENOSYS, "this kernel has no user-space probes")
        path = ctypes.create_string_buffer(os.fsencode(file))
        place = ctypes.addressof(path), offset
        self._file = open_event(tid, kind=kind, config=0, period=1, sampled=SAMPLE_TID | SAMPLE_TIME, place=place)
        try:
            if only is not None:
                fcntl.ioctl(self._file, _SET_FILTER, only)
            self._ring = Ring(self._file, _PAGES)
        except OSError:
            os.close(self._file)
            raise
        self._last_ns = 0

    def read(self) -> Iterator[ProbeHit]:
        """The calls since the last one that was read, oldest first."""
        for kind, body in self._ring.read():
            if kind == RECORD_SAMPLE:
                self._last_ns = _SAMPLE.unpack_from(body)[2]
                yield ProbeHit(self._last_ns)
            elif kind == RECORD_LOST:
                yield ProbeHit(self._last_ns, lost=True)

    def close(self) -> None:
        """Takes the probe out."""
        self._ring.close()
        os.close(self._file)
