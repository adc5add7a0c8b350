"""In which way a process can be traced that nobody prepared, and why not in another one.

The ways are tried in this order, and the first that serves is taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.gdb import find_gdb, place_line
from perfdoctor.probes.readers.permissions import rights_over
from perfdoctor.probes.readers.process import python_of, uses_torch
from perfdoctor.probes.readers.procfs import status_fields

# CPython's versions in which a pending call was tried. Before 3.10 no PyTorch has what is needed here.
GDB_OLDEST, GDB_NEWEST = (3, 10), (3, 13)
# Nsight's tools come in by these variables (docs.nvidia.com/cuda/cuda-driver-api), and only one tool may use CUPTI.
_OTHER_TOOLS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_LATER = "attach again later"


@dataclass(frozen=True, slots=True)
class Way:
    """A way into a process.

    Attributes:
        name: as recordings have it.
        place: lets the process run a line of Python; returns for how many seconds it stood still at most.
    """

    name: str
    place: Callable[[int, str], float]


_GDB = Way("gdb", place_line)

# What ``brief_trace`` says of itself.
_INSIDE = {
    "no_torch": Refusal("The process has not loaded PyTorch.", _LATER),
    "loading": Refusal("The process is still loading PyTorch.", _LATER),
    "old_torch": Refusal("This PyTorch cannot profile all threads from one of them.", "PyTorch 2.6 or newer"),
    "profiled": Refusal(
        "The script uses torch.profiler itself, so perfdoctor took no trace of its own.", "perfdoctor analyze TRACE"
    ),
    "capturing": Refusal("The process was capturing a CUDA graph.", _LATER),
    "ending": Refusal("The process ended before it was traced.", ""),
    "busy": Refusal(
        "The main thread ran no Python code for 10 s: it hangs, is in a long call, or waits for another thread.", _LATER
    ),
    "late": Refusal("The trace did not come in time.", _LATER),
}


def refused_inside(why: str, *detail: str) -> Refusal:
    """What it means that the process was left alone."""
    refusal = _INSIDE.get(why) or Refusal(f"The process was not traced: {why}.", "")
    return refusal._replace(reason=" ".join([refusal.reason, *detail]).strip())


def way_for(pid: int) -> Way | Refusal:
    """The way into a process, or why there is none."""
    try:
        return _unfit(pid) or _gdb_refusal(pid) or _GDB
    except OSError:
        return refused_inside("ending")


def _unfit(pid: int) -> Refusal | None:
    """Why a process must be left alone, whatever the way."""
    process = Path(f"/proc/{pid}")
    status = status_fields((process / "status").read_bytes())
    state, tracer = status["State"][:1], status["TracerPid"]
    if tracer != "0":
        return Refusal(f"Process {tracer} is debugging process {pid}.", _LATER)
    if state in "Tt":
        return Refusal(f"Process {pid} is stopped.", f"kill -CONT {pid}")
    if uses_torch(pid) is False:
        return refused_inside("no_torch")
    environment = os.fsdecode((process / "environ").read_bytes()).split("\0")
    tool = next((name for name in _OTHER_TOOLS for one in environment if one.startswith(f"{name}=")), None)
    if tool is not None:
        return Refusal(f"Another profiler is in process {pid} ({tool} is set).", "run the job without it")
    return None


def _gdb_refusal(pid: int) -> Refusal | None:
    rights = rights_over(pid)
    if not rights.trace:
        return rights.why_not
    if find_gdb() is None:
        return Refusal("gdb is not installed.", "apt install gdb, or dnf install gdb")
    python = python_of(pid)
    if python is None:
        return Refusal(f"Process {pid} is not a Python process.", "")
    if python.version is not None and not GDB_OLDEST <= python.version <= GDB_NEWEST:
        return Refusal(f"A pending call was never tried on {python}.", "Python 3.10 to 3.13")
    return None
