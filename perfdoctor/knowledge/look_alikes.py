"""Which causes show themselves alike, and which numbers distinguish them.

The account distinguishes them by what each thread did at each instant; the numbers are measured in other ways, so
that a reader need not take the account's word. ``docs/causes.md`` says in words what separates each pair; where a row
rests on somebody else's experience, its source stands beside it.
"""

from typing import NamedTuple

from perfdoctor.causes import (
    BANDWIDTH,
    CHECKPOINT_WRITE,
    CONTENTION,
    DATA_TRANSFER,
    EVALUATION,
    GARBAGE_COLLECTION,
    GIL_CONTENTION,
    GPU_COMPUTE,
    GPU_CONTENTION,
    GPU_THROTTLED,
    HOST_TRANSFER,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    LATENCY,
    LOCK_CONTENTION,
    LOG_WRITE,
    LOW_OCCUPANCY,
    MEMORY_BANDWIDTH,
    MEMORY_PRESSURE,
    MODEL_COMPUTE,
    NETWORK_READ,
    NO_TENSOR_CORES,
    PYTHON_OVERHEAD,
    STORAGE_READ,
    SWAP,
    SYNCHRONIZATION,
    THROTTLED,
    WORKER_STARTUP,
)


class Alike(NamedTuple):
    """A cause that looks like another one.

    Attributes:
        numbers: names of ``perfdoctor.metrics.names``, the most conclusive first.
    """

    cause: str
    numbers: tuple[str, ...]


_DISK = Alike(STORAGE_READ, ("read_from_storage", "page_cache", "major_faults"))
_INPUT = Alike(INPUT_PREPROCESSING, ("worker_busy", "own_fetching"))
_HAND_OVER = Alike(DATA_TRANSFER, ("worker_busy",))  # workers that wait for work have batches ready
# Run-queue delay alone shows nothing: where the job's own workers take the cores, it is their work that costs time.
_NO_CORE = Alike(CONTENTION, ("neighbour_cores",))
_QUOTA = Alike(THROTTLED, ("throttled_periods",))  # run-queue delay looks the same in both (docs.kernel.org, cgroup-v2)
_GIL = Alike(GIL_CONTENTION, ("trainer_switches", "trainer_cores"))
_LOCK = Alike(LOCK_CONTENTION, ("worker_cores", "worker_busy"))
_PYTHON = Alike(PYTHON_OVERHEAD, ("interpreter_code",))
_SWAP = Alike(SWAP, ("swap_in", "swapped"))
_MODEL = Alike(MODEL_COMPUTE, ("trainer_cores",))

LOOK_ALIKES: dict[str, tuple[Alike, ...]] = {
    INPUT_PREPROCESSING: (_DISK, Alike(NETWORK_READ, ("received",)), _HAND_OVER, _LOCK, _NO_CORE),
    WORKER_STARTUP: (_INPUT, _DISK, _HAND_OVER),
    DATA_TRANSFER: (_INPUT, _DISK, _LOCK, _NO_CORE),
    LOCK_CONTENTION: (_INPUT, _DISK, _NO_CORE, _GIL),
    PYTHON_OVERHEAD: (_MODEL, _NO_CORE, _GIL, Alike(GARBAGE_COLLECTION, ("collected_by_hand",))),
    KERNEL_LAUNCH: (_NO_CORE, Alike(SYNCHRONIZATION, ("traced_waits",)), _INPUT, _GIL),
    SYNCHRONIZATION: (
        Alike(GPU_COMPUTE, ("gpu_busy", "traced_busy")),
        Alike(KERNEL_LAUNCH, ("traced_kernels",)),
        _INPUT,
    ),
    GIL_CONTENTION: (_PYTHON, _NO_CORE, _LOCK),
    GARBAGE_COLLECTION: (_PYTHON, _MODEL, _SWAP),
    CONTENTION: (_QUOTA, _GIL, _MODEL),
    THROTTLED: (_NO_CORE, _MODEL),
    EVALUATION: (_MODEL, _INPUT),
    MODEL_COMPUTE: (_NO_CORE, _QUOTA, _PYTHON, _INPUT, _SWAP),
    STORAGE_READ: (_INPUT, _SWAP, Alike(NETWORK_READ, ("received", "read_from_server"))),
    NETWORK_READ: (_DISK, _INPUT, _NO_CORE),
    CHECKPOINT_WRITE: (Alike(LOG_WRITE, ("write_calls",)), _DISK, _SWAP),
    LOG_WRITE: (Alike(CHECKPOINT_WRITE, ("written_by_calls",)), _PYTHON),
    SWAP: (_DISK, Alike(GARBAGE_COLLECTION, ()), _MODEL),
    GPU_COMPUTE: (
        Alike(MEMORY_BANDWIDTH, ("gpu_dram", "gpu_tensor")),
        Alike(NO_TENSOR_CORES, ("gpu_tensor", "traced_tensor_cores")),
        Alike(BANDWIDTH, ("traced_exposed", "gpu_nvlink_received")),
        Alike(GPU_THROTTLED, ("gpu_clock_deficit",)),
        Alike(GPU_CONTENTION, ("gpu_foreign_sm",)),
    ),
    MEMORY_BANDWIDTH: (Alike(GPU_COMPUTE, ("gpu_tensor",)), Alike(LOW_OCCUPANCY, ("gpu_occupancy",))),
    LOW_OCCUPANCY: (Alike(GPU_COMPUTE, ("gpu_sm",)), Alike(KERNEL_LAUNCH, ("traced_short_kernels",))),
    NO_TENSOR_CORES: (Alike(MEMORY_BANDWIDTH, ("gpu_dram",)), Alike(LOW_OCCUPANCY, ("gpu_occupancy",))),
    HOST_TRANSFER: (Alike(SYNCHRONIZATION, ("traced_waits",)), _INPUT),
    MEMORY_PRESSURE: (Alike(SYNCHRONIZATION, ("traced_waits",)), Alike(GPU_COMPUTE, ("gpu_memory_share",))),
    GPU_THROTTLED: (Alike(GPU_CONTENTION, ("gpu_foreign_sm",)), Alike(GPU_COMPUTE, ("gpu_clock_deficit",))),
    GPU_CONTENTION: (Alike(GPU_THROTTLED, ("gpu_clock_deficit",)), Alike(GPU_COMPUTE, ("gpu_busy",))),
    BANDWIDTH: (Alike(LATENCY, ("bytes_per_packet", "traced_collectives")), _INPUT, _DISK, _NO_CORE),
    LATENCY: (Alike(BANDWIDTH, ("bytes_per_packet", "received")), _INPUT, _NO_CORE),
}

# What shows a cause at all; where that probe could not look, nothing is known of the cause.
SEEN_BY: dict[str, str] = {
    GIL_CONTENTION: "interpreter",
    GARBAGE_COLLECTION: "interpreter",
    PYTHON_OVERHEAD: "code",
    INPUT_PREPROCESSING: "stacks",
    LOCK_CONTENTION: "stacks",
    CHECKPOINT_WRITE: "stacks",
    LOG_WRITE: "stacks",
    THROTTLED: "cpu",
    SWAP: "memory",
}
