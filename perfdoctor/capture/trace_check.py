"""In which ways a process can be traced that nobody prepared, and why not in the others.

The first that serves is taken: Kineto's own protocol changes nothing in the process, Python's own way into itself needs
no debugger, and a debugger serves everywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.capture import kineto_daemon
from perfdoctor.probes import Availability, Refusal
from perfdoctor.probes.readers import gdb, remote_exec
from perfdoctor.probes.readers.permissions import rights_over
from perfdoctor.probes.readers.process import python_of, uses_torch
from perfdoctor.probes.readers.procfs import status_fields

KINETO, REMOTE_EXEC, GDB = "kineto", "remote_exec", "gdb"
# Only one tool may use CUPTI; Nsight's come in by these variables (docs.nvidia.com/nsight-systems/UserGuide,
# docs.nvidia.com/cupti).
_OTHER_TOOLS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_LATER = "attach again later"
_BRIEFLY = "start the job with KINETO_USE_DAEMON=1"

_BY_SCRIPT = Refusal("Python functions are not recorded by way of Kineto's daemon.", "")

# What ``perfdoctor.probes.inside.brief_trace`` says of itself.
_INSIDE = {
    "no_torch": Refusal("The process has not loaded PyTorch.", _LATER),
    "loading": Refusal("The process is still loading PyTorch.", _LATER),
    "old_torch": Refusal("This PyTorch is too old to be traced from outside:", "a newer PyTorch"),
    "profiled": Refusal(
        "The script uses torch.profiler itself, so perfdoctor took no trace of its own.", "perfdoctor analyze TRACE"
    ),
    "watched": Refusal(
        "Python functions of the job were not recorded:", "perfdoctor attach PID --trace, which records none"
    ),
    "capturing": Refusal("The process was capturing a CUDA graph.", _LATER),
    "ending": Refusal("The process ended before it was traced.", ""),
    "busy": Refusal(
        "The main thread ran no Python code: it hangs, is in a long call, or leaves the work to another thread.",
        _BRIEFLY,
    ),
    "late": Refusal("The trace did not come in time.", _LATER),
    "unwanted": Refusal("The process was not told in time how long to trace.", _LATER),
}


@dataclass(frozen=True, slots=True)
class Rung:
    """A way into a process.

    Attributes:
        refusal: why it does not serve; None if it does.
    """

    name: str
    refusal: Refusal | None


def refused_inside(why: str, *detail: str) -> Refusal:
    """What it means that the process was left alone."""
    refusal = _INSIDE.get(why) or Refusal(f"The process was not traced: {why}.", "")
    return refusal._replace(reason=" ".join([refusal.reason, *detail]).strip())


def unfit(pid: int) -> Refusal | None:
    """Why a process must be left alone, whatever the way; None where it need not.

    Raises:
        OSError: it is gone, or may not be looked at.
    """
    status = status_fields(Path(f"/proc/{pid}/status").read_bytes())
    if status["TracerPid"] != "0":
        return Refusal(f"Process {status['TracerPid']} is debugging process {pid}.", _LATER)
    if status["State"].startswith(("T", "t")):
        return Refusal(f"Process {pid} is stopped.", f"kill -CONT {pid}")
    if uses_torch(pid) is False:
        return refused_inside("no_torch")
    tool = next((name for name in _OTHER_TOOLS if name in started_with(pid)), None)
    if tool is not None:
        return Refusal(f"Another profiler is in process {pid} ({tool} is set).", "run the job without it")
    return None


def ladder(pid: int, *, functions: bool = False) -> tuple[Rung, ...]:
    """The ways into a process, the best first.

    Args:
        pid: the process.
        functions: whether Python functions are to be recorded, too. Only a script in the process can say whether
            somebody watches them already.

    Raises:
        OSError: it is gone, or may not be looked at.
    """
    environment = started_with(pid)
    checks: tuple[tuple[str, Callable[[], Refusal | None]], ...] = (
        (KINETO, lambda: _BY_SCRIPT if functions else kineto_daemon.refusal([pid], environment)),
        (REMOTE_EXEC, lambda: _denied(pid) or remote_exec.refusal(pid, environment)),
        (GDB, lambda: _denied(pid) or gdb.refusal(pid)),
    )
    return tuple(Rung(name, check()) for name, check in checks)


def availability(pid: int) -> list[Availability]:
    """The ways into a process, as lines beside those of the probes; one line where it is to be left alone."""
    try:
        refused = unfit(pid)
        if refused is not None:
            return [Availability("trace", False, *refused)]
        return [Availability.unless(rung.name, rung.refusal) for rung in ladder(pid)]
    except OSError:
        return [Availability("trace", False, *rights_over(pid).why_not)]


def started_with(pid: int) -> Mapping[str, str]:
    """The environment that a process was started with.

    Raises:
        OSError: it is gone, or may not be looked at.
    """
    entries = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _denied(pid: int) -> Refusal | None:
    rights = rights_over(pid)
    if not rights.trace:
        return rights.why_not
    if python_of(pid) is None:
        return Refusal(f"Process {pid} is not a Python process.", "name the process that trains")
    return None
