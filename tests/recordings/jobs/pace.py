"""What the jobs of the corpus share: their state, their pace, a device, a trace on request, text and pictures."""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples" / "gpu"))
from asked import DEVICE, LOOKS, RequestedTrace

COUNTER = struct.Struct("qq")
_file = os.environ.get("EXAMPLE_PROGRESS")
_counter = None
if _file and os.environ.get("RANK", "0") == "0":
    with open(_file, "r+b") as _opened:
        _counter = mmap.mmap(_opened.fileno(), 0)
_steps = 0
_trace = None
if LOOKS in os.environ:
    _trace = RequestedTrace(Path(os.environ[LOOKS]), int(os.environ.get("RANK", "0")), (2, 8), 0.4)


def bottleneck() -> bool:
    """Whether the job is to run with its bottleneck, and not fixed."""
    return "fixed" not in sys.argv[1:]


def step() -> None:
    """Counts one step of the optimizer."""
    global _steps
    _steps += 1
    if _counter is not None:
        COUNTER.pack_into(_counter, 0, _steps, time.monotonic_ns())
    if _trace is not None:
        _trace.step_ended()


def device():
    """The device that a GPU job trains on."""
    import torch

    return torch.device(os.environ.get(DEVICE, "cuda"))


def tiny() -> bool:
    """Whether a GPU job is only tried on a CPU."""
    return os.environ.get(DEVICE) == "cpu"


def sources() -> str:
    """The sources of Python's standard library, some megabytes of real text."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def photographs():
    """Two photographs, as uint8 arrays of 427 x 640 x 3."""
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


def digits():
    """Handwritten digits as float32 tensor (1797, 64), and their labels."""
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)


def under_torchrun(ranks: int = 2) -> None:
    """Starts the running script again as so many ranks, unless it is one of them already."""
    if "RANK" not in os.environ:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        os.execve(sys.executable, [sys.executable, *launcher, *sys.argv], environment)
