"""NUMA nodes: which cores are near which memory and which devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.schema import Fact, core_list, core_text

_NODES = "sys/devices/system/node"


class Nodes:
    """The nodes of this host. Where there is one only, or the kernel shows none, nothing is far from anything.

    Args:
        root: where /sys is.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._cores: dict[int, tuple[int, ...]] = {}
        self._distances: dict[int, str] = {}
        for folder in sorted((root / _NODES).glob("node[0-9]*")):
            try:
                node = int(folder.name.removeprefix("node"))
                self._cores[node] = core_list((folder / "cpulist").read_text())
                self._distances[node] = (folder / "distance").read_text().strip()
            except (OSError, ValueError):
                continue
        self._of = {core: node for node, cores in self._cores.items() for core in cores}

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self._cores) > 1

    def of(self, core: int | None) -> int | None:
        """The node of a core; None if unknown."""
        return None if core is None else self._of.get(core)

    def facts(self, time_ns: int) -> Iterator[Fact]:
        """The cores of each node, and how far it is from each, itself included (10), where there are several."""
        if not self.several:
            return
        for node, cores in self._cores.items():
            yield Fact(time_ns, "cpu", f"node:{node}", "cores", core_text(cores))
            yield Fact(time_ns, "cpu", f"node:{node}", "distances", self._distances.get(node, ""))


def node_of_device(address: str, root: Path = Path("/")) -> int | None:
    """The node that a PCI device is attached to; None where the kernel does not know.

    Args:
        address: its folder in /sys/bus/pci/devices.
        root: where /sys is.
    """
    try:
        node = int((root / "sys/bus/pci/devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
