"""The only door to NVML: what a driver or device cannot say becomes None, with the reason kept once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from types import ModuleType
from typing import Any

from perfdoctor.recording.clock import NS_PER_S, now_ns

_LARGEST_CONSTANT = 1 << 16  # what is larger is a time or a handle, and no constant of NVML's
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
        spent_ns: time that calls have taken so far.
    """

    def __init__(self) -> None:
        self.spent_ns = 0
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

    def query_quietly(self, device: str, function: str, *arguments: Any) -> Any:
        """As ``query``, for what many devices do not have: that they refuse is not kept."""
        answer = self.query(device, function, *arguments)
        self.unsupported.pop(function, None)
        return answer

    def does(self, device: str, function: str, *arguments: Any) -> bool:
        """As ``query``, for functions that answer nothing: whether it was done."""
        return self._call(device, function, arguments)[1] is None

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
        start_ns = now_ns()
        try:
            return found(*arguments), None
        except self._module.NVMLError as error:
            if error.value in self._lasting():
                self._give_up(call, str(error))
            return None, int(error.value)
        finally:
            self.spent_ns += now_ns() - start_ns

    def _give_up(self, call: tuple[str, str, tuple[Any, ...]], reason: str) -> None:
        self._given_up.add(call)
        self.unsupported.setdefault(call[1], reason)

    def _lasting(self) -> tuple[int | None, ...]:
        return tuple(self.constant(f"NVML_ERROR_{name}") for name in _LASTING)


@dataclass(frozen=True)
class NvmlDevice:
    """Somebody whom NVML is asked about: a device, or an instance of one that is partitioned.

    Attributes:
        nvml: the opened library.
        subject: of its readings, e.g. ``gpu:0``.
        handle: its NVML handle; None for one that must not be asked.
    """

    nvml: Nvml
    subject: str
    handle: Any

    def ask(self, function: str, *arguments: Any) -> Any:
        """What NVML says of it."""
        return self.nvml.query(self.subject, function, self.handle, *arguments)

    def ask_quietly(self, function: str, *arguments: Any) -> Any:
        """The same, of what many devices do not have."""
        return self.nvml.query_quietly(self.subject, function, self.handle, *arguments)

    def ask_first(self, *functions: str) -> Any:
        """What the first of several functions says that says anything; newer names come first."""
        return self.nvml.first(self.subject, functions, self.handle)

    def samples(self, function: str, *arguments: Any) -> list[Any] | None:
        """Samples of it: an empty list where there are no new ones."""
        return self.nvml.samples(self.subject, function, self.handle, *arguments)


MIB = 1 << 20

# Name of the reading, name of the metric in pynvml, and what one of its units is worth. Where a pair of samples has no
# value for the first, it has none at all: bytes then read 0.
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
# Of an instance of a partitioned GPU this takes the place of the utilization that NVML has of whole GPUs only. They are
# the same quantity (NVIDIA/DCGM issue 64).
GPM_BUSY = ("busy_fraction", "GRAPHICS_UTIL", 0.01)


# Two samples that are less apart give no ratios, and bytes of 0 (NVML's documentation of GPM; measured on an H100 by
# Hypersonic-cpu/gpu-metrics-collection: 97 % of the pairs are valid at 10 Hz, 55 % at 20 Hz).
GPM_SHORTEST_NS = NS_PER_S // 10


class Gpm:
    """Takes GPM samples of one device and turns each two neighbours into metrics.

    Args:
        device: the device.
        instance: id of the GPU instance that is looked at, of a device that is partitioned (MIG).
    """

    def __init__(self, device: NvmlDevice, instance: int | None = None) -> None:
        self._nvml, self._subject = device.nvml, device.subject
        self._device = device
        self._instance = instance
        self._metrics = GPM_METRICS if instance is None else (*GPM_METRICS, GPM_BUSY)
        self._samples: list[Any] = []
        self._taken_ns: int | None = None
        self._request: Any = None
        support = None if device.handle is None else device.ask("nvmlGpmQueryDeviceSupport")
        if support is not None and support.isSupportedDevice:
            taken = (self._nvml.query(self._subject, "nvmlGpmSampleAlloc") for _ in range(2))
            self._samples = [sample for sample in taken if sample is not None]
        if self.supported and self._take(self._samples[0]) is None:  # the device has it, and keeps it to administrators
            self.close()

    @property
    def supported(self) -> bool:
        """Whether this device has GPM, and lets us have it."""
        return len(self._samples) == 2

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Names and values of what happened since the last sample; nothing at the first, or too soon after the last."""
        begun_ns = now_ns()
        if not self.supported or (self._taken_ns is not None and begun_ns - self._taken_ns < GPM_SHORTEST_NS):
            return
        previous, current = self._samples
        if self._take(current) is None:
            return
        self._samples = [current, previous]
        if self._taken_ns is not None:
            yield from self._compare(previous, current)
        self._taken_ns = begun_ns

    def close(self) -> None:
        """Gives the samples back."""
        for sample in self._samples:
            self._nvml.query(self._subject, "nvmlGpmSampleFree", sample)
        self._samples = []

    def _take(self, sample: Any) -> Any:
        if self._instance is None:
            return self._device.ask("nvmlGpmSampleGet", sample)
        return self._device.ask("nvmlGpmMigSampleGet", self._instance, sample)

    def _compare(self, previous: Any, current: Any) -> Iterator[tuple[str, float]]:
        request = self._request = self._request or self._new_request()
        if request is None:
            return
        request.sample1, request.sample2 = previous, current
        if self._nvml.query(self._subject, "nvmlGpmMetricsGet", request) is None:
            return
        said = request.metrics[: len(self._metrics)]
        if not _is_known(said[0]):  # the first pairs after a start, and where somebody else samples too
            return
        for (name, _, worth), metric in zip(self._metrics, said, strict=True):
            if _is_known(metric):
                yield name, metric.value * worth

    def _new_request(self) -> Any:
        structure = self._nvml.constant("c_nvmlGpmMetricsGet_t")
        if structure is None:
            return None
        request = structure()
        request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        request.numMetrics = len(self._metrics)
        for index, (_, metric, _) in enumerate(self._metrics):
            request.metrics[index].metricId = self._nvml.constant(f"NVML_GPM_METRIC_{metric}")
        return request


def _is_known(metric: Any) -> bool:
    return metric.nvmlReturn == 0 and isfinite(metric.value)


def mean_use(samples: Iterable[Any]) -> dict[int, float]:
    """Mean fraction of the multiprocessors' time by process id, from NVML's samples in percent."""
    found: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100:  # Larger values stand for "not available".
            found.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(percents) / len(percents) / 100 for pid, percents in found.items()}
