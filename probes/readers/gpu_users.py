"""Who uses a GPU: the job, or somebody else; unknown where process ids belong to another namespace."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The number of the first process-id namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class Users:
    """Processes with a context on a GPU, None where that is unknown.

    Attributes:
        job: memory in bytes by process id, of the job's processes; None in it where the driver does not say.
        foreign: the same of all others.
    """

    job: Mapping[int, int | None] | None
    foreign: Mapping[int, int | None] | None


def sees_all_processes(root: Path) -> bool:
    """Whether our process ids are the driver's: we are not inside a container with ids of its own."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def tell_apart(processes: Iterable[Any], job: Iterable[int], all_visible: bool) -> Users:
    """Splits NVML's list of processes into the job's and others.

    Inside a container the driver may list ids of the host, or hide processes that are not ours. Then the
    job's are known only if every id in the list is one of its own, and others never.

    Args:
        processes: with ``pid`` and ``usedGpuMemory`` (bytes or None), as pynvml gives them.
        job: process ids of the job, as we see them.
        all_visible: what ``sees_all_processes`` says.
    """
    memory: dict[int, int | None] = {process.pid: process.usedGpuMemory for process in processes}
    own = {pid: memory[pid] for pid in memory.keys() & set(job)}
    if all_visible:
        return Users(own, {pid: used for pid, used in memory.items() if pid not in own})
    return Users(own if own and len(own) == len(memory) else None, None)


def total(memory: Mapping[int, int | None] | None) -> int | None:
    """Sum of what processes use; None if it is unknown for any of them."""
    if memory is None or None in memory.values():
        return None
    return sum(used for used in memory.values() if used is not None)


def mean_use(samples: Iterable[Any]) -> dict[int, float]:
    """Mean fraction of the multiprocessors' time by process id, from NVML's samples in percent."""
    found: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100:  # Larger values stand for "not available".
            found.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(percents) / len(percents) / 100 for pid, percents in found.items()}
