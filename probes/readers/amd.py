"""AMD's GPUs through amdsmi, the Python package of ROCm.

Written against the interface of ROCm/amdsmi (py-interface/amdsmi_interface.py, October 2024); not yet seen on a
device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from perfdoctor.probes.readers.gpus import Device, Users, tell_apart, users_readings
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Fact, Reading, Sample, Unavailable

NOT_INSTALLED = "The Python package amdsmi, which reads AMD's GPUs, cannot be imported."

# Reading, function, name of the constant it is asked about, keys of its answer of which the first is taken that says
# anything, and what one unit of it is worth.
_FAST = (
    ("busy_fraction", "amdsmi_get_gpu_activity", "", ("gfx_activity",), 0.01),
    ("memory_busy_fraction", "amdsmi_get_gpu_activity", "", ("umc_activity",), 0.01),
    ("memory_used_bytes", "amdsmi_get_gpu_vram_usage", "", ("vram_used",), 1 << 20),
    ("memory_total_bytes", "amdsmi_get_gpu_vram_usage", "", ("vram_total",), 1 << 20),
    ("power_watts", "amdsmi_get_power_info", "", ("current_socket_power", "average_socket_power"), 1),
    ("sm_clock_hertz", "amdsmi_get_clock_info", "AmdSmiClkType.GFX", ("clk", "cur_clk"), 1e6),
    ("memory_clock_hertz", "amdsmi_get_clock_info", "AmdSmiClkType.MEM", ("clk", "cur_clk"), 1e6),
)
_SLOW = (
    ("power_limit_watts", "amdsmi_get_power_cap_info", "", ("power_cap",), 1e-6),
    ("power_limit_default_watts", "amdsmi_get_power_cap_info", "", ("default_power_cap",), 1e-6),
    ("sm_clock_max_hertz", "amdsmi_get_clock_info", "AmdSmiClkType.GFX", ("max_clk",), 1e6),
    ("pcie_width", "amdsmi_get_pcie_info", "", ("pcie_metric.pcie_width",), 1),
    ("pcie_width_max", "amdsmi_get_pcie_info", "", ("pcie_static.max_pcie_width",), 1),
    ("pcie_replays_total", "amdsmi_get_pcie_info", "", ("pcie_metric.pcie_replay_count",), 1),
)
_ENERGY = "amdsmi_get_energy_count"


class AmdDriver:
    """amdsmi, and the devices that it shows.

    Attributes:
        spent_ns: time that calls of it have taken so far.
    """

    def __init__(self) -> None:
        self.spent_ns = 0
        self._module: ModuleType | None = None
        self._refused: dict[str, str] = {}
        self._reported: set[str] = set()

    def open(self) -> str | None:
        """Loads the package and connects to the driver; returns the reason if that cannot be done."""
        try:
            import amdsmi
        except (ImportError, OSError):  # OSError: it is there, and the library that it loads is not
            return NOT_INSTALLED
        try:
            amdsmi.amdsmi_init()
        except amdsmi.AmdSmiException as error:
            return f"amdsmi cannot be used: {_said(error)}."
        self._module = amdsmi
        return None

    def devices(self) -> list[Device]:
        """All devices, none where there are none."""
        handles = self.query("amdsmi_get_processor_handles") or []
        return [AmdDevice(self, index, handle) for index, handle in enumerate(handles)]

    def missing(self) -> Iterator[Unavailable]:
        """What this driver cannot say, each once."""
        for function, reason in self._refused.items():
            if function not in self._reported:
                self._reported.add(function)
                yield Unavailable("gpu", f"amdsmi does not answer {function} here: {reason}.", "a newer GPU or driver")

    def close(self) -> None:
        """Disconnects."""
        if self._module is not None:
            self.query("amdsmi_shut_down")
            self._module = None

    def query(self, function: str, *arguments: Any) -> Any:
        """Calls a function; None where it is missing or refused, with the first reason kept.

        Args:
            function: its name in amdsmi.
            *arguments: its arguments.
        """
        found = getattr(self._module, function, None)
        if self._module is None or found is None:
            self._refused.setdefault(function, "this version does not have it")
            return None
        start_ns = now_ns()
        try:
            return found(*arguments)
        except self._module.AmdSmiException as error:
            self._refused.setdefault(function, _said(error))
            return None
        finally:
            self.spent_ns += now_ns() - start_ns

    def constant(self, name: str) -> Any:
        """A member of one of its enumerations; None where it has none of that name."""
        kind, _, member = name.partition(".")
        return getattr(getattr(self._module, kind, None), member, None)


class AmdDevice:
    """One GPU.

    Args:
        driver: the opened library.
        index: its number.
        handle: its handle in amdsmi.
    """

    def __init__(self, driver: AmdDriver, index: int, handle: Any) -> None:
        self.subject = f"gpu:{index}"
        self.users = Users(None, None)
        self._driver = driver
        self._handle = handle

    def facts(self) -> Iterator[Sample]:
        """What the device is."""
        values = {
            "name": _value(self._ask("amdsmi_get_gpu_asic_info"), "market_name"),
            "uuid": self._ask("amdsmi_get_gpu_device_uuid"),
            "pci_address": self._ask("amdsmi_get_gpu_device_bdf"),
            "gpm": "no",
        }
        for name, value in values.items():
            if value is not None:
                yield Fact(now_ns(), "gpu", self.subject, name, str(value))

    def fast(self) -> Iterator[Sample]:
        """What changes all the time."""
        yield from self._levels(_FAST)
        energy = self._ask(_ENERGY)
        counted = _number(energy, "energy_accumulator")
        unit = _number(energy, "counter_resolution")
        if counted is not None and unit is not None:
            yield self._reading("energy_joules_total", counted * unit * 1e-6)

    def slow(self) -> Iterator[Sample]:
        """What changes rarely, or costs much to ask."""
        yield from self._levels(_SLOW)

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        """Whose processes are on the device and their memory; amdsmi does not say how much of the time each uses."""
        processes = self._ask("amdsmi_get_gpu_process_list")
        self.users = Users(None, None)
        if processes is not None:
            memory = {int(process["pid"]): _memory(process) for process in processes}
            self.users = tell_apart(memory, job, all_visible)
        yield from users_readings(now_ns(), self.subject, self.users, None)

    def close(self) -> None:
        """Nothing was lent."""

    def _levels(self, levels: Iterable[tuple[str, str, str, tuple[str, ...], float]]) -> Iterator[Reading]:
        answers: dict[tuple[str, str], Any] = {}  # one call serves several readings
        for name, function, about, keys, worth in levels:
            if (function, about) not in answers:
                answers[function, about] = self._ask(function, *([self._driver.constant(about)] if about else []))
            said = (_number(answers[function, about], key) for key in keys)
            value = next((one for one in said if one is not None), None)
            if value is not None:
                yield self._reading(name, value * worth)

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._driver.query(function, self._handle, *arguments)

    def _reading(self, name: str, value: float) -> Reading:
        return Reading(now_ns(), "gpu", self.subject, name, value)


def _value(answer: Any, path: str) -> Any:
    """What stands under some keys in a row; None where there is nothing, or "N/A"."""
    for key in path.split("."):
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    return None if answer == "N/A" else answer


def _number(answer: Any, path: str) -> float | None:
    value = _value(answer, path)
    return float(value) if isinstance(value, (int, float)) else None


def _memory(process: Any) -> int | None:
    used = _number(process, "memory_usage.vram_mem")
    return None if used is None else int(used)


def _said(error: Exception) -> str:
    """The first line of what an error of amdsmi says, which may be a table."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
