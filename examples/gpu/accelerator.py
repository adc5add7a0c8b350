"""What the GPU examples share: the device, sizes that suit it, and being looked at from inside when the session asks.

``PERFDOCTOR_EXAMPLE_DEVICE`` chooses the device; ``cpu`` makes everything tiny, to try the scripts without a GPU.
"""

import contextlib
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
from asked import DEVICE, LOOKS, SPEED, RequestedTrace

Batch = TypeVar("Batch")

# Sizes in the examples are for this speed, that of a data-centre GPU in TF32.
_USUAL_SPEED = 256.0
_TRACED_STEPS = (1, 3)
_TRACED_S = 0.5


def why_none() -> str | None:
    """Why the GPU examples cannot run here, or None if they can."""
    if os.environ.get(DEVICE):
        return None
    if not hasattr(torch, "accelerator"):
        return "needs torch.accelerator (torch 2.6)"
    return None if torch.accelerator.is_available() else "needs an accelerator, and torch sees none here"


@functools.cache
def device() -> torch.device:
    """The device that the job trains on; ends the job with the reason if there is none."""
    reason = why_none()
    if reason:
        sys.exit(f"{Path(sys.argv[0]).parent.name}: {reason}; {DEVICE}=cpu tries the script without one")
    name = os.environ.get(DEVICE)
    found = torch.device(name) if name else torch.accelerator.current_accelerator()
    assert found is not None
    if found.type != "cpu":
        torch.accelerator.set_device_index(found.index or 0)
    return torch.device(found.type, found.index or 0) if found.type != "cpu" else found


def on_cpu() -> bool:
    """Whether this is only a try, without a GPU."""
    return device().type == "cpu"


def half() -> torch.dtype:
    """The 16 bit type that the device's matrix units multiply."""
    native = device().type != "cuda" or torch.cuda.get_device_capability(device()) >= (8, 0)
    return torch.bfloat16 if native else torch.float16


def synchronize() -> None:
    """Waits for all work on the device."""
    if not on_cpu():
        torch.accelerator.synchronize()


@functools.cache
def speed() -> float:
    """Teraflops of a float32 matrix product, in TF32 where the device has it."""
    known = os.environ.get(SPEED)
    if known:
        return float(known)
    if on_cpu():
        return 0.0
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    matrix = torch.randn(4096, 4096, device=device())
    best = math.inf
    for _ in range(8):  # the first loads the library
        synchronize()
        begin = time.perf_counter()
        matrix @ matrix
        synchronize()
        best = min(best, time.perf_counter() - begin)
    torch.set_float32_matmul_precision(precision)
    return float(2 * 4096**3 / best / 1e12)


def sized(usual: int, tiny: int = 2) -> int:
    """A batch size for this device.

    Args:
        usual: for a data-centre GPU of today; halved or doubled as often as this one is slower or faster.
        tiny: on a CPU, and at least.
    """
    if on_cpu():
        return tiny
    return max(tiny, int(usual * 2.0 ** round(math.log2(speed() / _USUAL_SPEED))))


def memory_bytes() -> int:
    """What the device's memory holds."""
    if on_cpu():
        return 1 << 26
    return int(torch.get_device_module(device()).get_device_properties(device()).total_memory)


def graphed(work: Callable[[], object]) -> Callable[[], object]:
    """Captures work whose tensors stay where they are in a CUDA graph; where there are none, gives it back as it is.

    Gradients are added up in the tensors that are there now, so ``zero_grad(set_to_none=False)`` belongs to it.
    """
    if device().type != "cuda":
        return work
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def steps(run: common.Run, batches: Iterable[Batch], lead: int = 1) -> Iterator[Batch]:
    """``run.steps(batches)``, looked at from inside when the session asks for it."""
    looks = _Looks(Path(os.environ[LOOKS]), run.rank) if LOOKS in os.environ else None
    for batch in run.steps(batches, lead):
        with looks.around() if looks is not None else contextlib.nullcontext():
            yield batch
        if looks is not None:
            looks.step_ended()


class _Looks:
    """Traces some steps when a file ``trace`` is there, and diagnoses from inside when ``inside`` is."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._inside: Any = None
        self._trace = RequestedTrace(folder, rank, _TRACED_STEPS, _TRACED_S, self._count)

    def around(self) -> Any:
        """The context of one step."""
        if self._inside is None and (self._folder / "inside").exists():
            from perfdoctor import diagnose

            self._inside = diagnose(
                report=None, json=self._folder / "inside.json", recording=self._folder / "inside.perfdoctor"
            )
        return self._inside or contextlib.nullcontext()

    def step_ended(self) -> None:
        self._trace.step_ended()

    def _count(self) -> None:
        (self._folder / f"torch{self._rank}.json").write_text(json.dumps(counters()))


def counters() -> dict[str, float | str]:
    """What torch itself says of the device now; where it cannot, why."""
    if device().type != "cuda":
        return {"unavailable": f"torch has no counters for {device().type}"}
    found: dict[str, float | str] = {
        name: float(torch.cuda.memory_stats()[name])
        for name in ("reserved_bytes.all.current", "allocated_bytes.all.peak", "num_alloc_retries", "num_device_alloc")
        if name in torch.cuda.memory_stats()
    }
    for name in ("utilization", "memory_usage", "power_draw", "temperature", "clock_rate"):
        try:
            found[name] = float(getattr(torch.cuda, name)())
        except (ImportError, RuntimeError, AttributeError) as problem:
            found[f"{name} unavailable"] = f"{type(problem).__name__}: {problem}"[:200]
    free, total = torch.cuda.mem_get_info()
    return {**found, "used_bytes": float(total - free)}
