"""Ports of an InfiniBand or RoCE fabric: traffic that passes the kernel's interfaces by, and errors of links.

Names and units are the kernel's (Documentation/ABI/stable/sysfs-class-infiniband): data counters count 4 bytes. What a
driver counts besides (``hw_counters``) is read where it is mlx5's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.schema import Fact, Reading

_PORTS = "sys/class/infiniband"
# Reading, files whose sum it is, and what one unit is worth.
_COUNTERS: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("received_bytes_total", ("counters/port_rcv_data",), 4),
    ("sent_bytes_total", ("counters/port_xmit_data",), 4),
    ("received_packets_total", ("counters/port_rcv_packets",), 1),
    ("sent_packets_total", ("counters/port_xmit_packets",), 1),
    ("symbol_errors_total", ("counters/symbol_error",), 1),
    ("link_downs_total", ("counters/link_downed",), 1),
    ("link_recoveries_total", ("counters/link_error_recovery",), 1),
    ("dropped_packets_total", ("counters/port_rcv_errors", "counters/port_xmit_discards"), 1),
    ("resent_packets_total", ("hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err"), 1),
)


class Fabric:
    """The ports of this host's adapters.

    Args:
        root: where /sys is.
        files: the probe's files.
    """

    def __init__(self, root: Path, files: KeptFiles) -> None:
        self._root = root
        self._files = files
        found = sorted((root / _PORTS).glob("*/ports/*"))
        self._ports = {f"fabric:{port.parts[-3]}/{port.name}": port.relative_to(root) for port in found}

    def facts(self, time_ns: int) -> Iterator[Fact]:
        """How fast each port's link is now, of which kind, and of which make its adapter."""
        for subject, port in self._ports.items():
            rate = re.match(r"([\d.]+) Gb/sec", self._text(port, "rate"))
            if rate:
                yield Fact(time_ns, "network", subject, "link_bits_per_second", str(int(float(rate[1]) * 1e9)))
            if layer := self._text(port, "link_layer"):
                yield Fact(time_ns, "network", subject, "link_layer", layer)
            if board := self._text(port, "../../board_id"):
                yield Fact(time_ns, "network", subject, "board", board)

    def readings(self, time_ns: int) -> Iterator[Reading]:
        """Whether each link is up, and its counters; those are left out that it does not have."""
        for subject, port in self._ports.items():
            if state := self._text(port, "state"):
                yield Reading(time_ns, "network", subject, "link_active", float(state.endswith("ACTIVE")))
            for name, files, worth in _COUNTERS:
                values = [value for file in files if (value := self._number(port, file)) is not None]
                if values:
                    yield Reading(time_ns, "network", subject, name, sum(values) * worth)

    def _text(self, port: Path, file: str) -> str:
        try:
            return self._files.read(f"/{port}/{file}").decode(errors="replace").strip()
        except OSError:
            return ""

    def _number(self, port: Path, file: str) -> int | None:
        text = self._text(port, file)
        return int(text) if text.isdigit() else None
