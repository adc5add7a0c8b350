"""NVIDIA's GPUs, and instances of those that are partitioned (MIG), through NVML.

Written against the functions and structures of nvidia-ml-py 13. Instances (MIG) were not yet seen on a device.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from perfdoctor.probes.readers.gpus import Device, Users, tell_apart, users_readings
from perfdoctor.probes.readers.nvidia_health import NvidiaHealth
from perfdoctor.probes.readers.nvlink import NvLinkRates
from perfdoctor.probes.readers.nvml import Gpm, Nvml, NvmlDevice, mean_use
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

# Bits of the clock event reasons (NVML: nvmlClocksEventReasons), by what holds the clocks down.
_LIMITS = {
    "power": 0x4,  # the software power cap
    "power_brake": 0x80,  # the power supply asks for less
    "heat": 0x20 | 0x40,  # software and hardware thermal slowdown
    "hardware": 0x8,  # hardware slowdown, of whatever cause
}

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
    ("power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit", "", 1e-3),
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

# NVML says that its samples bear "CPU time stamps", and not of which clock: since 1970 or since boot, by driver.
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME, "realtime": time.CLOCK_REALTIME}
# A sample is newer than this where its clock is the right one: NVML takes one in 1/6 to 1 s.
_LONGEST_LAG_NS = 5 * NS_PER_S


def clock_limits(reasons: int) -> dict[str, float]:
    """What holds the clocks down, 1 or 0 by reading, from the bits of NVML's clock event reasons."""
    return {f"clocks_limited_by_{what}": float(bool(reasons & bits)) for what, bits in _LIMITS.items()}


def lag_of(stamp_us: int, clocks: dict[str, int]) -> tuple[str, float] | None:
    """The clock that a time stamp was most likely taken from, and how many seconds ago; None if from none of them.

    Args:
        stamp_us: the time stamp, in microseconds.
        clocks: what clocks show now, in nanoseconds; of those that fit equally well the first is taken.
    """
    lags = {clock: shown - stamp_us * 1000 for clock, shown in clocks.items()}
    fitting = {clock: lag for clock, lag in lags.items() if 0 <= lag < _LONGEST_LAG_NS}
    if not fitting:
        return None
    clock = min(fitting, key=lambda one: fitting[one])
    return clock, fitting[clock] / NS_PER_S


class NvidiaDriver:
    """NVML, and the devices that it shows."""

    def __init__(self) -> None:
        self._nvml = Nvml()
        self._reported: set[str] = set()

    @property
    def spent_ns(self) -> int:
        """Time that calls of NVML have taken so far."""
        return self._nvml.spent_ns

    def open(self) -> str | None:
        """Loads the library and connects to the driver; returns the reason if that cannot be done."""
        return self._nvml.open()

    def devices(self) -> list[Device]:
        """All devices, none where there are none."""
        found: list[Device] = []
        for index in range(self._nvml.query("", "nvmlDeviceGetCount") or 0):
            subject = f"gpu:{index}"
            handle = self._nvml.query(subject, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                found.append(NvidiaDevice(NvmlDevice(self._nvml, subject, handle)))
        return found

    def missing(self) -> Iterator[Unavailable]:
        """What this driver cannot say, each once."""
        for function, reason in self._nvml.unsupported.items():
            if function not in self._reported:
                self._reported.add(function)
                text = f"NVML does not answer {function} here: {reason}."
                yield Unavailable("gpu", text, "a newer GPU or driver")

    def close(self) -> None:
        """Disconnects."""
        self._nvml.close()


class _NvmlDevice:
    """What whole devices and instances have in common.

    Args:
        device: whom NVML is asked about.
        gpm: its performance counters.
    """

    def __init__(self, device: NvmlDevice, gpm: Gpm) -> None:
        self.device = device
        self.nvml, self.subject, self.ask = device.nvml, device.subject, device.ask
        self.users = Users(None, None)
        self.gpm = gpm
        self._use_until_us = 0

    def work(self) -> Iterator[Reading]:
        """How full its memory is, and what its performance counters say."""
        memory = self.ask("nvmlDeviceGetMemoryInfo")
        if memory is not None:
            yield self.reading("memory_used_bytes", memory.used)
            yield self.reading("memory_total_bytes", memory.total)
        yield from (self.reading(*metric) for metric in self.gpm.metrics())

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        """Whose processes are on it, their memory, and their share of its multiprocessors."""
        processes = self.device.ask_first(*_PROCESSES)
        self.users = Users(None, None)
        if processes is not None:
            memory = {process.pid: process.usedGpuMemory for process in processes}
            self.users = tell_apart(memory, job, all_visible)
        yield from users_readings(now_ns(), self.subject, self.users, self._process_use())

    def close(self) -> None:
        """Gives back what NVML lent."""
        self.gpm.close()

    def reading(self, name: str, value: float | None) -> Reading:
        """What has just been read of it."""
        return Reading(now_ns(), "gpu", self.subject, name, value)

    def state(self, **values: str | None) -> Iterator[Fact]:
        """Facts about it, those that are known."""
        for name, value in values.items():
            if value is not None:
                yield Fact(now_ns(), "gpu", self.subject, name, value)

    def _process_use(self) -> dict[int, float] | None:
        """How processes use it since the last call; None from the first one, whose samples are of before."""
        is_first, since_us = self._use_until_us == 0, self._use_until_us
        samples = self.device.samples("nvmlDeviceGetProcessUtilization", since_us)
        if samples is None:
            return None
        self._use_until_us = max((sample.timeStamp for sample in samples), default=since_us)
        return None if is_first and samples else mean_use(samples)


class NvidiaDevice(_NvmlDevice):
    """One GPU. Of one that is partitioned its instances say how they are used, and itself its power and clocks.

    Args:
        device: whom NVML is asked about.
    """

    def __init__(self, device: NvmlDevice) -> None:
        super().__init__(device, Gpm(device))
        mode = self.ask("nvmlDeviceGetMigMode")
        self._partitioned = None if mode is None else bool(mode[0])
        self._instances = self._find_instances() if self._partitioned else []
        self._health = NvidiaHealth(device)
        self._links = NvLinkRates(device)
        self._sampled_until_us = 0
        self._clock = ""

    def facts(self) -> Iterator[Sample]:
        """What the device is; of one that is partitioned, what is not read of it."""
        capability = self.ask("nvmlDeviceGetCudaComputeCapability")
        version = self.nvml.query("", "nvmlSystemGetCudaDriverVersion")
        bus = self.ask("nvmlDeviceGetPciInfo")
        yield from self.state(
            name=_text(self.ask("nvmlDeviceGetName")),
            uuid=_text(self.ask("nvmlDeviceGetUUID")),
            driver_version=_text(self.nvml.query("", "nvmlSystemGetDriverVersion")),
            cuda_driver_version=f"{version // 1000}.{version % 1000 // 10}" if version else None,
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            gpm="yes" if self.gpm.supported else "no",
            partitioned=None if self._partitioned is None else "yes" if self._partitioned else "no",
            pci_address=None if bus is None else pci_address(_text(bus.busId) or ""),
        )
        for instance in self._instances:
            yield from instance.facts()
        if self._partitioned:
            yield from self._unread()

    def fast(self) -> Iterator[Sample]:
        """What changes all the time."""
        if self._partitioned:
            for instance in self._instances:
                yield from instance.work()
        else:
            use = self.ask("nvmlDeviceGetUtilizationRates")
            if use is not None:
                yield self.reading("busy_fraction", use.gpu / 100)
                yield self.reading("memory_busy_fraction", use.memory / 100)
            yield from self.work()
            if not self.gpm.supported:
                yield from (self.reading(*rate) for rate in self._links.readings())
        reasons = self.device.ask_first(*_REASONS)
        if reasons is not None:
            yield from (self.reading(*limit) for limit in clock_limits(reasons).items())
        yield from self._levels(_LEVELS)

    def slow(self) -> Iterator[Sample]:
        """What changes rarely, or costs much to ask."""
        yield from self._levels(_SLOW_LEVELS)
        if not self.gpm.supported:
            yield from self._levels(_SAMPLED_LEVELS)
        for name, policy in _VIOLATIONS:
            violation = self.ask("nvmlDeviceGetViolationStatus", self.nvml.constant(policy))
            if violation is not None:
                yield self.reading(name, violation.violationTime / 1e9)
        yield from (self.reading(*state) for state in self._health.readings())
        if not self._partitioned:
            yield from self._lag()

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        """Whose processes are on it; where it is partitioned, on each of its instances."""
        if not self._partitioned:
            yield from super().look_for_users(job, all_visible)
            return
        for instance in self._instances:
            yield from instance.look_for_users(job, all_visible)
        known = [instance.users.job for instance in self._instances if instance.users.job is not None]
        self.users = Users({pid: used for own in known for pid, used in own.items()} if known else None, None)

    def close(self) -> None:
        """Gives back what NVML lent."""
        super().close()
        self._health.close()
        for instance in self._instances:
            instance.close()

    def _find_instances(self) -> list[NvidiaInstance]:
        most = self.ask("nvmlDeviceGetMaxMigDeviceCount") or 0
        found = []
        for index in range(most):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if handle is not None:
                found.append(NvidiaInstance(self, index, handle))
        return found

    def _unread(self) -> Iterator[Unavailable]:
        """How busy instances are, NVML says through performance counters only."""
        if not self._instances:
            yield Unavailable(
                "gpu",
                f"{self.subject} is partitioned (MIG), and none of its instances is visible.",
                "docker run --gpus with the instance that the job uses, where in a container",
            )
        elif not any(instance.gpm.supported for instance in self._instances):
            yield Unavailable(
                "gpu",
                f"{self.subject} is partitioned (MIG), and NVML does not say how busy its instances are; "
                "their memory and processes are read, and power and clocks of the whole GPU.",
                "perfdoctor beside the job on an unpartitioned GPU, or on one from Hopper on",
            )

    def _lag(self) -> Iterator[Sample]:
        """How old the newest use of the device is that NVML knows of, and over how long it is a mean."""
        kind = self.nvml.constant("NVML_GPU_UTILIZATION_SAMPLES")
        answer = self.ask("nvmlDeviceGetSamples", kind, self._sampled_until_us)
        stamps = sorted(sample.timeStamp for sample in answer[1] if sample.timeStamp) if answer else []
        if not stamps:
            return
        self._sampled_until_us = stamps[-1]
        found = lag_of(stamps[-1], {name: time.clock_gettime_ns(clock) for name, clock in _CLOCKS.items()})
        yield self.reading("utilization_lag_seconds", None if found is None else found[1])
        distances = [later - earlier for earlier, later in pairwise(stamps)]
        if distances:
            yield self.reading("utilization_window_seconds", median(distances) / 1e6)
        if found is not None and found[0] != self._clock:
            self._clock = found[0]
            yield from self.state(utilization_clock=self._clock)

    def _levels(self, levels: Iterable[tuple[str, str, str, float]]) -> Iterator[Reading]:
        for name, function, about, worth in levels:
            value = self.ask(function, *([self.nvml.constant(about)] if about else []))
            if value is not None:
                yield self.reading(name, value * worth)


class NvidiaInstance(_NvmlDevice):
    """A part of a GPU that is partitioned (MIG); its shares are those of the instance, not of the GPU.

    Args:
        whole: the GPU.
        index: its number among the GPU's.
        handle: its NVML handle.
    """

    def __init__(self, whole: NvidiaDevice, index: int, handle: Any) -> None:
        device = NvmlDevice(whole.nvml, f"{whole.subject}:{index}", handle)
        number = device.ask("nvmlDeviceGetGpuInstanceId")
        # Without its number the counters would be those of the whole GPU.
        counted = replace(device, handle=None if number is None else whole.device.handle)
        super().__init__(device, Gpm(counted, number))

    def facts(self) -> Iterator[Fact]:
        """What the instance is."""
        yield from self.state(
            name=_text(self.ask("nvmlDeviceGetName")),
            uuid=_text(self.ask("nvmlDeviceGetUUID")),
            gpm="yes" if self.gpm.supported else "no",
        )


def pci_address(bus: str) -> str:
    """A device's folder in /sys/bus/pci/devices, from NVML's ``00000000:1A:00.0``."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value is None else str(value)
