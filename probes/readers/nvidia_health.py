"""What is wrong with an NVIDIA GPU: links that are down or send again, memory that is being replaced, Xid errors.

Whatever a device does not have is absent: a card without NVLink, memory that is not remapped (before Ampere).
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.probes.readers.nvml import NvmlDevice

# Reading, and the counters of a link that it is the sum of.
_LINK_ERRORS = (
    ("nvlink_replays_total", ("NVML_NVLINK_ERROR_DL_REPLAY", "NVML_NVLINK_ERROR_DL_RECOVERY")),
    ("nvlink_crc_errors_total", ("NVML_NVLINK_ERROR_DL_CRC_FLIT", "NVML_NVLINK_ERROR_DL_CRC_DATA")),
)


class NvidiaHealth:
    """Asks one device.

    Args:
        device: the device.
    """

    def __init__(self, device: NvmlDevice) -> None:
        self._device, self._nvml = device, device.nvml
        self._ask = device.ask_quietly
        most = self._nvml.constant("NVML_NVLINK_MAX_LINKS") or 0
        self._links = [link for link in range(most) if self._ask("nvmlDeviceGetNvLinkState", link) is not None]
        self._xids = 0
        self._events = self._nvml.query(device.subject, "nvmlEventSetCreate")
        about = device.handle, self._nvml.constant("nvmlEventTypeXidCriticalError"), self._events
        if self._events is not None and not self._nvml.does(device.subject, "nvmlDeviceRegisterEvents", *about):
            self.close()

    def readings(self) -> Iterator[tuple[str, float]]:
        """Names and values of all that the device says of its health."""
        yield from self._read_links()
        rows = self._ask("nvmlDeviceGetRemappedRows")
        if rows is not None:
            corrected, uncorrected, pending, failed = rows
            yield "remapped_rows_total", corrected + uncorrected
            yield "row_remapping_pending", pending
            yield "row_remapping_failed", failed
        pages = self._ask("nvmlDeviceGetRetiredPagesPendingStatus")
        if pages is not None:
            yield "page_retirement_pending", pages
        yield from self._read_xids()

    def close(self) -> None:
        """Gives back what NVML lent."""
        if self._events is not None:
            self._nvml.query(self._device.subject, "nvmlEventSetFree", self._events)
            self._events = None

    def _read_links(self) -> Iterator[tuple[str, float]]:
        """How many links are up; links that lead nowhere are down for good, so only other GPUs tell which should be."""
        if not self._links:
            return
        up = [self._ask("nvmlDeviceGetNvLinkState", link) for link in self._links]
        yield "nvlinks_active", sum(bool(state) for state in up)
        for name, kinds in _LINK_ERRORS:
            counts = [
                count
                for link, state in zip(self._links, up, strict=True)
                for kind in kinds
                if state and (count := self._count(link, kind)) is not None
            ]
            if counts:
                yield name, sum(counts)

    def _count(self, link: int, kind: str) -> int | None:
        count: int | None = self._ask("nvmlDeviceGetNvLinkErrorCounter", link, self._nvml.constant(kind))
        return count

    def _read_xids(self) -> Iterator[tuple[str, float]]:
        """Numbers of the Xid errors since the last call, and how many there were in all."""
        if self._events is None:
            return
        while (event := self._nvml.query(self._device.subject, "nvmlEventSetWait_v2", self._events, 0)) is not None:
            self._xids += 1
            yield "xid", event.eventData
        yield "xid_errors_total", self._xids
