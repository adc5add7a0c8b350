"""GPU performance monitoring (GPM): what the units of a Hopper or newer GPU did between two looks.

Written against NVML's documentation; not yet seen on a device.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from perfdoctor.probes.readers.nvml import Nvml

MIB = 1 << 20

# Name of the reading, name of the metric in pynvml, and what one of its units is worth.
METRICS = (
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
        """Names and values of what happened since the last look; nothing at the first."""
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
        for index, (name, _, worth) in enumerate(METRICS):
            metric = request.metrics[index]
            if metric.nvmlReturn == 0 and isfinite(metric.value):
                yield name, metric.value * worth

    def _new_request(self) -> Any:
        structure = self._nvml.constant("c_nvmlGpmMetricsGet_t")
        if structure is None:
            return None
        request = structure()
        request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        request.numMetrics = len(METRICS)
        for index, (_, metric, _) in enumerate(METRICS):
            request.metrics[index].metricId = self._nvml.constant(f"NVML_GPM_METRIC_{metric}")
        return request
