"""What an NVIDIA GPU sends and receives over NVLink, by NVML's counters: for GPUs without performance monitoring (GPM).

They count from when the driver was loaded, and all links of a GPU together where the link is given as ``UINT_MAX``
(nvml.h). Not yet seen on a device; a driver may keep them to administrators, as it does older counters of the links
(github.com/gpuopenanalytics/pynvml/issues/19).
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.probes.readers.nvml import NvmlDevice
from perfdoctor.recording.clock import NS_PER_S, now_ns

_ALL_LINKS = 0xFFFFFFFF  # the scope of a field: UINT_MAX sums over all links (nvml.h)
# Counters of what is sent and received, and how many bytes a count is: those of the data alone, and newer ones of GPUs
# with NVLink 5.
_COUNTERS = (
    (("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"), 1024),
    (("NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES", "NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES"), 1),
)
_READINGS = ("nvlink_sent_bytes_per_second", "nvlink_received_bytes_per_second")


class NvLinkRates:
    """Asks one device.

    Args:
        device: the device.
    """

    def __init__(self, device: NvmlDevice) -> None:
        self._device = device
        self._counters = [(fields, worth) for names, worth in _COUNTERS if (fields := self._known(names)) is not None]
        self._last: tuple[int, list[int]] | None = None

    def readings(self) -> Iterator[tuple[str, float]]:
        """Bytes per second since the last call; nothing at the first, and without such counters."""
        while self._counters:
            fields, worth = self._counters[0]
            counts = self._ask(fields)
            if counts is not None:
                yield from self._rates(now_ns(), [count * worth for count in counts])
                return
            del self._counters[0]

    def _rates(self, time_ns: int, counts: list[int]) -> Iterator[tuple[str, float]]:
        last, self._last = self._last, (time_ns, counts)
        if last is None or time_ns <= last[0]:
            return
        for name, before, after in zip(_READINGS, last[1], counts, strict=True):
            if after >= before:  # else the driver was loaded anew
                yield name, (after - before) * NS_PER_S / (time_ns - last[0])

    def _known(self, names: tuple[str, ...]) -> list[tuple[int, int]] | None:
        """Fields of these names for all links; None where this version of nvidia-ml-py has none."""
        fields = [self._device.nvml.constant(name) for name in names]
        return None if None in fields else [(field, _ALL_LINKS) for field in fields]

    def _ask(self, fields: list[tuple[int, int]]) -> list[int] | None:
        values = self._device.ask_quietly("nvmlDeviceGetFieldValues", fields)
        if values is None or any(value.nvmlReturn != 0 for value in values):
            return None
        return [int(value.value.ullVal) for value in values]
