"""Devices that this machine lacks. What they show is what perfdoctor makes of such a device, and not how one behaves.

A stream keeps its own time and works beside the host; it stands at the one seam,
``perfdoctor.probes.inside.device_clock.Accelerator``. ``amdsmi`` answers as ROCm's package does. NVIDIA's driver is
``tests/targets/nvml_stand_in.c``.
"""

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

MS = 1_000_000


class Stream:
    """Work that was asked for, done one after the other.

    Attributes:
        drains: how often the host waited for all of it.
    """

    def __init__(self) -> None:
        self.end_ns = 0
        self.drains = 0
        self.made = 0
        self.capturing = False
        self.broken = ""

    def launch(self, ms: float) -> None:
        """Asks for work, and returns at once."""
        self.end_ns = max(time.monotonic_ns(), self.end_ns) + int(ms * MS)

    def event(self) -> "StreamEvent":
        self.made += 1
        return StreamEvent(self)

    def drain(self) -> None:
        self.fail_if_broken()
        self.drains += 1
        time.sleep(max(0, self.end_ns - time.monotonic_ns()) / 1e9)

    def usable(self) -> bool:
        return not self.capturing

    def fail_if_broken(self) -> None:
        if self.broken:
            raise RuntimeError(self.broken)


class StreamEvent:
    """Knows when the stream comes to it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.reached_ns = 0

    def record(self) -> None:
        self.stream.fail_if_broken()
        assert self.stream.usable()
        self.reached_ns = max(time.monotonic_ns(), self.stream.end_ns)

    def query(self) -> bool:
        assert self.stream.usable()
        return time.monotonic_ns() >= self.reached_ns

    def elapsed_time(self, other: "StreamEvent") -> float:
        return (other.reached_ns - self.reached_ns) / MS


class MarkList:
    """Takes what goes into a ring, for parts of perfdoctor that are tested by themselves.

    Attributes:
        marks: time, kind and value of each mark, in the order in which they were made.
        said: the lines of words.
    """

    def __init__(self) -> None:
        self.marks: list[tuple[int, int, int]] = []
        self.said: list[tuple[str | int | None, ...]] = []

    def marker(self, kind: int, value: int = 0) -> Callable[[int], None]:
        return lambda time_ns: self.marks.append((time_ns, kind, value))

    def say(self, *words: str | int | None) -> None:
        self.said.append(words)

    def note(self, reason: str, enable: str = "") -> None:
        self.say("note", reason, enable)

    def name(self, number: int) -> str:
        return str(number)

    def times(self, kind: int, value: int = 0) -> list[int]:
        """When marks of a kind and value were made."""
        return [time_ns for time_ns, *what in self.marks if what == [kind, value]]


def amdsmi(**answers: Any) -> ModuleType:
    """A stand-in for AMD's package with one GPU, in the structures of ROCm/amdsmi (py-interface/amdsmi_interface.py).

    Args:
        **answers: instead of its own, by function without the prefix ``amdsmi_``; a text ``error: …`` is raised.
    """
    module = ModuleType("amdsmi")

    class AmdSmiException(Exception):
        pass

    known = {
        "init": None,
        "shut_down": None,
        "get_processor_handles": ["handle"],
        "get_gpu_asic_info": {"market_name": "Instinct stand-in", "vendor_id": 0x1002},
        "get_gpu_device_uuid": "5eff74a0",
        "get_gpu_device_bdf": "0000:0c:00.0",
        "get_gpu_activity": {"gfx_activity": 93, "umc_activity": 41, "mm_activity": "N/A"},
        "get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 1024},
        "get_power_info": {"current_socket_power": "N/A", "average_socket_power": 500, "power_limit": 750},
        "get_clock_info": {"clk": 2100, "min_clk": 132, "max_clk": 2100, "clk_deep_sleep": 0},
        "get_power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
        "get_pcie_info": {
            "pcie_static": {"max_pcie_width": 16},
            "pcie_metric": {"pcie_width": 8, "pcie_replay_count": "N/A"},
        },
        "get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
        "get_gpu_process_list": [
            {"name": "python", "pid": 10, "mem": 1, "memory_usage": {"vram_mem": 4096, "gtt_mem": 0, "cpu_mem": 0}},
            {"name": "python", "pid": 20, "mem": 1, "memory_usage": {"vram_mem": "N/A", "gtt_mem": 0, "cpu_mem": 0}},
        ],
    }

    def answering(answer: Any) -> Callable[..., Any]:
        def answers_so(*arguments: Any) -> Any:
            if isinstance(answer, str) and answer.startswith("error: "):
                raise AmdSmiException(answer)
            return answer

        return answers_so

    for name, answer in {**known, **answers}.items():
        setattr(module, f"amdsmi_{name}", answering(answer))
    module.__dict__.update(AmdSmiException=AmdSmiException, AmdSmiClkType=SimpleNamespace(GFX=1, MEM=2))
    return module
