"""The causes that a diagnosis can name. Ids are stable: they are the API of reports, tests and users' scripts."""

from dataclasses import dataclass

UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause.

    Attributes:
        id: ``bottleneck.name``, or ``unattributed``.
        title: what it is, as a short noun phrase for reports.
        healthy: a job that spends its time here is not ill.
    """

    id: str
    title: str
    healthy: bool = False

    @property
    def bottleneck(self) -> str | None:
        """``cpu``, ``gpu``, ``io``, ``communication``, or None for the unattributed rest."""
        head, dot, _ = self.id.partition(".")
        return head if dot else None


CAUSES: dict[str, Cause] = {
    cause.id: cause
    for cause in (
        Cause("cpu.input_preprocessing", "preparing the input on the CPU"),
        Cause("cpu.worker_startup", "starting loader workers anew"),
        Cause("cpu.data_transfer", "handing batches from workers to the trainer"),
        Cause("cpu.lock_contention", "queueing for a lock of the job's own"),
        Cause("cpu.python_overhead", "interpreter and operator dispatch"),
        Cause("cpu.kernel_launch", "launching small GPU kernels"),
        Cause("cpu.synchronization", "waiting for the GPU's queue to drain"),
        Cause("cpu.gil_contention", "waiting for the interpreter lock"),
        Cause("cpu.garbage_collection", "the cyclic garbage collector"),
        Cause("cpu.contention", "more runnable threads than cores"),
        Cause("cpu.throttled", "the control group's CPU quota"),
        Cause("cpu.model_compute", "the model's arithmetic on the CPU", healthy=True),
        Cause("io.storage_read", "reading from storage"),
        Cause("io.network_read", "reading from the network"),
        Cause("io.checkpoint_write", "saving checkpoints"),
        Cause("io.log_write", "writing logs"),
        Cause("io.swap", "memory paged in and out"),
        Cause("gpu.compute", "the model's arithmetic on the GPU", healthy=True),
        Cause("gpu.memory_bandwidth", "memory traffic on the GPU"),
        Cause("gpu.low_occupancy", "too little work per GPU kernel"),
        Cause("gpu.no_tensor_cores", "full precision without tensor cores"),
        Cause("gpu.host_transfer", "copies between host and GPU"),
        Cause("gpu.memory_pressure", "running out of GPU memory"),
        Cause("gpu.throttled", "lowered GPU clocks"),
        Cause("gpu.contention", "another process on the GPU"),
        Cause("communication.bandwidth", "moving gradients between ranks"),
        Cause("communication.latency", "many small collectives"),
        Cause("communication.data_parallel", "nn.DataParallel's scatter and gather"),
        Cause("communication.unattributed_wait", "waiting for a rank that was not observed"),
        Cause(UNATTRIBUTED, "not attributed"),
    )
}

# All that a trainer waits for or does before it has its next batch.
INPUT_CAUSES = frozenset((
    "cpu.input_preprocessing", "cpu.worker_startup", "cpu.data_transfer", "cpu.lock_contention", "io.storage_read",
    "io.network_read",
))  # fmt: skip
