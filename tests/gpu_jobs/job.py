"""What a GPU training job is made of: its step, its exchange between ranks, its machine, and how it is watched."""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu_jobs.device import H100, Model, Use
from tests.gpu_jobs.host import Cores
from tests.gpu_jobs.loader import Input


@dataclass(frozen=True)
class Kernels:
    """Kernels that a part of the step launches.

    Attributes:
        device_us: what one takes on the GPU, alone and at full clocks.
        host_us: what launching one takes on the host.
    """

    count: int
    device_us: float
    host_us: float
    use: Use


@dataclass(frozen=True)
class Copy:
    """How a batch comes to the GPU.

    Attributes:
        how: ``hidden`` (on a stream of its own, ahead), ``queued`` (pinned, in the stream of the kernels), ``waiting``
            (pinned, and the host waits for it), ``pageable``.
        pageable_rate: B/s of a copy from pageable memory.
    """

    size: int = 20_000_000
    how: str = "hidden"
    pageable_rate: float = 4e9


@dataclass(frozen=True)
class Churn:
    """Allocations that the caching allocator cannot serve.

    Attributes:
        times: how often in a step the cache is given back.
        calls: cudaFree and cudaMalloc calls each time.
        call_us: what one of them takes.
    """

    times: int
    calls: int
    call_us: float


@dataclass(frozen=True)
class Rarely:
    """Something that happens after each so many steps.

    Attributes:
        cpu_ms: time on a core.
        blocked_ms: time blocked (for a save in writes, for a log in writes and fsync).
        size: bytes written.
    """

    every: int
    cpu_ms: float
    blocked_ms: float = 0.0
    size: int = 0


INPUT, COPY = Input(4, 20.0), Copy()


@dataclass(frozen=True)
class Step:
    """One step of a rank.

    Attributes:
        uneven: the spread of what the GPU's work of a step takes.
        sections: parts of the forward pass, each with its long kernels at the end.
        large: these long kernels.
        items: times that the forward pass waits for a number on the GPU (``.item()``).
        item_every: after so many steps the loss is read; 0 for never.
        own_us: the job's own Python between the launches of the forward pass.
        collect_ms: a full garbage collection after each step.
        compiled: the model went through torch.compile, and is launched as graphs.
        compiling: it is compiled anew.
        hangs: before the job is watched, the rank stops in a lock of its own and never goes on.
    """

    forward: Kernels
    backward: Kernels
    optimizer: Kernels
    uneven: float = 0.01
    sections: int = 1
    large: Kernels | None = None
    items: int = 0
    item_every: int = 1
    own_us: float = 0.0
    input: Input = INPUT
    copy: Copy = COPY
    churn: Churn | None = None
    collect_ms: float = 0.0
    compiled: bool = False
    compiling: Rarely | None = None
    save: Rarely | None = None
    log: Rarely | None = None
    hangs: bool = False


@dataclass(frozen=True)
class Exchange:
    """What ranks exchange in a step.

    Attributes:
        buckets: all-reduces of gradients.
        bucket_ms: what one of them takes when all ranks have come.
        bucket_bytes: what each GPU sends in it.
        overlapped: they begin during the backward pass.
        small: further collectives, one after the other.
        small_us: what one of them takes.
        link: ``nvlink``, ``pcie`` or ``network``.
        lost: before the job is watched, every rank enters a collective in which it stays alone.
    """

    buckets: int = 8
    bucket_ms: float = 1.0
    bucket_bytes: int = 25_000_000
    overlapped: bool = True
    small: int = 0
    small_us: float = 30.0
    link: str = "nvlink"
    lost: bool = False


@dataclass(frozen=True)
class Clocks:
    """Clocks that are held down.

    Attributes:
        speed: of what they would be.
        reasons: bits of NVML's clock event reasons while something runs.
        celsius: the temperature; None for an ordinary one.
    """

    speed: float = 1.0
    reasons: int = 0
    celsius: float | None = None


FREE = Cores()


@dataclass(frozen=True)
class Host:
    """The machine, and what else runs on it.

    Attributes:
        cores: logical cores.
        quota: the job's control group has a quota, and uses all of it.
        load: cores that other processes ask for.
        wait: what a runnable thread of the trainers goes through.
        worker_wait: and one of the workers.
    """

    cores: int = 64
    quota: bool = False
    load: float = 0.5
    wait: Cores = FREE
    worker_wait: Cores = FREE


@dataclass(frozen=True)
class Unsure:
    """What public sources leave open; a job draws one of the possibilities.

    Attributes:
        wait: how the host waits for the device: ``spin``, ``yield``, or blocked in ``futex``, ``poll`` or ``ioctl``.
        vdso: the part of a spin whose instruction pointer is in the vdso.
        full_vdso: the same where the launch queue is full.
        full_system: the part of a wait for room in the launch queue that is in the kernel, since it yields its core.
        staging: whose code moves the bytes of a pageable copy, ``libc`` or ``driver``.
        ioctl_blocks: the part of the time in a driver call for which the thread is not on a core.
        loses_gil: how often, in 0.4 ms of launching, another thread takes the GIL that operators let go of.
        torch: its version decides about names of threads: since 2.5 they have their own, 2.4 names those of autograd
            and the main thread, and before that all have their creator's; 2.0 waits for the device with the GIL held.
        nccl_named: NCCL's threads have names, which they have only where it is asked to.
        libcuda: base name of the driver's library, as it is mapped.
        memory_factor: what NVML's memory utilisation shows, over bandwidth used.
        power_factor: what a board draws, over the mean of its kind.
        counts_links: who watches may read NVML's counters of NVLink.
        counts_mapping: utilisation counts the time in which memory is allocated and freed.
        front_end_ns: for how long utilisation counts a GPU as busy beyond each kernel.
    """

    wait: str = "spin"
    vdso: float = 0.35
    full_vdso: float = 0.35
    full_system: float = 0.01
    staging: str = "libc"
    ioctl_blocks: float = 0.3
    loses_gil: float = 0.0
    torch: str = "2.5"
    nccl_named: bool = False
    libcuda: str = "libcuda.so.550.90.07"
    memory_factor: float = 1.2
    power_factor: float = 1.0
    counts_links: bool = True
    counts_mapping: bool = False
    front_end_ns: int = 0

    def comm(self, own: str) -> str:
        """What a thread of torch is called that has a name of its own in torch 2.5."""
        if self.torch == "2.5" or (self.torch == "2.4" and own.startswith("pt_autograd")):
            return own
        return "pt_main_thread" if self.torch == "2.4" else "python"


@dataclass(frozen=True)
class Watch:
    """What can be seen of the job.

    Attributes:
        gpm: GPU performance monitoring works where the GPU has it.
        device: ``nvml``, ``mig`` (a partition), ``none`` (a container without the driver's tools) or ``rocm``.
        all_visible: we see whose processes are on the GPU.
        seconds: how long it is watched.
        autograd_code: machine code of the autograd thread is sampled too.
        host_ids: the driver lists process ids of the host, and ours are others.
        spare_gpus: further GPUs of the machine; every other one of them is in use by others.
        first_gpu: the number of the job's first GPU.
    """

    gpm: bool = True
    device: str = "nvml"
    all_visible: bool = True
    seconds: float = 15.0
    autograd_code: bool = True
    host_ids: bool = False
    spare_gpus: int = 0
    first_gpu: int = 0


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        steps: of each rank.
        clocks: of each rank's GPU; () for full ones.
        neighbour: for each rank's GPU the part of the time that somebody else's kernels ask for; () for none.
        hog: part of the time for which another Python thread of each trainer wants the GIL.
        own_thread: it trains in a thread of its own, as Ray Train does, and the first thread idles.
    """

    steps: tuple[Step, ...]
    model: Model = H100
    exchange: Exchange | None = None
    clocks: tuple[Clocks, ...] = ()
    neighbour: tuple[float, ...] = ()
    hog: float = 0.0
    own_thread: bool = False
    host: Host = Host()
    unsure: Unsure = Unsure()
    watch: Watch = Watch()
    seed: int = 0

    @property
    def ranks(self) -> int:
        return len(self.steps)
