"""Follows a wait to whoever is not waiting: what one instant of a thread's wall time is to be blamed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from perfdoctor.amounts import Amounts
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.timeline.code_location import Place
from perfdoctor.timeline.job import MIN_DELAY, Scene
from perfdoctor.timeline.threads import Moment

READS = frozenset((
    "read", "pread64", "readv", "preadv", "openat", "open", "newfstatat", "statx", "stat", "lstat",
    "getdents64", "getdents", "readahead", "fault",
))  # fmt: skip
# What writing in these phases is for, and waiting for it, whoever carries it out: a thread of a library's, for
# instance.
WRITTEN = {"saving": "io.checkpoint_write", "logging": "io.log_write"}
WRITES = frozenset((
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "fallocate",
    "sync_file_range", "msync", "syncfs", "close", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "mkdir", "copy_file_range",
))  # fmt: skip
SENDS = frozenset(("write", "writev", "sendto", "sendmsg", "sendfile"))
NETWORK_CALLS = frozenset(["recvfrom", "recvmsg", "poll", "ppoll", "connect", "select", "epoll_wait", "sendto"])


@dataclass(frozen=True, slots=True)
class Part:
    """A share of an instant.

    Attributes:
        weight: 0 to 1; the parts of an instant sum to 1.
        rank: the rank in which the cause lies, if the wait was followed to another.
        target: file, socket … that it is about.
        line: source line of the job's own code.
        awaited: a trainer waits for its loader's workers to be through with it.
    """

    cause: str
    weight: float
    rank: int | None = None
    target: str = ""
    line: str = ""
    awaited: bool = False


def scale(parts: Iterable[Part], factor: float) -> list[Part]:
    """The same parts with other weights."""
    return [replace(part, weight=part.weight * factor) for part in parts]


def running_parts(
    scene: Scene, pid: int, moment: Moment, time_ns: int, causes: Mapping[str, float], line: str
) -> list[Part]:
    """A runnable thread: what it computes, and for the time that it did not get a CPU, why not.

    What the kernel works on storage in its name, mapping pages or copying what is saved, counts as what it is for.

    Args:
        scene: the job.
        pid: the thread's process.
        moment: the thread at the instant.
        time_ns: the instant.
        causes: what it computes, cause to weight, summing to 1.
        line: where in the job's own code it is.
    """
    delay = moment.delay_fraction
    why = scene.occupancy.delay_parts(time_ns) if delay >= MIN_DELAY else {}
    kernel, kernel_cause = scene.kernel_work.at(pid, time_ns)
    work = 1 - delay * sum(why.values())
    weights = Amounts({cause: weight * work * (1 - kernel) for cause, weight in causes.items()})
    if kernel_cause:
        weights[kernel_cause] += work * kernel
    parts = [Part(cause, weight, line=line) for cause, weight in weights.items() if weight > 0]
    # Whoever is on the CPU instead is not at this line.
    return parts + [Part(cause, weight * delay) for cause, weight in why.items() if weight > 0]


def is_network(moment: Moment) -> bool:
    """Whether a thread waits for another host, or for a server on this one."""
    if moment.target.startswith(("socket:tcp", "socket:udp")):
        return True
    # A connection that was opened and closed again before its kind could be looked up. Python's multiprocessing uses
    # plain reads and recvmsg on its own (unix) sockets, never these.
    return (
        (moment.target == "socket:other"
        and moment.syscall in NETWORK_CALLS - {"recvmsg"})
        or moment.syscall == "connect"
    )


def storage_cause(
    scene: Scene, moment: Moment, time_ns: int, place: Place, saved_paths: Mapping[str, str]
) -> str:
    """The cause for a thread that is blocked in the kernel on storage.

    Args:
        scene: the job.
        moment: the thread at the instant.
        time_ns: the instant.
        place: where in the code it is.
        saved_paths: targets that saving or logging code of a library was seen to write, with the cause.
    """
    if moment.syscall == "fault":
        return scene.kernel_work.fault_cause(time_ns)
    if moment.syscall in WRITES:
        if moment.target.startswith("file:/dev/shm/"):
            return "cpu.data_transfer"
        return WRITTEN.get(place.phase) or saved_paths.get(moment.target, saved_paths[""])
    return WRITTEN[place.phase] if place.phase == "saving" else "io.storage_read"


def unattributed(place: Place) -> list[Part]:
    """An instant that nothing seen explains."""
    return [Part(UNATTRIBUTED, 1.0, line=place.line)]
