"""AMD's GPUs as their kernel driver shows them in /sys, for want of ROCm's package.

Everybody may read these files, in containers too. Names and units are the kernel's (Documentation/gpu/amdgpu,
kfd_topology.c and kfd_process.c of amdkfd); not yet seen on a device. The link to the host is left out: boards have a
bridge of their own, and the files tell of what lies behind it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from perfdoctor.probes.readers.gpus import Device, Users, tell_apart, users_readings
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

NOT_SHOWN = "The kernel shows no GPU of AMD's that computes."
_NVIDIA = "proc/driver/nvidia/version"
_COMPUTES = "sys/class/kfd/kfd"

# Reading, the device's files of which the first is taken that can be read, and what one unit of it is worth.
_FAST = (
    ("busy_fraction", ("gpu_busy_percent",), 0.01),
    ("memory_busy_fraction", ("mem_busy_percent",), 0.01),
    ("memory_used_bytes", ("mem_info_vram_used",), 1),
    ("memory_total_bytes", ("mem_info_vram_total",), 1),
    ("power_watts", ("hwmon/*/power1_average", "hwmon/*/power1_input"), 1e-6),
    ("sm_clock_hertz", ("hwmon/*/freq1_input",), 1),
    ("memory_clock_hertz", ("hwmon/*/freq2_input",), 1),
    ("temperature_celsius", ("hwmon/*/temp2_input", "hwmon/*/temp1_input"), 1e-3),
)
_SLOW = (
    ("power_limit_watts", ("hwmon/*/power1_cap",), 1e-6),
    ("power_limit_default_watts", ("hwmon/*/power1_cap_default",), 1e-6),
    ("pcie_replays_total", ("pcie_replay_count",), 1),
)
_CLOCKS = "pp_dpm_sclk"  # a line for each level: "1: 2100Mhz *"


class AmdKernelDriver:
    """The GPUs that amdkfd computes on.

    Args:
        root: where /proc and /sys are.

    Attributes:
        spent_ns: time that reading their files has taken so far.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.spent_ns = 0
        self.root = root
        self._found: dict[Path, set[str]] = {}

    def open(self) -> str | None:
        """Finds the devices; returns the reason if there are none."""
        if not (self.root / _NVIDIA).exists():  # beside those of NVIDIA's, one of AMD's is there to display
            self._found = self._find()
        return None if self._found else NOT_SHOWN

    def devices(self) -> list[Device]:
        """All devices that say how busy they are, in the order in which ROCm numbers them."""
        return [
            AmdKernelDevice(self, index, folder, frozenset(ids))
            for index, (folder, ids) in enumerate(self._found.items())
        ]

    def missing(self) -> Iterator[Unavailable]:
        """What is not there is not there: nothing is refused."""
        return iter(())

    def close(self) -> None:
        """Nothing was opened."""

    def text(self, path: Path) -> str:
        """What a file says; "" where there is none, or the driver does not answer."""
        start_ns = now_ns()
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""
        finally:
            self.spent_ns += now_ns() - start_ns

    def _find(self) -> dict[Path, set[str]]:
        """Folders of devices on the bus, with the ids under which amdkfd knows each of them, or its partitions."""
        found = defaultdict(set)
        nodes = (self.root / _COMPUTES / "topology/nodes").glob("*")
        for node in sorted(nodes, key=lambda node: int(node.name)):
            number = self.text(node / "gpu_id")
            lines = self.text(node / "properties").splitlines()
            properties = dict(line.split() for line in lines if len(line.split()) == 2)
            if number in ("", "0") or "location_id" not in properties:  # a CPU, or not ours to see
                continue
            folder = self.root / "sys/bus/pci/devices" / _address(properties)
            if self.text(folder / "gpu_busy_percent"):
                found[folder].add(number)
        return dict(found)


class AmdKernelDevice:
    """One GPU.

    Args:
        driver: reads its files.
        index: its number.
        folder: on the bus.
        ids: what amdkfd calls it, or its partitions.
    """

    def __init__(self, driver: AmdKernelDriver, index: int, folder: Path, ids: frozenset[str]) -> None:
        self.subject = f"gpu:{index}"
        self.users = Users(None, None)
        self._driver, self._folder, self._ids = driver, folder, ids

    def facts(self) -> Iterator[Sample]:
        """What the device is."""
        values = {
            "name": self._driver.text(self._folder / "product_name"),
            "uuid": self._driver.text(self._folder / "unique_id"),
            "pci_address": self._folder.name,
            "gpm": "no",
        }
        for name, value in values.items():
            if value:
                yield Fact(now_ns(), "gpu", self.subject, name, value)

    def fast(self) -> Iterator[Sample]:
        """What changes all the time."""
        yield from self._levels(_FAST)

    def slow(self) -> Iterator[Sample]:
        """What changes rarely."""
        yield from self._levels(_SLOW)
        clocks = re.findall(r"(\d+)Mhz", self._driver.text(self._folder / _CLOCKS), re.IGNORECASE)
        if clocks:
            yield self._reading("sm_clock_max_hertz", max(map(int, clocks)) * 1e6)

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        """Whose processes have queues on the device, and their memory; the kernel does not say what each uses of it."""
        memory: dict[int, int | None] = {}
        for process in (self._driver.root / _COMPUTES / "proc").glob("[0-9]*"):
            queues = {self._driver.text(queue) for queue in process.glob("queues/*/gpuid")}
            if own := queues & self._ids:
                used = [self._driver.text(process / f"vram_{number}") for number in own]
                memory[int(process.name)] = sum(map(int, used)) if all(map(str.isdigit, used)) else None
        self.users = tell_apart(memory, job, all_visible)
        yield from users_readings(now_ns(), self.subject, self.users, None)

    def close(self) -> None:
        """Nothing was lent."""

    def _levels(self, levels: Iterable[tuple[str, tuple[str, ...], float]]) -> Iterator[Reading]:
        for name, files, worth in levels:
            said = (self._driver.text(path) for file in files for path in self._folder.glob(file))
            value = next((one for one in said if one.isdigit()), None)
            if value is not None:
                yield self._reading(name, int(value) * worth)

    def _reading(self, name: str, value: float) -> Reading:
        return Reading(now_ns(), "gpu", self.subject, name, value)


def _address(properties: Mapping[str, str]) -> str:
    """Where a node of amdkfd's topology is on the bus, ``0000:c1:00.0`` for instance."""
    location, domain = int(properties["location_id"]), int(properties.get("domain", "0"))
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
