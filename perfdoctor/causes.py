"""The causes that a diagnosis can name: ids, which are stable (the API of reports, tests and users' scripts), and rows.

A row holds what is known of a cause beforehand; the rule of the same id in ``perfdoctor.rules`` says what proves it and
what to change.
"""

from dataclasses import dataclass

from perfdoctor.knowledge import thresholds

INPUT_PREPROCESSING = "cpu.input_preprocessing"
WORKER_STARTUP = "cpu.worker_startup"
DATA_TRANSFER = "cpu.data_transfer"
LOCK_CONTENTION = "cpu.lock_contention"
PYTHON_OVERHEAD = "cpu.python_overhead"
KERNEL_LAUNCH = "cpu.kernel_launch"
SYNCHRONIZATION = "cpu.synchronization"
GIL_CONTENTION = "cpu.gil_contention"
GARBAGE_COLLECTION = "cpu.garbage_collection"
CONTENTION = "cpu.contention"
THROTTLED = "cpu.throttled"
STARTUP = "cpu.startup"
EVALUATION = "cpu.evaluation"
MODEL_COMPUTE = "cpu.model_compute"
STORAGE_READ = "io.storage_read"
NETWORK_READ = "io.network_read"
CHECKPOINT_WRITE = "io.checkpoint_write"
LOG_WRITE = "io.log_write"
SWAP = "io.swap"
GPU_COMPUTE = "gpu.compute"
MEMORY_BANDWIDTH = "gpu.memory_bandwidth"
LOW_OCCUPANCY = "gpu.low_occupancy"
NO_TENSOR_CORES = "gpu.no_tensor_cores"
HOST_TRANSFER = "gpu.host_transfer"
MEMORY_PRESSURE = "gpu.memory_pressure"
GPU_THROTTLED = "gpu.throttled"
GPU_CONTENTION = "gpu.contention"
BANDWIDTH = "communication.bandwidth"
LATENCY = "communication.latency"
DATA_PARALLEL = "communication.data_parallel"
UNOBSERVED_RANK = "communication.unattributed_wait"
UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause.

    Attributes:
        id: ``bottleneck.name``, or ``unattributed``.
        title: what it is, as a short noun phrase for reports.
        healthy: a job that spends its time here has no bottleneck.
        generic: every job has some of it anyway, so it gives way to a specific cause that costs nearly as much.
        minimum: the fraction of wall time from which it can be the bottleneck.
        nearly: the part of a generic cause's share from which this one comes before it.
        overstated: by what its share counts in a profiler's trace, which slows the host down and not the GPU.
    """

    id: str
    title: str
    healthy: bool = False
    generic: bool = False
    minimum: float = thresholds.MIN_SHARE
    nearly: float = thresholds.NEARLY
    overstated: float = 1.0

    @property
    def bottleneck(self) -> str | None:
        """``cpu``, ``gpu``, ``io``, ``communication``, or None for the unattributed rest."""
        head, dot, _ = self.id.partition(".")
        return head if dot else None


CAUSES: dict[str, Cause] = {
    cause.id: cause
    for cause in (
        Cause(INPUT_PREPROCESSING, "preparing the input on the CPU", generic=True),
        Cause(WORKER_STARTUP, "restarting workers"),
        Cause(DATA_TRANSFER, "batch hand-over from worker to trainer (IPC)"),
        Cause(LOCK_CONTENTION, "queueing for a lock of the job's own", nearly=thresholds.NEARLY_LOCK_CONTENTION),
        Cause(
            PYTHON_OVERHEAD,
            "interpreter and operator dispatch",
            generic=True,
            minimum=thresholds.MIN_PYTHON_OVERHEAD,
            overstated=thresholds.OVERSTATED_BY_PROFILER,
        ),
        Cause(KERNEL_LAUNCH, "launching small GPU kernels", overstated=thresholds.OVERSTATED_BY_PROFILER),
        Cause(SYNCHRONIZATION, "waiting for the GPU's queue to drain"),
        Cause(GIL_CONTENTION, "waiting for the GIL", minimum=thresholds.MIN_GIL_CONTENTION),
        Cause(GARBAGE_COLLECTION, "garbage collection (GC)"),
        Cause(CONTENTION, "more runnable threads than cores", generic=True, minimum=thresholds.MIN_CONTENTION),
        Cause(THROTTLED, "throttling by the control group's CPU quota"),
        Cause(STARTUP, "one-off work at the job's start", minimum=thresholds.WARMING_UP),
        Cause(EVALUATION, "passes without gradients (evaluation)", minimum=thresholds.MIN_EVALUATION),
        Cause(MODEL_COMPUTE, "the model's arithmetic on the CPU", healthy=True),
        Cause(STORAGE_READ, "reading from storage"),
        Cause(NETWORK_READ, "reading from the network"),
        Cause(CHECKPOINT_WRITE, "saving checkpoints"),
        Cause(LOG_WRITE, "logging"),
        Cause(SWAP, "memory paged in and out"),
        Cause(GPU_COMPUTE, "the model's arithmetic on the GPU", healthy=True),
        Cause(MEMORY_BANDWIDTH, "memory traffic on the GPU", minimum=thresholds.MIN_MEMORY_BANDWIDTH),
        Cause(LOW_OCCUPANCY, "too little work per GPU kernel", minimum=thresholds.MIN_LOW_OCCUPANCY),
        Cause(NO_TENSOR_CORES, "full precision without tensor cores"),
        Cause(HOST_TRANSFER, "copies between host and GPU"),
        Cause(MEMORY_PRESSURE, "running out of GPU memory"),
        Cause(GPU_THROTTLED, "lowered GPU clocks"),
        Cause(GPU_CONTENTION, "another process on the GPU"),
        Cause(BANDWIDTH, "moving data between ranks"),
        Cause(LATENCY, "many small collectives"),
        Cause(DATA_PARALLEL, "nn.DataParallel's scatter and gather"),
        Cause(UNOBSERVED_RANK, "waiting for a rank that was not observed"),
        Cause(UNATTRIBUTED, "not attributed"),
    )
}

# All that a trainer waits for or does before it has its next batch.
INPUT_CAUSES = frozenset(
    (INPUT_PREPROCESSING, WORKER_STARTUP, DATA_TRANSFER, LOCK_CONTENTION, STORAGE_READ, NETWORK_READ)
)
