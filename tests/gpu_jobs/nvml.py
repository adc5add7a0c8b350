"""NVML as it answers for simulated GPUs: with its windows, its lags, and what it does not have on some of them.

What a probe reads is decided by the probe: it is handed this in place of the module ``pynvml``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu_jobs.device import Gpu, Use
from tests.gpu_jobs.events import MS, S
from tests.gpu_jobs.job import Clocks, Job

_FRACTIONS = ("sm", "occupancy", "tensor", "dram", "fp32", "fp16")
_BYTES = ("pcie_in", "pcie_out", "nvlink")
# What a board draws over its idle power, at 700 W: fitted to labelled means of jobs on H100s.
_WATTS_AT_700 = {"sm": 400.0, "tensor": 350.0, "dram": 250.0}
_NVLINK_WATTS_PER_BYTE = 0.4e-9
# Power falls faster than the clock that is lowered to save it.
_POWER_OF_CLOCK = 2.2
_FLOOR_BYTES = 19e6  # PCIe traffic that GPM shows of an idle GPU
_GPM_LEAST_NS = 100 * MS


class Activity:
    """What a GPU did, as integrals over time."""

    def __init__(self, gpu: Gpu, job: Job, clocks: Clocks) -> None:
        self._model = gpu.model
        self._factor = job.unsure.power_factor
        self._clock = clocks.speed
        self._times, rates = self._rates([one for one in gpu.intervals if one[1] > one[0]])
        columns = {name: np.clip(rates[:, number], 0, 1) for number, name in enumerate(_FRACTIONS)}
        columns |= {name: rates[:, len(_FRACTIONS) + number] for number, name in enumerate(_BYTES)}
        columns["wanted"] = self._model.idle_w + np.maximum(rates[:, -2], 0)
        columns["watts"] = np.minimum(columns["wanted"], self._model.limit_w)
        columns["busy"] = (rates[:, -1] > 0.5).astype(float)
        steps = np.diff(self._times)
        self._integrals = {
            name: np.concatenate([[0.0], np.cumsum(rate[:-1] * steps)]) for name, rate in columns.items()
        }

    def _rates(self, intervals: list[tuple[int, int, Use]]) -> tuple[Any, Any]:
        """When what is in use changes, and what is from then on: fractions, bytes, watts and running kernels."""
        intervals = intervals or [(0, 1, Use(kernel=False))]
        uses = list({id(use): use for _, _, use in intervals}.values())
        rows = {id(use): number for number, use in enumerate(uses)}
        amounts = np.array([
            [*(float(getattr(use, name)) for name in (*_FRACTIONS, *_BYTES)), self._heat(use), float(use.kernel)]
            for use in uses
        ])  # fmt: skip
        table = amounts[[rows[id(use)] for _, _, use in intervals]]
        starts, ends = (np.array([one[edge] for one in intervals], dtype=np.int64) for edge in (0, 1))
        times = np.concatenate([starts, ends])
        order = np.argsort(times, kind="stable")
        return times[order], np.cumsum(np.concatenate([table, -table])[order], axis=0)

    def _heat(self, use: Use) -> float:
        """Watts over idle power."""
        scale = (self._model.limit_w - self._model.idle_w) / 580
        drawn = sum(_WATTS_AT_700[name] * getattr(use, name) for name in _WATTS_AT_700) * scale
        drawn += use.nvlink * _NVLINK_WATTS_PER_BYTE
        return float(drawn * use.heat * self._factor * self._clock**_POWER_OF_CLOCK)

    def mean(self, name: str, start_ns: int, end_ns: int) -> float:
        """Mean of a quantity between two instants; ``wanted`` is the power that it would draw without a limit."""
        rest = self._model.idle_w if name in ("watts", "wanted") else 0.0
        first, last = self._times[0], self._times[-1]
        inside = np.interp([start_ns, end_ns], self._times, self._integrals[name])
        outside = max(0, min(end_ns, first) - start_ns) + max(0, end_ns - max(start_ns, last))
        return float(inside[1] - inside[0] + rest * outside) / (end_ns - start_ns)


class NvmlError(Exception):
    """As pynvml's ``NVMLError``."""

    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 6: "Not Found", 9: "Driver Not Loaded"}.get(value, str(value)))
        self.value = value


NOT_SUPPORTED, NOT_FOUND = 3, 6
_METRICS = {
    "SM_UTIL": (2, "sm", 100), "SM_OCCUPANCY": (3, "occupancy", 100), "ANY_TENSOR_UTIL": (5, "tensor", 100),
    "HMMA_TENSOR_UTIL": (7, "tensor", 100), "DRAM_BW_UTIL": (10, "dram", 100), "FP64_UTIL": (11, "", 0),
    "FP32_UTIL": (12, "fp32", 100), "FP16_UTIL": (13, "fp16", 100), "GRAPHICS_UTIL": (1, "busy", 100),
    "PCIE_TX_PER_SEC": (20, "pcie_out", 1 / 2**20), "PCIE_RX_PER_SEC": (21, "pcie_in", 1 / 2**20),
    "NVLINK_TOTAL_RX_PER_SEC": (60, "nvlink", 1 / 2**20), "NVLINK_TOTAL_TX_PER_SEC": (61, "nvlink", 1 / 2**20),
}  # fmt: skip


@dataclass
class _Sample:
    at_ns: int = 0


class _MetricsRequest:
    """As ``c_nvmlGpmMetricsGet_t``."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1 = self.sample2 = _Sample()
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(333)]


class SimulatedNvml:
    """Stands in for the module ``pynvml``; ``now_ns`` says which time it is.

    Args:
        job: what is watched, and how.
        gpus: all devices of the machine.
        pids: the job's process on each device that it uses, by the device's number.
    """

    NVMLError = NvmlError
    NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND = 0, NOT_SUPPORTED, NOT_FOUND
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = _MetricsRequest

    def __init__(self, job: Job, gpus: list[Gpu], pids: dict[int, int]) -> None:
        self.now_ns = 0
        self._job = job
        # A container's own process ids are not the driver's.
        self._pids = {gpu: pid + (100_000 if job.watch.host_ids else 0) for gpu, pid in pids.items()}
        self._gpus = sorted(gpus, key=lambda gpu: gpu.index)
        ranks = dict(zip(sorted(pids), range(job.ranks), strict=True))
        self._ranks = ranks
        self._clocks = [
            job.clocks[ranks[gpu.index]] if job.clocks and gpu.index in ranks else Clocks() for gpu in self._gpus
        ]
        self._activity = [Activity(gpu, job, clocks) for gpu, clocks in zip(self._gpus, self._clocks, strict=True)]
        drawn = random.Random(job.seed)
        self._joules = drawn.uniform(1e6, 1e8)
        self._memory = drawn.uniform(0.3, 0.97)  # the allocator keeps what it once had
        self._celsius = drawn.uniform(48, 80)
        self._mig = job.watch.device == "mig"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_GPM_METRIC_") and name[16:] in _METRICS:
            return _METRICS[name[16:]][0]
        raise AttributeError(name)

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self._gpus[index]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.90.07"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12040

    def nvmlDeviceGetName(self, gpu: Gpu) -> str:
        return gpu.model.name

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return f"GPU-{gpu.index:08x}-0000-0000-0000-000000000000"

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> tuple[int, ...]:
        return tuple(int(part) for part in gpu.model.capability.split("."))

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        if gpu.model.capability == "8.6":
            raise NvmlError(NOT_SUPPORTED)
        return [1, 1] if self._mig else [0, 0]

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> SimpleNamespace:
        if self._mig:
            raise NvmlError(NOT_SUPPORTED)
        window = gpu.model.window_ns
        end = self.now_ns // window * window
        busy = self._mean(gpu, "busy", end - window, end)
        memory = self._mean(gpu, "dram", end - window, end) * self._job.unsure.memory_factor
        return SimpleNamespace(gpu=round(100 * busy), memory=round(100 * min(memory, busy, 1.0)))

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> SimpleNamespace:
        total = gpu.model.memory_bytes
        step = self._job.steps[self._ranks[gpu.index]] if gpu.index in self._ranks else None
        used = 0.01 if step is None else 0.985 if step.churn is not None else self._memory
        return SimpleNamespace(total=total, used=int(total * used), free=int(total * (1 - used)))

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
        end = self.now_ns // (100 * MS) * (100 * MS)
        return round(1000 * self._mean(gpu, "watts", end - gpu.model.power_ns, end))

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Gpu) -> int:
        end = self.now_ns // (20 * MS) * (20 * MS)
        since = end + 2 * S
        return round(1000 * (self._joules + self._mean(gpu, "watts", -2 * S, end) * since / S)) if since else 0

    def nvmlDeviceGetClockInfo(self, gpu: Gpu, kind: int) -> int:
        if kind == self.NVML_CLOCK_MEM:
            return 2619 if gpu.model.limit_w == 700 else 1512
        clocks = self._clocks[gpu.index]
        busy = self._mean(gpu, "busy", self.now_ns - 50 * MS, self.now_ns) > 0.05
        speed = (clocks.speed if busy else 1.0) * self._power_cap(gpu)
        return round(gpu.model.clock_hz * speed / 15e6) * 15

    def nvmlDeviceGetMaxClockInfo(self, gpu: Gpu, kind: int) -> int:
        return round((2619e6 if kind == self.NVML_CLOCK_MEM else gpu.model.clock_hz) / 1e6)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu) -> int:
        return round(gpu.model.limit_w * 1000)

    def nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int) -> int:
        return round(self._clocks[gpu.index].celsius or self._celsius)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: Gpu) -> int:
        return gpu.model.pcie_generation

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: Gpu) -> int:
        return gpu.model.pcie_generation

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: Gpu) -> int:
        return 16

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: Gpu) -> int:
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, gpu: Gpu) -> int:
        return 0

    def nvmlDeviceGetPcieThroughput(self, gpu: Gpu, direction: int) -> int:
        """Over 20 ms, for which the call blocks."""
        name = "pcie_in" if direction == self.NVML_PCIE_UTIL_RX_BYTES else "pcie_out"
        moved = self._mean(gpu, name, self.now_ns, self.now_ns + 20 * MS)
        return round((moved + _FLOOR_BYTES / 4) / 1e3)

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        """Counters of what all links carried, in KiB since the driver was loaded."""
        seen = gpu.model.links and self._job.unsure.counts_links
        since = self.now_ns + 2 * S
        carried = self._mean(gpu, "nvlink", -2 * S, self.now_ns) * since / S if since else 0.0
        value = SimpleNamespace(ullVal=int((self._joules + carried) / 1024))
        return [SimpleNamespace(nvmlReturn=0 if seen else NOT_SUPPORTED, value=value) for _ in fields]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu) -> int:
        if self._mean(gpu, "busy", self.now_ns - 100 * MS, self.now_ns) < 0.01:
            return 0x1
        return self._clocks[gpu.index].reasons | (0x4 if self._power_cap(gpu) < 1 else 0)

    def nvmlDeviceGetViolationStatus(self, gpu: Gpu, policy: int) -> SimpleNamespace:
        reasons = self._clocks[gpu.index].reasons
        heat, power = bool(reasons & 0x60), bool(reasons & 0x80) or self._power_cap(gpu) < 1
        held = heat if policy == self.NVML_PERF_POLICY_THERMAL else power
        return SimpleNamespace(violationTime=(self.now_ns + 2 * S) if held else 0, referenceTime=self.now_ns // 1000)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: Gpu) -> list[SimpleNamespace]:
        total = gpu.model.memory_bytes
        found = [SimpleNamespace(pid=991_000 + gpu.index, usedGpuMemory=int(total * 0.2))] * self._shared(gpu)
        if gpu.index in self._pids:
            found.append(SimpleNamespace(pid=self._pids[gpu.index], usedGpuMemory=int(total * self._memory * 0.97)))
        return found

    def nvmlDeviceGetProcessUtilization(self, gpu: Gpu, since_us: int) -> list[SimpleNamespace]:
        if self._mig:
            raise NvmlError(NOT_SUPPORTED)
        start = max(self.now_ns - S, -S)
        part = gpu.neighbour
        both = self._mean(gpu, "busy", start, self.now_ns)
        foreign = min(part, both * part / (1 + part) + max(0.0, part - both))
        stamp = (self.now_ns + 5 * S) // 1000
        shares = [(991_000 + gpu.index, foreign)] * self._shared(gpu)
        if gpu.index in self._pids:
            shares.append((self._pids[gpu.index], max(0.0, both - foreign)))
        found = [SimpleNamespace(pid=pid, smUtil=round(100 * one), timeStamp=stamp) for pid, one in shares if one > 0]
        if not found:
            raise NvmlError(NOT_FOUND)
        return found

    def nvmlGpmQueryDeviceSupport(self, gpu: Gpu) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(gpu.model.gpm and self._job.watch.gpm and not self._mig))

    def nvmlGpmSampleAlloc(self) -> _Sample:
        return _Sample()

    def nvmlGpmSampleGet(self, gpu: Gpu, sample: _Sample) -> _Sample:
        sample.at_ns = self.now_ns
        sample.gpu = gpu  # type: ignore[attr-defined]
        return sample

    def nvmlGpmSampleFree(self, sample: _Sample) -> None: ...

    def nvmlGpmMetricsGet(self, request: _MetricsRequest) -> _MetricsRequest:
        first, second = request.sample1.at_ns, request.sample2.at_ns
        gpu = request.sample2.gpu  # type: ignore[attr-defined]
        names = {number: (name, unit) for number, name, unit in _METRICS.values()}
        for metric in request.metrics[: request.numMetrics]:
            if second - first < _GPM_LEAST_NS or metric.metricId not in names:
                metric.nvmlReturn = NOT_SUPPORTED
                continue
            name, unit = names[metric.metricId]
            value = self._mean(gpu, name, first, second) if name else 0.0
            metric.nvmlReturn = 0
            metric.value = (value + (_FLOOR_BYTES if name.startswith("pcie") else 0.0)) * unit
        return request

    def _mean(self, gpu: Gpu, name: str, start_ns: int, end_ns: int) -> float:
        return self._activity[gpu.index].mean(name, start_ns, end_ns)

    def _power_cap(self, gpu: Gpu) -> float:
        """By what the clock is lowered just now to stay below the power limit."""
        wanted = self._mean(gpu, "wanted", self.now_ns - 100 * MS, self.now_ns)
        idle, limit = gpu.model.idle_w, gpu.model.limit_w
        if wanted <= limit:
            return 1.0
        return float(((limit - idle) / (wanted - idle)) ** (1 / _POWER_OF_CLOCK))

    def _shared(self, gpu: Gpu) -> int:
        return int(gpu.neighbour > 0)
