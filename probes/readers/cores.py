"""The cores of the machine: what they are, which of them the job may run on, and how fast they run."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfdoctor.probes.readers.procfs import KeptFiles, core_list, core_text, status_fields
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Fact, Reading

# The main thread may be pinned alone (OMP_PROC_BIND) while others run elsewhere: so many of them are asked, and of so
# many processes in one sample.
_THREADS_ASKED = 64
_PROCESSES_ASKED = 4
_AGAIN_NS = 5 * NS_PER_S
_CLOCKS_READ = 8


class Cores:
    """Reads core counts, affinity masks and clocks.

    Args:
        root: where /proc and /sys are.
        files: the probe's files.

    Attributes:
        allowed: the cores that each process may run on, by process id.
    """

    def __init__(self, root: Path, files: KeptFiles) -> None:
        self.allowed: dict[int, frozenset[int]] = {}
        self._asked_ns: dict[int, int] = {}
        self._root = root
        self._files = files
        self._online = _online(root)

    def widest(self) -> int:
        """How many cores the least confined process of the job may use."""
        return max(map(len, self.allowed.values()), default=0) or len(self._online)

    def facts(self, time_ns: int) -> Iterator[Fact]:
        """What the machine is."""
        try:
            cpuinfo = status_fields((self._root / "proc/cpuinfo").read_bytes())
        except OSError:
            cpuinfo = {}
        model = cpuinfo.get("model name") or cpuinfo.get("Model") or cpuinfo.get("CPU part")
        if model:
            yield Fact(time_ns, "cpu", "host", "cpu_model", model)
        yield Fact(time_ns, "cpu", "host", "logical_cores", str(len(self._online)))
        fastest = self._kilohertz(self._online[0], "cpuinfo_max_freq")
        if fastest is not None:
            yield Fact(time_ns, "cpu", "host", "core_clock_max_hertz", str(fastest * 1000))

    def affinity(self, time_ns: int, pids: Sequence[int]) -> Iterator[Reading | Fact]:
        """Which cores processes may run on, of some processes in turn; the masks as text when they are new or changed.

        Args:
            time_ns: now.
            pids: processes of the job.
        """
        for pid in self._asked_ns.keys() - set(pids):
            del self._asked_ns[pid]
            del self.allowed[pid]
        due = [pid for pid in pids if time_ns >= self._asked_ns.get(pid, 0) + _AGAIN_NS or pid not in self._asked_ns]
        for pid in sorted(due, key=lambda pid: self._asked_ns.get(pid, 0))[:_PROCESSES_ASKED]:
            before, cores = self.allowed.get(pid), self._allowed(pid)
            self.allowed[pid] = cores
            self._asked_ns[pid] = time_ns
            if cores and before != cores:
                yield Fact(time_ns, "cpu", f"pid:{pid}", "affinity", core_text(cores))
            yield Reading(time_ns, "cpu", f"pid:{pid}", "allowed_cores", len(cores) or None)

    def clock(self, time_ns: int) -> Iterator[Reading]:
        """Mean clock of some cores of the job."""
        cores = sorted(frozenset().union(*self.allowed.values()))[:_CLOCKS_READ]
        clocks = [clock for core in cores if (clock := self._kilohertz(core, "scaling_cur_freq")) is not None]
        if clocks:
            yield Reading(time_ns, "cpu", "host", "core_clock_hertz", sum(clocks) / len(clocks) * 1000)

    def _kilohertz(self, core: int, name: str) -> int | None:
        try:
            return int(self._files.read(f"/sys/devices/system/cpu/cpu{core}/cpufreq/{name}"))
        except (OSError, ValueError):
            return None

    def _allowed(self, pid: int) -> frozenset[int]:
        cores = self._mask(f"proc/{pid}/status")
        if cores >= frozenset(self._online):
            return cores
        try:
            threads = os.listdir(self._root / f"proc/{pid}/task")[:_THREADS_ASKED]
        except OSError:
            return cores
        return cores.union(*(self._mask(f"proc/{pid}/task/{thread}/status") for thread in threads))

    def _mask(self, status: str) -> frozenset[int]:
        try:
            _, _, found = (self._root / status).read_bytes().partition(b"\nCpus_allowed_list:")
        except OSError:
            return frozenset()
        return frozenset(core_list(found.partition(b"\n")[0].decode()))


def _online(root: Path) -> tuple[int, ...]:
    try:
        return core_list((root / "sys/devices/system/cpu/online").read_text())
    except (OSError, ValueError):
        return tuple(range(os.cpu_count() or 1))
