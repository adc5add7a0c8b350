"""What the jobs of the corpus share: their state, their pace, a device, a trace on request, text and pictures."""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

COUNTER = struct.Struct("qq")
LOOKS = os.environ.get("PERFDOCTOR_EXAMPLE_LOOKS")
"""A folder in which a file ``trace`` asks for a trace of some steps."""
DEVICE = "PERFDOCTOR_EXAMPLE_DEVICE"
"""Environment variable: ``cpu`` tries a GPU job without one, in a tiny size."""
_file = os.environ.get("EXAMPLE_PROGRESS")
_counter = None
if _file and os.environ.get("RANK", "0") == "0":
    with open(_file, "r+b") as _opened:
        _counter = mmap.mmap(_opened.fileno(), 0)
_steps = 0
_profiler = None
_traced_steps = 0
_last = time.monotonic()


def bottleneck() -> bool:
    """Whether the job is to run with its bottleneck, and not fixed."""
    return "fixed" not in sys.argv[1:]


def step() -> None:
    """Counts one step of the optimizer."""
    global _steps
    _steps += 1
    if _counter is not None:
        COUNTER.pack_into(_counter, 0, _steps, time.monotonic_ns())
    if LOOKS:
        _trace_on_request(Path(LOOKS))


def device():
    """The device that a GPU job trains on."""
    import torch

    return torch.device(os.environ.get(DEVICE, "cuda"))


def tiny() -> bool:
    """Whether a GPU job is only tried on a CPU."""
    return os.environ.get(DEVICE) == "cpu"


def _trace_on_request(folder: Path) -> None:
    """Traces some steps, once, when a file ``trace`` is there."""
    global _profiler, _traced_steps, _last
    import torch

    rank = os.environ.get("RANK", "0")
    new, done = folder / f"new{rank}.json.gz", folder / f"rank{rank}.json.gz"
    length, _last = time.monotonic() - _last, time.monotonic()
    if _profiler is not None:
        _profiler.step()
        _traced_steps -= 1
        if _traced_steps == 0:
            _profiler.stop()
            _profiler = None
            new.rename(done)
    elif (folder / "trace").exists() and not done.exists():
        active = max(2, min(8, int(0.4 / max(length, 1e-4))))
        _traced_steps = 2 + active
        _profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=active, repeat=1),
            on_trace_ready=lambda ready: ready.export_chrome_trace(str(new)),
        )
        _profiler.start()


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
