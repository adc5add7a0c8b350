"""What readers of GPUs have in common: what a device is asked for, and whose processes are on it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfdoctor.recording.schema import Reading, Sample, Unavailable


class Device(Protocol):
    """One GPU. The samples of each method bear the times of the calls that they come from.

    Attributes:
        subject: ``gpu:0`` for instance.
        users: whose processes were on it at the last ``look_for_users``.
    """

    subject: str
    users: Users

    def facts(self) -> Iterator[Sample]:
        """What the device is, and what it cannot say."""
        ...

    def fast(self) -> Iterator[Sample]:
        """What changes all the time."""
        ...

    def slow(self) -> Iterator[Sample]:
        """What changes rarely, or costs much to ask."""
        ...

    def look_for_users(self, job: Iterable[int], all_visible: bool) -> Iterator[Sample]:
        """Whose processes are on the device, and what they use of it."""
        ...

    def close(self) -> None:
        """Gives back what the driver lent."""
        ...


class Driver(Protocol):
    """A driver's library."""

    @property
    def spent_ns(self) -> int:
        """Time that calls of it have taken so far."""
        ...

    def open(self) -> str | None:
        """Loads and connects; returns the reason if that cannot be done."""
        ...

    def devices(self) -> list[Device]:
        """The GPUs that it shows."""
        ...

    def missing(self) -> Iterator[Unavailable]:
        """What it turned out not to say since the last call."""
        ...

    def close(self) -> None:
        """Disconnects."""
        ...


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


def tell_apart(memory: Mapping[int, int | None], job: Iterable[int], all_visible: bool) -> Users:
    """Splits a driver's list of processes into the job's and others.

    Inside a container the driver may list ids of the host, or hide processes that are not ours. Then the
    job's are known only if every id in the list is one of its own, and others never.

    Args:
        memory: of the GPU in bytes by process id, None in it where the driver does not say.
        job: process ids of the job, as we see them.
        all_visible: what ``sees_all_processes`` says.
    """
    own = {pid: memory[pid] for pid in memory.keys() & set(job)}
    if all_visible:
        return Users(own, {pid: used for pid, used in memory.items() if pid not in own})
    return Users(own if own and len(own) == len(memory) else None, None)


def users_readings(time_ns: int, device: str, users: Users, use: Mapping[int, float] | None) -> Iterator[Reading]:
    """What is said of a device's users.

    Args:
        time_ns: when the driver was asked.
        device: its subject.
        users: whose processes are on it.
        use: fraction of its multiprocessors' time by process id; None where the driver does not say.
    """
    own, foreign = users.job, users.foreign
    shares = None if use is None or foreign is None else [use.get(pid, 0.0) for pid in foreign]
    values = {
        "job_processes": None if own is None else len(own),
        "foreign_processes": None if foreign is None else len(foreign),
        "job_memory_bytes": total(own),
        "foreign_memory_bytes": total(foreign),
        "foreign_sm_fraction": None if shares is None else min(sum(shares), 1.0),
    }
    for name, value in values.items():
        yield Reading(time_ns, "gpu", device, name, value)
    for pid, used in (own or {}).items():
        yield Reading(time_ns, "gpu", f"{device}/pid:{pid}", "memory_bytes", used)
        yield Reading(time_ns, "gpu", f"{device}/pid:{pid}", "sm_fraction", None if use is None else use.get(pid))


def total(memory: Mapping[int, int | None] | None) -> int | None:
    """Sum of what processes use; None if it is unknown for any of them."""
    if memory is None or None in memory.values():
        return None
    return sum(used for used in memory.values() if used is not None)
