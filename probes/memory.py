"""Memory of the job's processes, of the host and of its control groups; swapping, faults and pressure.

A sample costs 200 µs of CPU and 10 µs per process (Linux 6.18, x86-64). Proportional sizes (smaps_rollup) are not read:
the kernel walks all mappings for them, of which each thread has two, and locks the address space meanwhile.
"""

import mmap
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from perfdoctor.probes import Availability, Processes
from perfdoctor.probes.readers.cgroup import ControlGroup, Governing, Pressure
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import KeptFiles, counters, kibibytes, stat_fields
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample

SLOW_PERIOD_NS = 5 * NS_PER_S  # of what the kernel sums up for each reader, and limits

# Version 1 says "no limit" with the largest number of pages that fits.
_NO_LIMIT = 1 << 60

_PROCESS = {
    b"VmRSS": "rss_bytes",
    b"RssAnon": "anonymous_bytes",
    b"RssShmem": "shared_memory_bytes",
    b"VmSwap": "swap_bytes",
}
_HOST = {
    b"MemTotal": "memory_total_bytes",
    b"MemAvailable": "memory_available_bytes",
    b"Cached": "page_cache_bytes",
    b"Dirty": "dirty_bytes",
    b"SwapTotal": "swap_total_bytes",
    b"SwapFree": "swap_free_bytes",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


# Together some milliseconds; the median of five leaves out what was interrupted.
_TOUCHED_PAGES, _TIMES_TOUCHED = 256, 5


def minor_fault_s() -> float:
    """CPU seconds that a page of fresh memory costs on this machine: its fault, and giving it back.

    Nearly all faults without a device are of that kind, since allocators map and unmap large tensors. It took 1.8 µs
    on a virtual machine, as did those of two jobs that did not swap (x86-64, Linux 6.18); measuring it takes 3 ms.
    """
    taken_ns = []
    for _ in range(_TIMES_TOUCHED):
        begin_ns = time.thread_time_ns()
        size = _TOUCHED_PAGES * _PAGE_BYTES
        with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh, memoryview(fresh) as pages:
            with suppress(OSError):  # a kernel without huge pages refuses
                fresh.madvise(mmap.MADV_NOHUGEPAGE)
            pages[::_PAGE_BYTES] = bytes(_TOUCHED_PAGES)
        taken_ns.append(time.thread_time_ns() - begin_ns)
    return statistics.median(taken_ns) / _TOUCHED_PAGES / NS_PER_S


class MemoryProbe:
    """Reads memory use, swapping, faults and limits.

    Args:
        root: where /proc and /sys are.
    """

    name = "memory"
    period_s = 2.0

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._pressure = Pressure("memory", root, self._files)
        self._governing = Governing("memory", root)
        self._job: Processes | None = None
        self._slow_next_ns = 0

    def check(self, process: Candidate) -> Availability:
        """Sizes are seen of everybody; pressure where the kernel shows it."""
        return Availability.but_for(self.name, self._pressure.refusal())

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking; returns the first sample, and what cannot be seen."""
        self._job = job
        missing = Availability.but_for(self.name, self._pressure.refusal())
        cost = Fact(now_ns(), self.name, "host", "minor_fault_seconds", f"{minor_fault_s():.3g}")
        return [*missing.missing(), cost, *self.sample(now_ns())]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples processes, host and control groups; costly numbers at their own period."""
        pids = self._job.pids() if self._job else ()
        slow = now_ns >= self._slow_next_ns
        if slow:
            self._slow_next_ns = now_ns + SLOW_PERIOD_NS
        for pid in pids:
            yield from self._process(now_ns, pid)
        yield from self._meminfo(now_ns)
        yield from self._traffic(now_ns)
        yield from self._pressure.sample(now_ns, pids)
        self._governing.update(pids)
        for group in self._governing.groups.values():
            yield from self._group(now_ns, group, slow)

    def close(self) -> Iterable[Sample]:
        """Closes all files."""
        self._files.close()
        return ()

    def _process(self, time_ns: int, pid: int) -> Iterator[Reading]:
        subject = f"pid:{pid}"
        try:
            status = self._files.read(f"/proc/{pid}/status")
            faults = stat_fields(self._files.read(f"/proc/{pid}/stat"))
        except OSError:
            return
        for key, name in _PROCESS.items():
            size = kibibytes(status, key)
            if size is not None:
                yield Reading(time_ns, "memory", subject, name, size)
        yield Reading(time_ns, "memory", subject, "minor_faults_total", int(faults[7]))
        yield Reading(time_ns, "memory", subject, "major_faults_total", int(faults[9]))

    def _meminfo(self, time_ns: int) -> Iterator[Reading]:
        try:
            meminfo = self._files.read("/proc/meminfo")
        except OSError:
            return
        for key, name in _HOST.items():
            size = kibibytes(meminfo, key)
            if size is not None:
                yield Reading(time_ns, "memory", "host", name, size)

    def _traffic(self, time_ns: int) -> Iterator[Reading]:
        """Pages moved on the whole host, and what allocations waited for, from /proc/vmstat."""
        try:
            vmstat = counters(self._files.read("/proc/vmstat"))
        except OSError:
            return
        # Before Linux 5.9 refaults of files and of anonymous pages had one counter.
        refaults = vmstat.get("workingset_refault_file", vmstat.get("workingset_refault"))
        values = {
            "swapped_in_bytes_total": vmstat["pswpin"] * _PAGE_BYTES if "pswpin" in vmstat else None,
            "swapped_out_bytes_total": vmstat["pswpout"] * _PAGE_BYTES if "pswpout" in vmstat else None,
            "major_faults_total": vmstat.get("pgmajfault"),
            "refaults_total": refaults,
            "direct_reclaim_bytes_total": vmstat["pgscan_direct"] * _PAGE_BYTES if "pgscan_direct" in vmstat else None,
            "compaction_stalls_total": vmstat.get("compact_stall"),
            "huge_page_faults_total": vmstat.get("thp_fault_alloc"),
            "huge_page_fallbacks_total": vmstat.get("thp_fault_fallback"),
        }
        for name, value in values.items():
            yield Reading(time_ns, "memory", "host", name, value)

    def _group(self, time_ns: int, group: ControlGroup, slow: bool) -> Iterator[Reading]:
        values = self._version_2(group, slow) if group.version == 2 else self._version_1(group, slow)
        for name, value in values.items():
            if value is not None:
                yield Reading(time_ns, "memory", group.subject, name, value)

    def _version_2(self, group: ControlGroup, slow: bool) -> dict[str, int | None]:
        events = self._counters(group, "memory.events")
        stat = self._counters(group, "memory.stat") if slow else {}
        limits = [limit for name in ("memory.max", "memory.high") if (limit := self._number(group, name)) is not None]
        limit, usage = min(limits, default=None), self._number(group, "memory.current")
        return {
            "limit_bytes": limit,
            "usage_bytes": usage,
            "page_cache_bytes": stat.get("file"),
            "memory_available_bytes": _available(limit, usage, stat.get("file"), stat.get("shmem")),
            "reclaimed_bytes_total": stat["pgsteal"] * _PAGE_BYTES if "pgsteal" in stat else None,
            "refaults_total": stat.get("workingset_refault_file"),
            "limit_hits_total": events["max"] + events.get("high", 0) if "max" in events else None,
            "oom_kills_total": events.get("oom_kill"),
        }

    def _version_1(self, group: ControlGroup, slow: bool) -> dict[str, int | None]:
        limit = self._number(group, "memory.limit_in_bytes")
        limit = limit if limit is not None and limit < _NO_LIMIT else None
        usage = self._number(group, "memory.usage_in_bytes")
        stat = self._counters(group, "memory.stat") if slow else {}
        return {
            "limit_bytes": limit,
            "usage_bytes": usage,
            "page_cache_bytes": stat.get("total_cache"),
            "memory_available_bytes": _available(limit, usage, stat.get("total_cache"), stat.get("total_shmem")),
            "refaults_total": stat.get("total_workingset_refault_file"),
            "limit_hits_total": self._number(group, "memory.failcnt"),
            "oom_kills_total": self._counters(group, "memory.oom_control").get("oom_kill"),
        }

    def _number(self, group: ControlGroup, name: str) -> int | None:
        try:
            return int(self._files.read(f"{group.directory}/{name}"))
        except (OSError, ValueError):  # ValueError: "max", no limit.
            return None

    def _counters(self, group: ControlGroup, name: str) -> dict[str, int]:
        try:
            return counters(self._files.read(f"{group.directory}/{name}"))
        except OSError:
            return {}


def _available(limit: int | None, usage: int | None, cache: int | None, shared: int | None) -> int | None:
    """What a group may still take: all below its limit but what is no page cache, of which shared memory cannot go.

    None where there is no limit, or one of the numbers is not known.
    """
    if limit is None or usage is None or cache is None or shared is None:
        return None
    return max(0, limit - (usage - max(0, cache - shared)))
