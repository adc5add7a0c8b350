"""CPU time of the job, of its neighbours and of perfdoctor; what the job may use; throttling and pressure.

A sample costs 100 µs of CPU and 11 µs per process: 0.02 % of a core for one process, 0.1 % for 40 (Linux 6.18,
x86-64). Every 5 s all processes of the host are scanned for neighbours, at 13 µs each.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Availability, Processes
from perfdoctor.probes.readers.cgroup import Pressure, Quotas
from perfdoctor.probes.readers.neighbours import Neighbours
from perfdoctor.probes.readers.numa import Nodes
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import (
    CLOCK_TICKS_PER_S,
    ENDED,
    KeptFiles,
    Tally,
    descendants_of_self,
    stat_fields,
    status_fields,
    uptime_ticks,
)
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, core_list, core_text

# What cores guarantee when all are busy and cool: Intel's in kHz, others' in MHz (Documentation/admin-guide/pm/).
_NOMINAL_CLOCK = (("cpufreq/base_frequency", 1000), ("acpi_cppc/nominal_freq", 1_000_000))
# The main thread may be pinned alone (OMP_PROC_BIND) while others run elsewhere: so many of them are asked, of so many
# processes in one sample, and so many cores have their clocks read.
_THREADS_ASKED, _PROCESSES_ASKED, _CLOCKS_READ = 64, 4, 8
_AGAIN_NS = 5 * NS_PER_S


class Cores:
    """Reads core counts, affinity masks and clocks.

    Args:
        root: where /proc and /sys are.
        files: the probe's files.
    """

    def __init__(self, root: Path, files: KeptFiles) -> None:
        self._asked_ns: dict[int, int] = {}
        self._told: dict[int, dict[str, frozenset[int]]] = {}
        self._root = root
        self._files = files
        self._online = _online(root)

    def usable(self) -> int:
        """How many cores the job may use: those of all its processes, as ranks may be bound to cores of their own."""
        return len(self.used()) or len(self._online)

    def used(self) -> frozenset[int]:
        """The cores that any process of the job may use."""
        return frozenset().union(*(mask for masks in self._told.values() for mask in masks.values()))

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
        first = self._online[0]
        if siblings := self._text(first, "topology/thread_siblings_list"):
            yield Fact(time_ns, "cpu", "host", "threads_per_core", str(len(core_list(siblings))))
        fastest = self._number(first, "cpufreq/cpuinfo_max_freq")
        if fastest is not None:
            yield Fact(time_ns, "cpu", "host", "core_clock_max_hertz", str(fastest * 1000))
        nominal = [value * worth for name, worth in _NOMINAL_CLOCK if (value := self._number(first, name)) is not None]
        if nominal:
            yield Fact(time_ns, "cpu", "host", "core_clock_nominal_hertz", str(nominal[0]))

    def affinity(self, time_ns: int, pids: Sequence[int]) -> Iterator[Reading | Fact]:
        """Which cores processes may run on, of some processes in turn; the masks as text when they are new or changed.

        Args:
            time_ns: now.
            pids: processes of the job.
        """
        for pid in self._asked_ns.keys() - set(pids):
            del self._asked_ns[pid], self._told[pid]
        due = [pid for pid in pids if time_ns >= self._asked_ns.get(pid, 0) + _AGAIN_NS or pid not in self._asked_ns]
        for pid in sorted(due, key=lambda pid: self._asked_ns.get(pid, 0))[:_PROCESSES_ASKED]:
            masks, before = self._masks(pid), self._told.get(pid, {})
            cores = frozenset().union(*masks.values())
            threads = {f"tid:{tid}": mask for tid, mask in masks.items()}
            narrow = {thread: mask for thread, mask in threads.items() if mask != cores or thread in before}
            self._asked_ns[pid], self._told[pid] = time_ns, {f"pid:{pid}": cores, **narrow}
            for subject, mask in self._told[pid].items():
                if mask and before.get(subject) != mask:
                    yield Fact(time_ns, "cpu", subject, "affinity", core_text(mask))
            yield Reading(time_ns, "cpu", f"pid:{pid}", "allowed_cores", len(cores) or None)

    def clock(self, time_ns: int, running: Iterable[int] | None) -> Iterator[Reading]:
        """Mean clock of cores that run the job, for idle ones slow down; how long heat held some of the job's back.

        Args:
            time_ns: now.
            running: cores on which processes of the job are running; None where the kernel does not say.
        """
        some = sorted(self.used())[:_CLOCKS_READ]
        cores = some if running is None else sorted(set(running))[:_CLOCKS_READ]
        clocks = [clock for core in cores if (clock := self._number(core, "cpufreq/scaling_cur_freq")) is not None]
        if clocks:
            yield Reading(time_ns, "cpu", "host", "core_clock_hertz", sum(clocks) / len(clocks) * 1000)
        for core in some:
            hot_ms = self._number(core, "thermal_throttle/core_throttle_total_time_ms")
            if hot_ms is not None:
                yield Reading(time_ns, "cpu", f"core:{core}", "heat_limited_seconds_total", hot_ms / 1000)

    def _number(self, core: int, name: str) -> int | None:
        try:
            return int(self._text(core, name) or "")
        except ValueError:
            return None

    def _text(self, core: int, name: str) -> str | None:
        try:
            return self._files.read(f"/sys/devices/system/cpu/cpu{core}/{name}").decode()
        except OSError:
            return None

    def _masks(self, pid: int) -> dict[int, frozenset[int]]:
        """The masks of a process's threads, by thread; of its main one only, where that may run everywhere."""
        main = {pid: self._mask(f"proc/{pid}/status")}
        if main[pid] >= frozenset(self._online):
            return main
        try:
            threads = os.listdir(self._root / f"proc/{pid}/task")[:_THREADS_ASKED]
        except OSError:
            return main
        return main | {int(thread): self._mask(f"proc/{pid}/task/{thread}/status") for thread in threads}

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


CORES_PERIOD_NS = NS_PER_S
SLOW_PERIOD_NS = 5 * NS_PER_S  # of clocks, quotas and masks, and who else computes


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """CPU time of one process in seconds, from /proc/PID/stat.

    Attributes:
        waited_s: of its ended children that it waited for, and of theirs.
        started_ticks: when it was started, in clock ticks since boot.
        running: its main thread runs now, or is ready to.
        core: on which core that ran last; None where the kernel does not say.
    """

    user_s: float
    system_s: float
    waited_s: float
    threads: int
    started_ticks: int
    zombie: bool
    running: bool
    core: int | None

    @property
    def total_s(self) -> float:
        """Its own and what it inherited from its children."""
        return self.user_s + self.system_s + self.waited_s


def parse_process_time(stat: bytes) -> ProcessTime:
    """Reads a /proc/PID/stat; fields are numbered from 1 in proc(5)."""
    fields = stat_fields(stat)
    user, system, waited_user, waited_system = (int(field) / CLOCK_TICKS_PER_S for field in fields[11:15])
    waited_s = waited_user + waited_system
    state, threads, started_ticks = fields[0], int(fields[17]), int(fields[19])
    core = int(fields[36]) if len(fields) > 36 else None
    return ProcessTime(user, system, waited_s, threads, started_ticks, state in ENDED, state == b"R", core)


class GroupTime:
    """CPU time of a set of processes, those included that have ended.

    Args:
        files: the probe's files.
        opened_ticks: when looking began, in clock ticks since boot; what younger processes used counts
            in full.
    """

    def __init__(self, files: KeptFiles, opened_ticks: float) -> None:
        self.times: dict[int, ProcessTime] = {}
        self.total_s = 0.0
        self._files = files
        self._opened_ticks = opened_ticks
        self._tally = Tally()

    def update(self, pids: Iterable[int]) -> float:
        """Counts these processes and those seen earlier; returns seconds used since the first sample."""
        before, self.times = self.times, {}
        for pid in dict.fromkeys((*pids, *before)):
            try:
                self.times[pid] = parse_process_time(self._files.read(f"/proc/{pid}/stat"))
            except OSError:
                continue
        newborn = [
            pid for pid, time in self.times.items() if pid not in before and time.started_ticks >= self._opened_ticks
        ]
        self.total_s = self._tally.update({pid: time.total_s for pid, time in self.times.items()}, newborn)
        return self.total_s


class CpuProbe:
    """Reads processor time, affinity, quotas and throttling.

    Args:
        root: where /proc and /sys are.
    """

    name = "cpu"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._cores = Cores(root, self._files)
        self._nodes = Nodes(root)
        self._neighbours = Neighbours(root)
        self._quotas = Quotas(root, self._files)
        self._pressure = Pressure("cpu", root, self._files)
        self._job: Processes | None = None
        self._job_time = GroupTime(self._files, 0)
        self._own_time = GroupTime(self._files, 0)
        self._busy_at_open_s: float | None = None
        self._others_s = 0.0
        self._cores_next_ns = 0
        self._slow_next_ns = 0

    def check(self, process: Candidate) -> Availability:
        """CPU time is seen of everybody; quotas and pressure where the kernel shows them."""
        return self._availability(process.pid)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts counting; returns what the machine is, and what of it the job may use."""
        self._job = job
        time_ns = now_ns()
        opened_ticks = uptime_ticks(self._files)
        self._job_time = GroupTime(self._files, opened_ticks)
        self._own_time = GroupTime(self._files, opened_ticks)
        first = next(iter(job.pids()), None)
        facts = [*self._cores.facts(time_ns), *self._nodes.facts(time_ns)]
        return [*facts, *self._availability(first).missing(), *self.sample(time_ns)]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples processes, host and control groups; cores and quotas at their own periods."""
        pids = self._job.pids() if self._job else ()
        yield from self._processes(now_ns, pids)
        yield from self._host(now_ns, pids)
        yield from self._pressure.sample(now_ns, pids)
        yield from self._quotas.throttling(now_ns, pids)
        yield from self._cores.affinity(now_ns, pids)
        if now_ns >= self._slow_next_ns:
            self._slow_next_ns = now_ns + SLOW_PERIOD_NS
            yield from self._cores.clock(now_ns, self._running())
            yield from self._quotas.limits(now_ns, pids)
            usable = min(self._cores.usable(), self._quotas.cores or float("inf"))
            yield Reading(now_ns, "cpu", "job", "usable_cores", usable)
            ours = frozenset((*pids, *self._own_pids(pids)))
            yield from self._neighbours.sample(now_ns, ours, self._cores.used())

    def close(self) -> Iterable[Sample]:
        """Closes all files."""
        self._files.close()
        return ()

    def _availability(self, pid: int | None) -> Availability:
        return Availability.but_for(self.name, self._quotas.refusal(pid), self._pressure.refusal())

    def _processes(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        total_s = self._job_time.update(pids)
        for pid, time in self._job_time.times.items():
            if time.zombie:
                continue
            subject = f"pid:{pid}"
            yield Reading(time_ns, "cpu", subject, "user_seconds_total", time.user_s)
            yield Reading(time_ns, "cpu", subject, "system_seconds_total", time.system_s)
            yield Reading(time_ns, "cpu", subject, "waited_children_seconds_total", time.waited_s)
            yield Reading(time_ns, "cpu", subject, "threads", time.threads)
            if self._nodes.several:
                yield Reading(time_ns, "cpu", subject, "numa_node", self._nodes.of(time.core))
        yield Reading(time_ns, "cpu", "job", "cpu_seconds_total", total_s)

    def _running(self) -> list[int] | None:
        """Cores on which main threads of the job run; None where the kernel does not say."""
        times = list(self._job_time.times.values())
        known = [time.core for time in times if time.running and time.core is not None]
        return known if known or any(time.core is not None for time in times) else None

    def _host(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        own_s = self._own_time.update(self._own_pids(pids))
        yield Reading(time_ns, "cpu", "perfdoctor", "cpu_seconds_total", own_s)
        try:
            lines = self._files.read("/proc/stat").splitlines()
        except OSError:
            return
        with_cores = time_ns >= self._cores_next_ns
        if with_cores:
            self._cores_next_ns = time_ns + CORES_PERIOD_NS
        for line in lines:
            if line.startswith(b"cpu ") or (with_cores and line.startswith(b"cpu")):
                yield from self._core(time_ns, line, own_s)
            elif line.startswith(b"procs_running"):
                yield Reading(time_ns, "cpu", "host", "runnable_threads", int(line.split()[1]))

    def _core(self, time_ns: int, line: bytes, own_s: float) -> Iterator[Reading]:
        """A ``cpu`` line of /proc/stat, in ticks; its columns are named as in proc(5)."""
        name, *ticks = line.split()
        user, nice, system, idle, iowait, irq, softirq, steal = (int(tick) / CLOCK_TICKS_PER_S for tick in ticks[:8])
        busy_s = user + nice + system + irq + softirq
        subject = "host" if name == b"cpu" else f"core:{name[3:].decode()}"
        yield Reading(time_ns, "cpu", subject, "busy_seconds_total", busy_s)
        yield Reading(time_ns, "cpu", subject, "steal_seconds_total", steal)
        if subject == "host":
            yield Reading(time_ns, "cpu", "host", "idle_seconds_total", idle)
            yield Reading(time_ns, "cpu", "host", "iowait_seconds_total", iowait)
            yield Reading(time_ns, "cpu", "host", "neighbours_seconds_total", self._others(busy_s, own_s))

    def _others(self, busy_s: float, own_s: float) -> float:
        """What neither the job nor perfdoctor used; ticks round, so it is kept from shrinking."""
        if self._busy_at_open_s is None:
            self._busy_at_open_s = busy_s
        rest_s = busy_s - self._busy_at_open_s - self._job_time.total_s - own_s
        self._others_s = max(self._others_s, rest_s)
        return self._others_s

    def _own_pids(self, job: Iterable[int]) -> Iterator[int]:
        """perfdoctor and its children, the job excepted: either may have started the other."""
        return descendants_of_self(self._root, frozenset(job))
