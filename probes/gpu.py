"""NVIDIA GPUs: use of units and memory, power, clocks and what limits them, and whose processes are on them.

Written against the functions and structures of nvidia-ml-py 13; not yet seen on a device, so its cost is
unmeasured: devices that the job is known not to use are left alone, and slow counters are read every 5 s
only.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.nvml import Gpm, Nvml, Users, mean_use, sees_all_processes, tell_apart, total, why_no_gpu
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

_NO_DEVICE = Refusal("The NVIDIA driver shows no GPU.", "docker run --gpus all, where in a container")
SLOW_PERIOD_NS = 5 * NS_PER_S

# Bits of the clock event reasons (NVML: nvmlClocksEventReasons).
_BY_POWER = 0x4 | 0x80  # software power cap, hardware power brake
_BY_HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
_BY_HARDWARE = 0x8  # hardware slowdown, of whatever cause

_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")

# Reading, function, name of the constant it is asked about, and what one of its units is worth.
_LEVELS = (
    ("power_watts", "nvmlDeviceGetPowerUsage", "", 1e-3),
    ("energy_joules_total", "nvmlDeviceGetTotalEnergyConsumption", "", 1e-3),
    ("sm_clock_hertz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM", 1e6),
    ("memory_clock_hertz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM", 1e6),
)
_SLOW_LEVELS = (
    ("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", "", 1e-3),
    ("sm_clock_max_hertz", "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM", 1e6),
    ("temperature_celsius", "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU", 1),
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", "", 1),
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", "", 1),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", "", 1),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", "", 1),
    ("pcie_replays_total", "nvmlDeviceGetPcieReplayCounter", "", 1),
)
# Only where there is no GPM: a call takes the 20 ms over which it measures, and answers in kB/s.
_SAMPLED_LEVELS = (
    ("pcie_sent_bytes_per_second", "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES", 1e3),
    ("pcie_received_bytes_per_second", "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES", 1e3),
)
_VIOLATIONS = (
    ("power_limited_seconds_total", "NVML_PERF_POLICY_POWER"),
    ("heat_limited_seconds_total", "NVML_PERF_POLICY_THERMAL"),
)


def clock_limits(reasons: int) -> dict[str, float]:
    """What holds the clocks down, 1 or 0 by reading, from the bits of NVML's clock event reasons."""
    return {
        "clocks_limited_by_power": float(bool(reasons & _BY_POWER)),
        "clocks_limited_by_heat": float(bool(reasons & _BY_HEAT)),
        "clocks_limited_by_hardware": float(bool(reasons & _BY_HARDWARE)),
    }


class GpuProbe:
    """Reads the NVIDIA GPUs that the job uses, or all of them while that is unknown.

    Args:
        root: where /proc and /sys are.
    """

    name = "gpu"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._nvml = Nvml()
        self._devices: list[_Device] = []
        self._job: Processes | None = None
        self._all_visible = False
        self._slow_next_ns = 0
        self._reported: set[str] = set()

    def check(self, process: Candidate) -> Availability:
        """GPUs are seen whatever the process is."""
        refusal = self._connect() or (None if self._count() else _NO_DEVICE)
        self._nvml.close()
        return Availability.unless(self.name, refusal)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Connects to the driver; returns facts on each device, and what cannot be seen."""
        self._job = job
        if (refusal := self._connect()) is not None:
            return [Unavailable(self.name, *refusal)]
        self._all_visible = sees_all_processes(self._root)
        for index in range(self._count()):
            handle = self._nvml.query(f"gpu:{index}", "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                self._devices.append(_Device(self._nvml, index, handle))
        if not self._devices:
            return [Unavailable(self.name, *_NO_DEVICE)]
        time_ns = now_ns()
        return [fact for device in self._devices for fact in device.facts(time_ns)] + list(self.sample(time_ns))

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples the job's devices; slow counters at their own period."""
        pids = self._job.pids() if self._job else ()
        slow = now_ns >= self._slow_next_ns
        if slow:
            self._slow_next_ns = now_ns + SLOW_PERIOD_NS
        for device in self._devices:
            if slow:
                yield from device.look_for_users(now_ns, pids, self._all_visible)
        for device in self._used():
            yield from device.fast(now_ns)
            if slow:
                yield from device.slow(now_ns)
        if slow:
            yield from self._unsupported()

    def close(self) -> Iterable[Sample]:
        """Gives back what NVML lent, and disconnects."""
        for device in self._devices:
            device.gpm.close()
        self._devices = []
        self._nvml.close()
        return ()

    def _connect(self) -> Refusal | None:
        reason = self._nvml.open()
        return None if reason is None else why_no_gpu(self._root, reason)

    def _count(self) -> int:
        return self._nvml.query("", "nvmlDeviceGetCount") or 0

    def _used(self) -> list["_Device"]:
        used = [device for device in self._devices if device.users.job]
        return used or self._devices

    def _unsupported(self) -> Iterator[Unavailable]:
        """What this driver cannot say, each once."""
        for function, reason in self._nvml.unsupported.items():
            if function not in self._reported:
                self._reported.add(function)
                text = f"NVML does not answer {function} here: {reason}."
                yield Unavailable("gpu", text, "a newer GPU or driver")


class _Device:
    """One GPU."""

    def __init__(self, nvml: Nvml, index: int, handle: Any) -> None:
        self.subject = f"gpu:{index}"
        self.users = Users(None, None)
        self.gpm = Gpm(nvml, self.subject, handle)
        self._nvml = nvml
        self._handle = handle
        self._use_until_us = 0

    def facts(self, time_ns: int) -> Iterator[Fact]:
        """What the device is."""
        capability = self._ask("nvmlDeviceGetCudaComputeCapability")
        version = self._nvml.query("", "nvmlSystemGetCudaDriverVersion")
        mig = self._ask("nvmlDeviceGetMigMode")
        values = {
            "name": self._ask("nvmlDeviceGetName"),
            "uuid": self._ask("nvmlDeviceGetUUID"),
            "driver_version": self._nvml.query("", "nvmlSystemGetDriverVersion"),
            "cuda_driver_version": f"{version // 1000}.{version % 1000 // 10}" if version else None,
            "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
            "gpm": "yes" if self.gpm.supported else "no",
            "partitioned": None if mig is None else "yes" if mig[0] else "no",
        }
        for name, value in values.items():
            if value is not None:
                yield Fact(time_ns, "gpu", self.subject, name, str(value))

    def fast(self, time_ns: int) -> Iterator[Reading]:
        """What changes all the time."""
        use = self._ask("nvmlDeviceGetUtilizationRates")
        if use is not None:
            yield self._reading(time_ns, "busy_fraction", use.gpu / 100)
            yield self._reading(time_ns, "memory_busy_fraction", use.memory / 100)
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        if memory is not None:
            yield self._reading(time_ns, "memory_used_bytes", memory.used)
            yield self._reading(time_ns, "memory_total_bytes", memory.total)
        reasons = self._nvml.first(self.subject, _REASONS, self._handle)
        if reasons is not None:
            yield from (self._reading(time_ns, *limit) for limit in clock_limits(reasons).items())
        yield from self._levels(time_ns, _LEVELS)
        yield from (self._reading(time_ns, *metric) for metric in self.gpm.metrics())

    def slow(self, time_ns: int) -> Iterator[Reading]:
        """What changes rarely, or costs much to ask."""
        yield from self._levels(time_ns, _SLOW_LEVELS)
        if not self.gpm.supported:
            yield from self._levels(time_ns, _SAMPLED_LEVELS)
        for name, policy in _VIOLATIONS:
            violation = self._ask("nvmlDeviceGetViolationStatus", self._nvml.constant(policy))
            if violation is not None:
                yield self._reading(time_ns, name, violation.violationTime / 1e9)

    def look_for_users(self, time_ns: int, job: Iterable[int], all_visible: bool) -> Iterator[Reading]:
        """Whose processes are on the device, their memory, and their share of its multiprocessors."""
        processes = self._nvml.first(self.subject, _PROCESSES, self._handle)
        self.users = Users(None, None) if processes is None else tell_apart(processes, job, all_visible)
        own, foreign = self.users.job, self.users.foreign
        use = self._process_use()
        yield self._reading(time_ns, "job_processes", None if own is None else len(own))
        yield self._reading(time_ns, "foreign_processes", None if foreign is None else len(foreign))
        yield self._reading(time_ns, "job_memory_bytes", total(own))
        yield self._reading(time_ns, "foreign_memory_bytes", total(foreign))
        shares = None if use is None or foreign is None else [use.get(pid, 0.0) for pid in foreign]
        yield self._reading(time_ns, "foreign_sm_fraction", None if shares is None else min(sum(shares), 1.0))
        for pid, used in (own or {}).items():
            subject = f"{self.subject}/pid:{pid}"
            yield Reading(time_ns, "gpu", subject, "memory_bytes", used)
            yield Reading(time_ns, "gpu", subject, "sm_fraction", use.get(pid) if use is not None else None)

    def _process_use(self) -> dict[int, float] | None:
        samples = self._nvml.samples(self.subject, "nvmlDeviceGetProcessUtilization", self._handle, self._use_until_us)
        if samples is None:
            return None
        self._use_until_us = max((sample.timeStamp for sample in samples), default=self._use_until_us)
        return mean_use(samples)

    def _levels(self, time_ns: int, levels: Iterable[tuple[str, str, str, float]]) -> Iterator[Reading]:
        for name, function, about, worth in levels:
            value = self._ask(function, *([self._nvml.constant(about)] if about else []))
            if value is not None:
                yield self._reading(time_ns, name, value * worth)

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._nvml.query(self.subject, function, self._handle, *arguments)

    def _reading(self, time_ns: int, name: str, value: float | None) -> Reading:
        return Reading(time_ns, "gpu", self.subject, name, value)
