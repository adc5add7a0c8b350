"""GPUs: use of units and memory, power, clocks and what limits them, and whose processes are on them.

A driver's call may block for 20 ms (PCIe throughput), or for good where a driver hangs. So all but the first round runs
in a thread of its own, and the other probes wait for it for 2 ms at most. Devices that the job is known not to use are
left alone, and slow counters are read every 5 s only. The recording has how long calls take.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.amd import AmdDriver
from perfdoctor.probes.readers.amd_kernel import AmdKernelDriver
from perfdoctor.probes.readers.gpus import Device, Driver, sees_all_processes
from perfdoctor.probes.readers.numa import node_of_device
from perfdoctor.probes.readers.nvidia import NvidiaDriver
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate, device_files
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

_NO_DEVICE = Refusal("The driver shows no GPU.", "docker run --gpus all, where in a container")
_ENABLE_NVIDIA = (
    "install the NVIDIA driver; in a container: docker run --gpus all, or a Kubernetes nvidia.com/gpu limit"
)
_ENABLE_AMD = "pip install amdsmi, of the version of the ROCm that is installed"
SLOW_PERIOD_NS = 5 * NS_PER_S  # of what changes slowly: limits, health, who uses the GPU
_SEARCH_NS = NS_PER_S // 200  # of a round, that the search for the job's GPUs may take
# How long other probes wait for a round, and how long the end of the watching does.
WAIT_S = 0.002
LAST_WAIT_S = 2.0


class GpuProbe:
    """Reads the GPUs that the job uses, or all of them while that is unknown; and which processes compute on any.

    Args:
        root: where /proc and /sys are.
    """

    name = "gpu"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._driver: Driver | None = None
        self._devices: list[Device] = []
        self._rounds = _Rounds()
        self._job: Processes | None = None
        self._all_visible = False
        self._slow_next_ns = 0
        self._computing = _Computing(root)

    def check(self, process: Candidate) -> Availability:
        """GPUs are seen whatever the process is."""
        refusal = self._connect()
        self._disconnect()
        return Availability.unless(self.name, refusal)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Connects to the driver; returns facts on each device, the first round, and what cannot be seen."""
        self._job = job
        computing = list(self._computing.look(now_ns(), job))
        if (refusal := self._connect()) is not None:
            self._slow_next_ns = now_ns() + SLOW_PERIOD_NS
            return [*computing, Unavailable(self.name, *refusal)]
        self._all_visible = sees_all_processes(self._root)
        facts = [fact for device in self._devices for fact in device.facts()]
        facts += self._nodes(facts)
        self._slow_next_ns = now_ns() + SLOW_PERIOD_NS
        return [*computing, *facts, *self._sample_all(job.pids(), slow=True)]

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Begins a round, unless one is under way, and yields what has been seen since the last call."""
        assert self._job is not None
        slow = now_ns >= self._slow_next_ns
        yield from self._computing.look(now_ns, self._job)
        begun = self._devices and self._rounds.begin(partial(self._sample_all, self._job.pids(), slow=slow))
        if slow and (begun or not self._devices):
            self._slow_next_ns = now_ns + SLOW_PERIOD_NS
        yield from self._rounds.take(WAIT_S)

    def close(self) -> Iterable[Sample]:
        """Waits for the round that is under way, disconnects, and returns what was still seen."""
        last = [*self._rounds.take(LAST_WAIT_S), *self._rounds.end()]
        if not self._rounds.under_way:  # else the driver is still in a call, and must be left alone
            self._disconnect()
        return last

    def users(self, pids: Iterable[int]) -> dict[str, frozenset[int] | None]:
        """Which of some processes have a context on each GPU, None where it does not say; {} without a driver."""
        if self._connect() is not None:
            return {}
        asked, visible = tuple(pids), sees_all_processes(self._root)
        found: dict[str, frozenset[int] | None] = {}
        for device in self._devices:
            deque(device.look_for_users(asked, visible), maxlen=0)
            found[device.subject] = None if device.users.job is None else frozenset(device.users.job)
        self._disconnect()
        return found

    def _nodes(self, facts: Iterable[Sample]) -> Iterator[Fact]:
        """The NUMA nodes that GPUs are attached to."""
        for fact in facts:
            if isinstance(fact, Fact) and fact.name == "pci_address":
                node = node_of_device(fact.value, self._root)
                if node is not None:
                    yield fact._replace(name="numa_node", value=str(node))

    def _connect(self) -> Refusal | None:
        """Finds a driver with devices; returns why there is none."""
        drivers: tuple[Driver, ...] = (NvidiaDriver(), AmdDriver(), AmdKernelDriver(self._root))
        reasons = []
        for driver in drivers:
            reason = driver.open()
            if reason is None:
                self._driver, self._devices = driver, driver.devices()
                if self._devices:
                    return None
                self._disconnect()
                return _NO_DEVICE
            reasons.append(reason)
        return why_no_gpu(self._root, *reasons[:2])

    def _disconnect(self) -> None:
        for device in self._devices:
            device.close()
        self._devices = []
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _sample_all(self, pids: tuple[int, ...], *, slow: bool) -> Iterator[Sample]:
        """One round: the job's devices; all that is slow, and whose processes are on which device, if asked for."""
        assert self._driver is not None
        if slow:
            for device in self._devices:
                yield from device.look_for_users(pids, self._all_visible)
        for device in [device for device in self._devices if device.users.job] or self._devices:
            yield from device.fast()
            if slow:
                yield from device.slow()
        if slow:
            yield from self._driver.missing()
        yield Reading(now_ns(), self.name, "perfdoctor", "gpu_calls_seconds_total", self._driver.spent_ns / NS_PER_S)


def gpus_of(pids: Iterable[int], root: Path = Path("/")) -> dict[int, tuple[str, ...] | None]:
    """The GPUs that processes compute on, ``gpu:0`` for instance; None where that is not known.

    Args:
        pids: the processes; a forked one has its parent's files, and would be taken to compute as that does.
        root: where /proc is.
    """
    found: dict[int, tuple[str, ...] | None] = {}
    for pid in pids:
        try:
            found[pid] = () if device_files(pid, root) is None else None
        except OSError:
            found[pid] = None
    computing = [pid for pid, gpus in found.items() if gpus is None]
    users = GpuProbe(root).users(computing) if computing else {}
    for pid in computing:
        on = tuple(gpu for gpu, users_there in users.items() if users_there is not None and pid in users_there)
        if on or (users and None not in users.values()):
            found[pid] = on
    return found


class _Computing:
    """Which of a job's processes compute on a GPU, asked once each: it shows in their open files, whatever NVML says.

    Asking a process takes 5 µs for each file that it has open (Linux 6.18, x86-64); one that does not is asked ever
    more rarely, and one search takes so long at most that the other probes are not held up.

    Args:
        root: where /proc is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[int, str] = {}
        self._met_ns: dict[int, int] = {}
        self._ask_ns: dict[int, int] = {}
        self._reported = False

    def look(self, time_ns: int, job: Processes) -> Iterator[Sample]:
        """Those that have begun to since the last call, as far as there is time to look at them."""
        begun_ns = now_ns()
        for pid in job.torch_pids():
            if now_ns() - begun_ns > _SEARCH_NS:
                return
            if pid in self._found or time_ns < self._ask_ns.get(pid, 0):
                continue
            self._ask_ns[pid] = time_ns + max(SLOW_PERIOD_NS, time_ns - self._met_ns.setdefault(pid, time_ns))
            try:
                found = device_files(pid, self._root)
            except PermissionError:
                yield from self._refusal(pid)
                continue
            except OSError:  # it has just ended
                continue
            if found is not None:
                self._found[pid] = found
                if not self._inherits(pid, job):
                    yield Fact(time_ns, "gpu", f"pid:{pid}", "device_files", found)

    def _inherits(self, pid: int, job: Processes) -> bool:
        """Whether a process has only what it was forked with, as loader workers have."""
        parent = job.parent_of(pid)
        return pid in job.forked_pids() and parent is not None and self._found.get(parent) == self._found[pid]

    def _refusal(self, pid: int) -> Iterator[Unavailable]:
        if self._reported:
            return
        self._reported = True
        reason, enable = why_not(pid, self._root)
        yield Unavailable("gpu", f"Only its driver can tell whether process {pid} computes on a GPU. {reason}", enable)


class _Rounds:
    """Runs one round after the other in a thread of its own.

    Attributes:
        under_way: a round has begun and not ended.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], Iterable[Sample]] | None] = SimpleQueue()
        self._found: deque[Sample] = deque()
        self._ended = threading.Event()
        self._ended.set()
        self._begun_ns = 0
        # One that hangs in a driver must not keep perfdoctor from ending.
        self._thread = threading.Thread(target=self._run, name="perfdoctor-gpu", daemon=True)

    @property
    def under_way(self) -> bool:
        return not self._ended.is_set()

    def begin(self, look: Callable[[], Iterable[Sample]]) -> bool:
        """Begins a round, unless one is under way."""
        if self.under_way:
            return False
        if not self._thread.is_alive():
            self._thread.start()
        self._ended.clear()
        self._begun_ns = now_ns()
        self._asked.put(look)
        return True

    def take(self, wait_s: float) -> Iterator[Sample]:
        """What rounds have found since the last call; waits so long at most for the one that is under way."""
        self._ended.wait(wait_s)
        while self._found:
            yield self._found.popleft()

    def end(self) -> Iterator[Unavailable]:
        """Ends the thread, as soon as its round has ended; says whether that is still under way."""
        self._asked.put(None)
        if self.under_way:
            seconds = (now_ns() - self._begun_ns) / NS_PER_S
            text = f"The GPU's driver has not answered for {seconds:.0f} s; what it was asked then is missing."
            yield Unavailable("gpu", text, "look for Xid errors in the kernel's log: the driver hangs")

    def _run(self) -> None:
        while (look := self._asked.get()) is not None:
            try:
                for sample in look():
                    self._found.append(sample)
            except Exception as error:  # noqa: BLE001
                text = f"A round of readings of the GPUs broke off: {type(error).__name__}: {error}."
                self._found.append(Unavailable("gpu", text, "report it, with the versions of driver and libraries"))
            finally:
                self._ended.set()


def why_no_gpu(root: Path, nvidia: str, amd: str) -> Refusal:
    """Reason and remedy where no GPU can be read, in view of what GPU drivers this machine has.

    Args:
        root: where /proc and /dev are.
        nvidia: why NVIDIA's cannot.
        amd: why AMD's cannot.
    """
    if (root / "proc/driver/nvidia/version").exists():
        return Refusal(nvidia, "reload the driver or reboot: its library and kernel module may differ in version")
    if (root / "dev/kfd").exists():
        return Refusal(f"This machine has the driver of AMD's GPUs. {amd}", _ENABLE_AMD)
    return Refusal(f"{nvidia} This machine shows no NVIDIA driver.", _ENABLE_NVIDIA)
