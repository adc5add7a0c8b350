"""The processes of this host, as they are listed once: who has started whom, and what they use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers.procfs import ENDED, is_running, kibibytes, stat_fields

# Kernel threads, by their flags in /proc/PID/stat (PF_KTHREAD in include/linux/sched.h).
_KERNEL_THREAD = 0x00200000
# To sum up a process's memory the kernel goes through all of it. Since Linux 5.9 it makes way for the process meanwhile
# ("mm: proc: smaps_rollup: do not stall write attempts on mmap_lock"); before, the job would stand still.
_YIELDS_SINCE = (5, 9)


class HostProcess(NamedTuple):
    """A process of this host: its parent, the CPU time that it has used, and when it was started, in clock ticks."""

    parent: int
    cpu_ticks: int
    start_ticks: int


def host_processes() -> dict[int, HostProcess]:
    """All processes of this host, without threads of the kernel and those that have ended."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = stat_fields(Path(f"/proc/{name}/stat").read_bytes())
        except OSError:
            continue
        if fields[0] not in ENDED and not int(fields[6]) & _KERNEL_THREAD:
            found[int(name)] = HostProcess(int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))
    return found


def cpu_ticks_used(pids: Iterable[int], before: Mapping[int, HostProcess], after: Mapping[int, HostProcess]) -> int:
    """CPU time that processes have used in between; all of it of those that were started meanwhile."""
    used = 0
    for pid in pids:
        earlier = before.get(pid)
        known = earlier is not None and earlier.start_ticks == after[pid].start_ticks
        used += after[pid].cpu_ticks - (earlier.cpu_ticks if earlier is not None and known else 0)
    return used


def memory_of(pids: Iterable[int]) -> int | None:
    """Memory of processes, each with its part of what they share; None where it cannot be read of one of them."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if release is None or tuple(map(int, release.groups())) < _YIELDS_SINCE:
        return None
    total = 0
    for pid in pids:
        try:
            used = kibibytes(Path(f"/proc/{pid}/smaps_rollup").read_bytes(), b"Pss")
        except OSError:
            used = None
        if used is None and is_running(pid):
            return None
        total += used or 0
    return total
