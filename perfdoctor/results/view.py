"""What a live view shows: the job at one instant of a recording, and what is known of it so far. Plain values only.

Rates and means are over the last seconds before that instant. What was not measured is None, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.messages import Text


class ThreadActivity(Enum):
    """What a thread is doing."""

    RUNNING = auto()
    DELAYED = auto()
    BLOCKED = auto()
    WAITING = auto()
    STOPPED = auto()
    ENDED = auto()
    UNSEEN = auto()


@dataclass(frozen=True, slots=True)
class ThreadView:
    """One thread.

    Attributes:
        state: as it was last sampled; ``DELAYED`` if it is runnable and mostly without a CPU.
        call: the system call that it is in, "" if none or unknown.
        target: what that is about, ``file:/path`` for instance.
        cores: time on a CPU per second.
        delay: run-queue delay per second, 0 to 1.
        blocked: fraction of samples in which it was blocked in the kernel, mostly on a disk.
    """

    tid: int
    name: str
    state: ThreadActivity
    call: str
    target: str
    cores: float | None
    delay: float | None
    blocked: float | None


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process of the job.

    Attributes:
        role: ``trainer``, ``worker`` or ``other``.
        rank: of a trainer, or of the trainer that it serves.
        main: its main thread.
        threads: those that were sampled lately, busiest first; not all of very many.
        cores: CPU time per second, of all its threads.
        read, write: bytes per second from and to storage.
        called: bytes per second asked for by read calls, those from the page cache, pipes and sockets included.
        faults: major page faults per second.
        gpus: GPUs that the driver says it computes on, ``gpu:0`` for instance.
        steps: training steps per second, where it marks them.
    """

    pid: int
    role: str
    rank: int | None
    command: str
    age_s: float
    main: ThreadView
    threads: tuple[ThreadView, ...]
    thread_count: int | None
    cores: float | None
    memory: float | None
    shared_memory: float | None
    read: float | None
    write: float | None
    called: float | None
    faults: float | None
    gpus: tuple[str, ...]
    gpu_memory: float | None
    steps: float | None


@dataclass(frozen=True, slots=True)
class HostView:
    """The machine, as far as the job may use it.

    Attributes:
        usable: cores that the job may use.
        job, neighbours, perfdoctor: cores in use.
        delayed: threads of the job that wait for a core at a time, on average.
        throttled: fraction of its quota's periods in which the job's control group was stopped.
        cpu_pressure, memory_pressure, io_pressure: fraction of the time in which some task of the host waited for it.
        job_memory: resident memory of all its processes, shared pages counted in each.
        memory_limit: of the job's control group.
        swapped: bytes per second paged in and out.
    """

    usable: float | None
    job: float | None
    neighbours: float | None
    perfdoctor: float | None
    delayed: float
    throttled: float | None
    cpu_pressure: float | None
    memory_pressure: float | None
    io_pressure: float | None
    job_memory: float | None
    memory_limit: float | None
    memory_total: float | None
    memory_available: float | None
    page_cache: float | None
    swap_used: float | None
    swapped: float | None


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A block device, or a file system on a server.

    Attributes:
        read, write: bytes per second.
        operations: requests per second.
        latency_s: mean time that a read took.
        busy: fraction of the time with a request under way.
    """

    name: str
    read: float | None
    write: float | None
    operations: float | None
    latency_s: float | None
    busy: float | None


@dataclass(frozen=True, slots=True)
class PathView:
    """A file that threads of the job are in a system call on.

    Attributes:
        threads: how many at a time, on average.
        blocked: of these, blocked in the kernel.
        call: the most frequent system call.
    """

    path: str
    threads: float
    blocked: float
    call: str


@dataclass(frozen=True, slots=True)
class LinkView:
    """A network interface, or a port of a fabric; bytes per second, and its speed in bits per second."""

    name: str
    received: float | None
    sent: float | None
    speed: float | None


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU; fractions 0 to 1, bytes, watts, degrees Celsius, hertz."""

    name: str
    busy: float | None
    sm: float | None
    tensor: float | None
    bandwidth: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None
    power_limit: float | None
    temperature: float | None
    clock: float | None
    clock_max: float | None
    pcie_received: float | None
    pcie_sent: float | None


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown.

    Attributes:
        at_s: the instant, in seconds since the recording began.
        length_s: how long the recording is so far.
        live: it is still being written.
        silent_s: for how long nothing has come, while it is still being written.
        paths: files that most threads are in a system call on, first those.
        on_network: threads of the job that wait for a connection at a time, on average.
        diagnosis: what is known so far; None before the first one.
        diagnosed_s: the seconds of the recording that it is about.
        missing: what a surer verdict waits for.
    """

    at_s: float
    length_s: float
    live: bool
    silent_s: float
    pid: int
    host_name: str
    processes: tuple[ProcessView, ...]
    host: HostView
    devices: tuple[DeviceView, ...]
    paths: tuple[PathView, ...]
    links: tuple[LinkView, ...]
    on_network: float
    gpus: tuple[GpuView, ...]
    diagnosis: Diagnosis | None
    diagnosed_s: tuple[float, float]
    missing: tuple[Text, ...]
