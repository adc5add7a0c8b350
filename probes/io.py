"""What the job reads and writes and may at most, what devices and servers move for it, and on which file systems.

A sample costs 50 µs of CPU and 10 µs per process: 0.01 % of a core for one process, 0.1 % for 40 (Linux 6.18,
x86-64).
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.cgroup import Pressure
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import KeptFiles, Tally, stat_fields, uptime_ticks
from perfdoctor.probes.readers.storage import (
    KERNEL_TYPES,
    Disks,
    Mount,
    block_device_of,
    device_facts,
    read_mounts,
    server_readings,
)
from perfdoctor.probes.readers.storage_limits import StorageLimits
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

SERVERS_PERIOD_NS = NS_PER_S
MOST_MOUNTS = 256  # a host of containers may have thousands

NAMES = {
    "rchar": "read_call_bytes_total",
    "wchar": "write_call_bytes_total",
    "read_bytes": "storage_read_bytes_total",
    "write_bytes": "storage_write_bytes_total",
    "syscr": "read_calls_total",
    "syscw": "write_calls_total",
}
"""Names of the counters of /proc/PID/io (proc(5)) in a recording."""


class IoProbe:
    """Reads I/O of processes, block devices and NFS servers, and what is mounted.

    Args:
        root: where /proc and /sys are.
    """

    name = "io"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._pressure = Pressure("io", root, self._files)
        self._disks = Disks(root, self._files)
        self._limits = StorageLimits(root, self._files)
        self._job: Processes | None = None
        self._tallies = {name: Tally() for name in NAMES.values()}
        self._known: set[int] = set()
        self._opened_ticks = 0.0
        self._refused = False
        self._servers = False
        self._servers_next_ns = 0

    def check(self, process: Candidate) -> Availability:
        """Devices are seen by everybody; what a process reads needs the right to read it."""
        counters = None if process.rights.read else _unseen(process.pid, process.rights.why_not)
        return Availability.but_for(self.name, counters, self._pressure.refusal())

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts counting; returns the mounts, the first sample, and what cannot be seen."""
        self._job = job
        time_ns = now_ns()
        self._opened_ticks = uptime_ticks(self._files)
        mounts = self._mounts(job.pids())
        devices = {mount.point: block_device_of(mount, self._root) for mount in mounts}
        self._disks = Disks(self._root, self._files, frozenset(filter(None, devices.values())))
        self._servers = any(mount.filesystem in ("nfs", "nfs4") for mount in mounts)
        facts = [fact for mount in mounts for fact in _mount_facts(time_ns, mount, devices[mount.point])]
        for device in sorted(set(filter(None, devices.values()))):
            facts += device_facts(time_ns, device, self._root)
        shared = self._shared_memory(time_ns, job.pids())
        return [
            *facts,
            *shared,
            *Availability.but_for(self.name, self._pressure.refusal()).missing(),
            *self.sample(time_ns),
        ]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples processes and devices; file servers at their own period."""
        pids = self._job.pids() if self._job else ()
        yield from self._processes(now_ns, pids)
        yield from self._disks.sample(now_ns)
        yield from self._limits.sample(now_ns, pids)
        yield from self._pressure.sample(now_ns, pids)
        if self._servers and now_ns >= self._servers_next_ns:
            self._servers_next_ns = now_ns + SERVERS_PERIOD_NS
            yield from self._server_traffic(now_ns, pids)

    def close(self) -> Iterable[Sample]:
        """Closes all files."""
        self._files.close()
        return ()

    def _mounts(self, pids: tuple[int, ...]) -> list[Mount]:
        """Mounts that the job sees, or else that we see; of several on one place only the topmost."""
        candidates: tuple[int | str, ...] = (*pids, "self")
        for pid in candidates:
            try:
                mounts = read_mounts(self._root, pid)
            except OSError:
                continue
            visible = {mount.point: mount for mount in mounts if mount.filesystem not in KERNEL_TYPES}
            return list(visible.values())[:MOST_MOUNTS]
        return []

    def _shared_memory(self, time_ns: int, pids: tuple[int, ...]) -> list[Reading]:
        """How much room /dev/shm has, as the job sees it: a container has one of its own."""
        for pid in pids:
            try:
                room = os.statvfs(self._root / f"proc/{pid}/root/dev/shm")
            except OSError:
                continue
            return [Reading(time_ns, self.name, "mount:/dev/shm", "free_bytes", room.f_bavail * room.f_frsize)]
        return []

    def _processes(self, time_ns: int, pids: tuple[int, ...]) -> Iterator[Sample]:
        values: dict[int, dict[str, int]] = {}
        refused = 0
        # Those that left the job's list may not have been waited for: their parents do not have their
        # counters yet.
        for pid in dict.fromkeys((*pids, *self._known)):
            try:
                values[pid] = _counters(self._files.read(f"/proc/{pid}/io"))
            except PermissionError:
                refused = pid
            except OSError:
                continue
        for pid in pids:
            for key, name in NAMES.items() if pid in values else ():
                yield Reading(time_ns, "io", f"pid:{pid}", name, values[pid].get(key))
        if refused and not self._refused:
            self._refused = True
            yield Unavailable(self.name, *_unseen(refused, why_not(refused, self._root)))
        yield from self._totals(time_ns, values)

    def _totals(self, time_ns: int, values: dict[int, dict[str, int]]) -> Iterator[Reading]:
        """Sums over the job; None as soon as a part of it could not be read."""
        newborn = [pid for pid in values.keys() - self._known if self._is_younger(pid)]
        self._known = set(values)
        for key, name in NAMES.items():
            known = {pid: value[key] for pid, value in values.items() if key in value}
            total = self._tallies[name].update(known, newborn)
            yield Reading(time_ns, "io", "job", name, None if self._refused else total)

    def _is_younger(self, pid: int) -> bool:
        """Whether a process was started after we began."""
        try:
            return int(stat_fields(self._files.read(f"/proc/{pid}/stat"))[19]) >= self._opened_ticks
        except OSError:
            return False
        finally:
            self._files.forget(f"/proc/{pid}/stat")

    def _server_traffic(self, time_ns: int, pids: tuple[int, ...]) -> Iterator[Reading]:
        for pid in (*pids, "self"):
            try:
                mountstats = (self._root / f"proc/{pid}/mountstats").read_text(errors="replace")
            except OSError:
                continue
            yield from server_readings(time_ns, mountstats)
            return


def _counters(lines: bytes) -> dict[str, int]:
    words = lines.split()
    return {name.decode()[:-1]: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}


def _unseen(pid: int | None, why: Refusal) -> Refusal:
    return Refusal(f"Only devices are seen, not what process {pid} reads and writes. {why.reason}", why.enable)


def _mount_facts(time_ns: int, mount: Mount, device: str | None) -> Iterator[Fact]:
    subject = f"mount:{mount.point}"
    yield Fact(time_ns, "io", subject, "filesystem", mount.filesystem)
    yield Fact(time_ns, "io", subject, "source", mount.source)
    yield Fact(time_ns, "io", subject, "network", mount.network)
    if device:
        yield Fact(time_ns, "io", subject, "device", device)
