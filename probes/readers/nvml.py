"""The only door to NVML: what a driver or device cannot say becomes None, with the reason kept once.

GPU performance monitoring (GPM) was written against NVML's documentation, and not yet seen on a device.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any

from perfdoctor.probes import Refusal

ENABLE = "install the NVIDIA driver; in a container: docker run --gpus all, or a Kubernetes nvidia.com/gpu limit"

_LARGEST_CONSTANT = 1 << 16
_LASTING = (
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "NO_PERMISSION",
    "INVALID_ARGUMENT",
    "GPU_IS_LOST",
    "DEPRECATED",
)


class Nvml:
    """NVML through nvidia-ml-py, imported and initialised by ``open()``.

    Attributes:
        unsupported: why, by name of the function that this driver or device does not have.
    """

    def __init__(self) -> None:
        self.unsupported: dict[str, str] = {}
        self._module: ModuleType | None = None
        self._given_up: set[tuple[str, str, tuple[Any, ...]]] = set()

    def open(self) -> str | None:
        """Loads the library and connects to the driver; returns the reason if that cannot be done."""
        try:
            import pynvml
        except ImportError:
            return "The package nvidia-ml-py is not installed."
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return f"NVML cannot be used: {error}."
        self._module = pynvml
        return None

    def close(self) -> None:
        """Disconnects from the driver."""
        if self._module is not None:
            self.query("", "nvmlShutdown")
            self._module = None

    def constant(self, name: str) -> Any:
        """A constant or structure of pynvml; None where this version has none."""
        return getattr(self._module, name, None)

    def query(self, device: str, function: str, *arguments: Any) -> Any:
        """Calls a function; None where it is missing, unsupported, not permitted, or has nothing to say now.

        Args:
            device: which device is asked, ``gpu:0`` for instance: what one cannot do, another may.
            function: its name in pynvml. What can never succeed is not called a second time.
            *arguments: its arguments, a device handle first as a rule.
        """
        return self._call(device, function, arguments)[0]

    def samples(self, device: str, function: str, *arguments: Any) -> list[Any] | None:
        """As ``query``, for functions that return samples: an empty list where there are no new ones."""
        answer, error = self._call(device, function, arguments)
        if error in (self.constant("NVML_SUCCESS"), self.constant("NVML_ERROR_NOT_FOUND")) and answer is None:
            return []
        return None if answer is None else list(answer)

    def first(self, device: str, functions: tuple[str, ...], *arguments: Any) -> Any:
        """What the first of several functions says that says anything; newer names come first."""
        for tried, function in enumerate(functions):
            answer = self.query(device, function, *arguments)
            if answer is not None:
                for worse in functions[:tried]:
                    self.unsupported.pop(worse, None)
                return answer
        return None

    def _call(self, device: str, function: str, arguments: tuple[Any, ...]) -> tuple[Any, int | None]:
        """Answer, and NVML's error number; -1 for a call that was not made at all."""
        # What is asked about (a clock, a direction) may decide; handles and time stamps do not.
        about = tuple(value for value in arguments if isinstance(value, int) and value < _LARGEST_CONSTANT)
        call = (device, function, about)
        if self._module is None or call in self._given_up:
            return None, -1
        found = getattr(self._module, function, None)
        if found is None:
            self._give_up(call, "this version of nvidia-ml-py does not have it")
            return None, -1
        try:
            return found(*arguments), None
        except self._module.NVMLError as error:
            if error.value in self._lasting():
                self._give_up(call, str(error))
            return None, int(error.value)

    def _give_up(self, call: tuple[str, str, tuple[Any, ...]], reason: str) -> None:
        self._given_up.add(call)
        self.unsupported.setdefault(call[1], reason)

    def _lasting(self) -> tuple[int | None, ...]:
        return tuple(self.constant(f"NVML_ERROR_{name}") for name in _LASTING)


def why_no_gpu(root: Path, reason: str) -> Refusal:
    """Reason and remedy where NVML cannot be used, in view of what GPU drivers this machine has."""
    if (root / "proc/driver/nvidia/version").exists():
        return Refusal(reason, "reload the driver or reboot: its library and kernel module may differ in version")
    if (root / "dev/kfd").exists():
        return Refusal(
            "Only NVIDIA GPUs are read so far; this machine has the driver of AMD GPUs.",
            "rocm-smi shows them",
        )
    return Refusal(f"{reason} This machine shows no NVIDIA driver.", ENABLE)


MIB = 1 << 20

# Name of the reading, name of the metric in pynvml, and what one of its units is worth.
GPM_METRICS = (
    ("sm_active_fraction", "SM_UTIL", 0.01),
    ("sm_occupancy_fraction", "SM_OCCUPANCY", 0.01),
    ("tensor_active_fraction", "ANY_TENSOR_UTIL", 0.01),
    ("dram_bandwidth_fraction", "DRAM_BW_UTIL", 0.01),
    ("fp64_active_fraction", "FP64_UTIL", 0.01),
    ("fp32_active_fraction", "FP32_UTIL", 0.01),
    ("fp16_active_fraction", "FP16_UTIL", 0.01),
    ("pcie_received_bytes_per_second", "PCIE_RX_PER_SEC", MIB),
    ("pcie_sent_bytes_per_second", "PCIE_TX_PER_SEC", MIB),
    ("nvlink_received_bytes_per_second", "NVLINK_TOTAL_RX_PER_SEC", MIB),
    ("nvlink_sent_bytes_per_second", "NVLINK_TOTAL_TX_PER_SEC", MIB),
)


class Gpm:
    """Takes GPM samples of one device and turns each two neighbours into metrics.

    Args:
        nvml: the opened library.
        device: the device's subject, e.g. ``gpu:0``.
        handle: its NVML handle.
    """

    def __init__(self, nvml: Nvml, device: str, handle: Any) -> None:
        self._nvml = nvml
        self._device = device
        self._handle = handle
        self._samples: list[Any] = []
        self._filled = False
        self._request: Any = None
        support = nvml.query(device, "nvmlGpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            self._samples = [
                sample for _ in range(2) if (sample := nvml.query(device, "nvmlGpmSampleAlloc")) is not None
            ]

    @property
    def supported(self) -> bool:
        """Whether this device has GPM."""
        return len(self._samples) == 2

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Names and values of what happened since the last sample; nothing at the first."""
        if not self.supported:
            return
        previous, current = self._samples
        if self._nvml.query(self._device, "nvmlGpmSampleGet", self._handle, current) is None:
            return
        self._samples = [current, previous]
        if self._filled:
            yield from self._compare(previous, current)
        self._filled = True

    def close(self) -> None:
        """Gives the samples back."""
        for sample in self._samples:
            self._nvml.query(self._device, "nvmlGpmSampleFree", sample)
        self._samples = []

    def _compare(self, previous: Any, current: Any) -> Iterator[tuple[str, float]]:
        request = self._request = self._request or self._new_request()
        if request is None:
            return
        request.sample1, request.sample2 = previous, current
        if self._nvml.query(self._device, "nvmlGpmMetricsGet", request) is None:
            return
        for index, (name, _, worth) in enumerate(GPM_METRICS):
            metric = request.metrics[index]
            if metric.nvmlReturn == 0 and isfinite(metric.value):
                yield name, metric.value * worth

    def _new_request(self) -> Any:
        structure = self._nvml.constant("c_nvmlGpmMetricsGet_t")
        if structure is None:
            return None
        request = structure()
        request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        request.numMetrics = len(GPM_METRICS)
        for index, (_, metric, _) in enumerate(GPM_METRICS):
            request.metrics[index].metricId = self._nvml.constant(f"NVML_GPM_METRIC_{metric}")
        return request


# The number of the first process-id namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class Users:
    """Processes with a context on a GPU, None where that is unknown.

    Attributes:
        job: memory in bytes by process id, of the job's processes; None in it where the driver does not say.
        foreign: the same of all others.
    """

    job: Mapping[int, int | None] | None
    foreign: Mapping[int, int | None] | None


def sees_all_processes(root: Path) -> bool:
    """Whether our process ids are the driver's: we are not inside a container with ids of its own."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def tell_apart(processes: Iterable[Any], job: Iterable[int], all_visible: bool) -> Users:
    """Splits NVML's list of processes into the job's and others.

    Inside a container the driver may list ids of the host, or hide processes that are not ours. Then the
    job's are known only if every id in the list is one of its own, and others never.

    Args:
        processes: with ``pid`` and ``usedGpuMemory`` (bytes or None), as pynvml gives them.
        job: process ids of the job, as we see them.
        all_visible: what ``sees_all_processes`` says.
    """
    memory: dict[int, int | None] = {process.pid: process.usedGpuMemory for process in processes}
    own = {pid: memory[pid] for pid in memory.keys() & set(job)}
    if all_visible:
        return Users(own, {pid: used for pid, used in memory.items() if pid not in own})
    return Users(own if own and len(own) == len(memory) else None, None)


def total(memory: Mapping[int, int | None] | None) -> int | None:
    """Sum of what processes use; None if it is unknown for any of them."""
    if memory is None or None in memory.values():
        return None
    return sum(used for used in memory.values() if used is not None)


def mean_use(samples: Iterable[Any]) -> dict[int, float]:
    """Mean fraction of the multiprocessors' time by process id, from NVML's samples in percent."""
    found: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100:  # Larger values stand for "not available".
            found.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(percents) / len(percents) / 100 for pid, percents in found.items()}
