"""The table of metrics: what each number means, its unit, and the probe that saw it; and numbers under these names.

Names are the public way to ask for a number (``facts.number("job_cores")``, ``trainer.number("workers_busy")``).
``docs/evidence.md`` lists them all. A number that could not be measured is absent; it is never zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

from perfdoctor.diagnosis import Evidence


class Metric(NamedTuple):
    """One row of the table.

    Attributes:
        meaning: in words; ``{}`` stands for the trainer, rank or device that a number is about.
        unit: "" for text. Fractions are 0 to 1, and their units say of what.
        probe: the probe that saw it.
    """

    meaning: str
    unit: str
    probe: str


Trainers = Sequence[tuple[int, Sequence[int]]]
"""Per trainer of a job: its process id, and those of its loader workers, ended ones included."""

Numbers = dict[str, Evidence]
"""Measured numbers by the names of their metrics."""


class Measured(NamedTuple):
    """Numbers of a job.

    Attributes:
        job: about the job as a whole; means over its trainers, where they are about trainers.
        trainers: about one trainer, by its process id.
    """

    job: Numbers
    trainers: dict[int, Numbers]


MB = 1e6  # bytes
_OF_TIME = "of the time"

THREADS: dict[str, Metric] = {
    "trainer_running": Metric("trainer's main thread on a core", _OF_TIME, "threads"),
    "helpers_at_once": Metric("helper processes at work while a trainer waits, on average", "processes", "threads"),
    "trainer_run_delay": Metric("trainer's main thread itself ready but without a core", _OF_TIME, "threads"),
    "trainer_switches": Metric("voluntary context switches of the trainer's main thread", "/s", "threads"),
    "trainer_major_faults": Metric("major page faults of the trainer's main thread", "/s", "threads"),
    "trainer_cores": Metric("cores kept busy by one trainer's threads", "cores", "threads"),
    "worker_busy": Metric("loader workers at work", _OF_TIME, "threads"),
    "workers_busy": Metric("busy loader workers of a trainer{}, on average", "workers", "threads"),
    "busiest_worker": Metric("busiest loader worker of a trainer{} at work", _OF_TIME, "threads"),
    "next_busiest_worker": Metric("next busiest loader worker of a trainer{} at work", _OF_TIME, "threads"),
    "worker_cores": Metric("cores kept busy by all loader workers", "cores", "threads"),
    "worker_run_delay": Metric("loader workers ready but without a core", _OF_TIME, "threads"),
    "worker_starts": Metric("loader workers started", "/min", "processes"),
    "worker_life": Metric("median life of a loader worker that ended", "s", "processes"),
    "own_fetching": Metric("trainer{} preparing batches in its main thread", _OF_TIME, "stacks"),
    "own_in_loop": Metric(
        "trainer{} preparing batches in the loop itself, before the model's call", _OF_TIME, "stacks"
    ),
    "own_per_pass": Metric("trainer{} preparing what all steps of a pass over the data share", _OF_TIME, "stacks"),
    "own_sampling": Metric("trainer{} drawing indices for its loader in its main thread", _OF_TIME, "stacks"),
    "own_updating": Metric("trainer{} calling operations for its optimizer's step", _OF_TIME, "stacks"),
    "own_clipping": Metric("trainer{} clipping its gradients or scaling them back", _OF_TIME, "stacks"),
    "own_evaluating": Metric("trainer{} evaluating, fetching the batches for it included", _OF_TIME, "stacks"),
    "own_on_host": Metric("trainer{} computing on the CPU although it has a GPU", _OF_TIME, "code"),
    "own_beside": Metric("trainer{} computing below the model's passes, for no backward pass", _OF_TIME, "stacks"),
    "own_copying": Metric("trainer{} copying memory shared with forked processes", _OF_TIME, "threads"),
    "own_recomputing": Metric("trainer{} in forward passes that checkpointed blocks run again", _OF_TIME, "stacks"),
    "own_compiling": Metric("trainer{} compiling its model (torch.compile)", _OF_TIME, "stacks"),
    "own_recompiling": Metric("trainer{} compiling it again, after its first step", _OF_TIME, "stacks"),
    "own_profiling": Metric("trainer{} in torch.profiler, for what it has recorded", _OF_TIME, "stacks"),
    "tracing_memory": Metric("tracemalloc at work in main threads", "of the samples", "code"),
    "stopped": Metric("main threads stopped by another program that traces them", _OF_TIME, "threads"),
    "tracing": Metric("main threads in a function that Python calls at each line or call", _OF_TIME, "stacks"),
    "gradients_of_zeros": Metric("gradients of zeros made and added up in main threads", "of the samples", "code"),
    "clearing": Metric("gradients set to zero, and added to, in main threads", "of the samples", "code"),
    "filling": Metric("memory being filled with one number elsewhere in main threads", "of the samples", "code"),
    "uncompiled": Metric("main threads below a compiled model's call, in what runs as written", _OF_TIME, "stacks"),
    "in_recurrent": Metric("forward passes in recurrent layers (LSTM, GRU, RNN)", "of it", "stacks"),
    "sending_buffers": Metric("main threads in the sending of buffers before forward passes", _OF_TIME, "stacks"),
    "unused_pass": Metric("main threads in a module whose gradients nobody uses", _OF_TIME, "stacks"),
    "drawn_before": Metric("preparation that comes after a random draw, so differs in each epoch", "of it", "stacks"),
    "input_asleep": Metric("preparation in which whoever prepares sleeps for a set time", "of it", "threads"),
    "first_batches": Metric("time in loaders that goes to the first batch of an iterator", "of it", "stacks"),
    "taken_by_file": Metric("taking batches over that asks for tensors' shared memory", "of it", "stacks"),
    "interpreter_code": Metric("Python's interpreter, within interpreter and dispatch", "of the samples", "code"),
    "double_precision": Metric("arithmetic on the CPU in double precision, where that is seen", "of it", "code"),
    "multiplying": Metric("matrix products, convolutions and FFTs, within the arithmetic", "of it", "code"),
    "reducing_by_number": Metric("setting reductions up anew for each number", "of the samples", "code"),
    "long_ffts": Metric("FFTs of lengths with a large prime factor", "of the samples", "code"),
    "without_onednn": Metric("convolutions that oneDNN does not do", "of the samples", "code"),
    "double_unfolding": Metric("of that, laying windows of convolutions out for BLAS", "of it", "code"),
    "fresh_memory": Metric("trainer taking memory anew from the kernel, page by page", _OF_TIME, "threads"),
    "library_code": Metric("of what runs around the arithmetic, libraries other than torch", "of the samples", "code"),
    "collected_by_hand": Metric("garbage collection at a line that does nothing else", "of it", "stacks"),
    "runnable_threads": Metric("threads of the job on a core or queueing for one, on average", "threads", "threads"),
}

CORES: dict[str, Metric] = {
    "job_cores": Metric("cores kept busy by the job", "cores", "cpu"),
    "neighbour_cores": Metric("cores kept busy by processes outside the job", "cores", "cpu"),
    "host_cores_busy": Metric("cores busy on the host", "cores", "cpu"),
    "stolen_cores": Metric("taken away by the hypervisor", "cores", "cpu"),
    "own_cores": Metric("cores kept busy by perfdoctor itself", "cores", "cpu"),
    "cpu_pressure": Metric("some task on the host waited for a core", _OF_TIME, "cpu"),
    "throttled_periods": Metric("quota periods in which the control group was stopped", "of periods", "cpu"),
    "throttled_cores": Metric("cores withheld by the quota", "cores", "cpu"),
}

MEMORY: dict[str, Metric] = {
    "swap_in": Metric("read back from swap", "MB/s", "memory"),
    "swap_out": Metric("written to swap", "MB/s", "memory"),
    "swapped": Metric("memory of the job that is swapped out", "MB", "memory"),
    "refaults": Metric("pages read again soon after the page cache dropped them", "/s", "memory"),
    "major_faults": Metric("major page faults of the job", "/s", "memory"),
    "memory_pressure": Metric("all tasks stalled for memory", _OF_TIME, "memory"),
    "memory_available": Metric("available memory", "MB", "memory"),
    "shm_free": Metric("free in /dev/shm", "MB", "io"),
    "worker_rss": Metric("resident memory of one loader worker", "MB", "memory"),
    "trainer_rss": Metric("resident memory of the trainers", "MB", "memory"),
}

STORAGE: dict[str, Metric] = {
    "read_by_calls": Metric("requested by read calls", "MB/s", "io"),
    "read_calls": Metric("read calls", "/s", "io"),
    "read_from_storage": Metric("read from storage", "MB/s", "io"),
    "written_by_calls": Metric("handed to write calls", "MB/s", "io"),
    "write_calls": Metric("write calls", "/s", "io"),
    "written_to_storage": Metric("written to storage", "MB/s", "io"),
    "bytes_per_read": Metric("requested per read call", "bytes", "io"),
    "page_cache": Metric("served to read calls from the page cache", "of bytes", "io"),
    "device_busy": Metric("device {} had requests under way", _OF_TIME, "io"),
    "device_read": Metric("read from device {}", "MB/s", "io"),
    "device_written": Metric("written to device {}", "MB/s", "io"),
    "read_latency": Metric("time per read of device {}", "ms", "io"),
    "read_limit_used": Metric("bytes that the control group reads from device {}", "of its limit", "io"),
    "reads_limit_used": Metric("read requests of the control group to device {}", "of its limit", "io"),
    "written_limit_used": Metric("bytes that the control group writes to device {}", "of its limit", "io"),
    "writes_limit_used": Metric("write requests of the control group to device {}", "of its limit", "io"),
    "read_from_server": Metric("read from network file systems", "MB/s", "io"),
}

NETWORK: dict[str, Metric] = {
    "received": Metric("received over all network interfaces", "MB/s", "network"),
    "loopback": Metric("received from this host itself", "of bytes", "network"),
    "sent": Metric("sent over all network interfaces", "MB/s", "network"),
    "packets": Metric("packets received", "/s", "network"),
    "bytes_per_packet": Metric("average size of a packet", "bytes", "network"),
    "retransmits": Metric("TCP segments sent again", "of segments", "network"),
}

GPU: dict[str, Metric] = {
    "gpus": Metric("GPUs that the job uses", "GPUs", "gpu"),
    "gpu_busy": Metric("GPU ran some kernel", _OF_TIME, "gpu"),
    "gpu_sm": Metric("multiprocessors with work", _OF_TIME, "gpu"),
    "gpu_occupancy": Metric("warp slots in use", _OF_TIME, "gpu"),
    "gpu_tensor": Metric("tensor cores busy", _OF_TIME, "gpu"),
    "gpu_dram": Metric("GPU memory bandwidth in use", _OF_TIME, "gpu"),
    "gpu_fp32": Metric("single-precision units busy", _OF_TIME, "gpu"),
    "gpu_fp16": Metric("half-precision units busy", _OF_TIME, "gpu"),
    "gpu_foreign_sm": Metric("GPU used by other jobs", _OF_TIME, "gpu"),
    "gpu_foreign_processes": Metric("processes of other jobs on the GPU", "processes", "gpu"),
    "gpu_limited_by_power": Metric("GPU clock held down by the power limit", _OF_TIME, "gpu"),
    "gpu_limited_by_power_brake": Metric("GPU clock held down by the power supply", _OF_TIME, "gpu"),
    "gpu_limited_by_heat": Metric("GPU clock held down by heat", _OF_TIME, "gpu"),
    "gpu_limited_by_hardware": Metric("GPU clock held down by the hardware", _OF_TIME, "gpu"),
    "gpu_clock": Metric("GPU clock", "MHz", "gpu"),
    "gpu_clock_max": Metric("highest GPU clock", "MHz", "gpu"),
    "gpu_clock_deficit": Metric("GPU clock below its highest", "of the clock", "gpu"),
    "gpu_power": Metric("GPU power", "W", "gpu"),
    "gpu_power_limit": Metric("GPU power limit", "W", "gpu"),
    "gpu_temperature": Metric("GPU temperature", "°C", "gpu"),
    "gpu_memory": Metric("GPU memory in use", "MB", "gpu"),
    "gpu_memory_share": Metric("GPU memory in use", "of the memory", "gpu"),
    "gpu_pcie_received": Metric("received over PCIe", "MB/s", "gpu"),
    "gpu_pcie_sent": Metric("sent over PCIe", "MB/s", "gpu"),
    "gpu_nvlink_received": Metric("received over NVLink", "MB/s", "gpu"),
}

HEALTH: dict[str, Metric] = {
    "pcie_link": Metric("PCIe link of {} at work", "of its bandwidth", "gpu"),
    "pcie_replays": Metric("packets sent again over PCIe", "/s", "gpu"),
    "nvlinks_down": Metric("NVLinks that are down on one GPU and up on another", "of the links", "gpu"),
    "nvlink_errors": Metric("NVLink transfers sent again, or with wrong checksums", "/s", "gpu"),
    "gpu_repairs_pending": Metric("repairs of GPU memory that wait for a reset or have failed", "repairs", "gpu"),
    "xid_errors": Metric("Xid errors{} of the GPUs while they were watched", "errors", "gpu"),
    "fabric_received": Metric("received over InfiniBand or RoCE", "MB/s", "network"),
    "fabric_link": Metric("speed of {}, against another port of such an adapter", "of its speed", "network"),
    "fabric_errors": Metric("errors and packets sent again over InfiniBand or RoCE", "/s", "network"),
    "far_from_gpu": Metric("trainer's main thread runs on another NUMA node than its GPU's", _OF_TIME, "cpu"),
    "gpu_distance": Metric("distance of that node from the GPU's", "times the nearest", "cpu"),
    "core_clock_deficit": Metric("clock of the job's cores below what they can all keep", "of the clock", "cpu"),
    "heat_limited_cores": Metric("clock of the hottest of the job's cores held down by heat", _OF_TIME, "cpu"),
    "stolen_share": Metric("taken away by the hypervisor", "of the CPU time", "cpu"),
    "memory_stalled": Metric("some task of the job's control group waited for memory", _OF_TIME, "memory"),
    "limit_hits": Metric("allocations that ran into the control group's memory limit", "/s", "memory"),
    "read_again": Metric("read again although the control group had it in memory shortly before", "of bytes", "memory"),
    "reclaimed": Metric("memory taken from the job's control group to make room", "MB/s", "memory"),
    "compaction_stalls": Metric("allocations that waited until memory was moved together", "/s", "memory"),
}

TRACE: dict[str, Metric] = {
    "traced_busy": Metric("GPU had work, in the trace", _OF_TIME, "trace"),
    "traced_kernels": Metric("kernels and copies started on a GPU", "/s", "trace"),
    "traced_kernel_time": Metric("median time of a kernel", "µs", "trace"),
    "traced_short_kernels": Metric("kernels that take less than 10 µs", "of kernels", "trace"),
    "traced_launch_delay": Metric("from a launch to its kernel on an idle GPU, in the median", "µs", "trace"),
    "traced_waits": Metric("calls that wait for the GPU", "/s", "trace"),
    "traced_waiting": Metric("threads wait for the GPU in such calls", _OF_TIME, "trace"),
    "traced_blocked": Metric("threads wait in copies to the GPU until it gets to them", _OF_TIME, "trace"),
    "traced_allocations": Metric("calls that allocate or free GPU memory", "/s", "trace"),
    "traced_operators": Metric("operators called in one step, those inside others not counted", "operators", "trace"),
    "traced_recording": Metric("the profiler itself works on the host, by estimate", "of the traced time", "trace"),
    "traced_shorter": Metric(
        "time that the job without the profiler would not take, by estimate", "of the traced time", "trace"
    ),
    "traced_step_alone": Metric("a step without the profiler, by estimate", "ms", "trace"),
    "traced_compiling": Metric("the model is compiled (torch.compile)", _OF_TIME, "trace"),
    "traced_startup": Metric("the GPU waits for what is done once", "s", "trace"),
    "traced_first_compiling": Metric("of this, compiling the model (torch.compile)", "s", "trace"),
    "traced_outside": Metric("the GPU waits while the host is outside of PyTorch", "of its overhead", "trace"),
    "traced_in_operator": Metric("the GPU waits while operators work on the host", "of its overhead", "trace"),
    "traced_own_code": Metric("the GPU waits for Python code that calls no operator", "of its overhead", "trace"),
    "traced_loading": Metric("main thread fetches batches, in the trace", _OF_TIME, "trace"),
    "traced_memory": Metric("GPU memory that PyTorch had reserved at most", "of the memory", "trace"),
    "traced_copies": Metric("copies between host and GPU with nothing else on the GPU", _OF_TIME, "trace"),
    "traced_collectives": Metric("collectives on a GPU", "/s", "trace"),
    "traced_exposed": Metric("collectives with nothing else on the GPU", _OF_TIME, "trace"),
    "traced_hidden": Metric("collectives behind other work of the GPU", _OF_TIME, "trace"),
    "traced_beside": Metric("taken by kernels beside a collective", "times as long as by the same ones alone", "trace"),
    "traced_lengthened": Metric("kernels slowed down by collectives beside them, at least", _OF_TIME, "trace"),
    "traced_lengthened_step": Metric("added to kernels by collectives beside them, per step", "ms", "trace"),
    "traced_behind": Metric("taken by collectives behind kernels", "times as long as by the same ones alone", "trace"),
    "traced_held_up": Metric("exposed transfer that the same collectives would not take alone", _OF_TIME, "trace"),
    "traced_bus_alone": Metric("bus bandwidth of the collective that takes most, when alone", "GB/s", "trace"),
    "traced_bus_behind": Metric("bus bandwidth of the same collective behind kernels", "GB/s", "trace"),
    "traced_tensor_cores": Metric("matrix kernels whose names tell of tensor cores", "of their time", "trace"),
    **{
        f"traced_matrix_{precision}": Metric(f"matrix kernels in {precision}", "of their time", "trace")
        for precision in ("fp8", "bf16", "fp16", "tf32", "fp64", "fp32")
    },
    "traced_same_kernels": Metric("taken on the late rank by the same kernels", "times as long as on others", "trace"),
    "traced_layout": Metric("kernels that only change a tensor's layout", "of the kernels' time", "trace"),
    "traced_softmax": Metric("softmax kernels of their own", "of the kernels' time", "trace"),
    "traced_fused_attention": Metric("fused attention kernels", "of the kernels' time", "trace"),
    "traced_recomputed": Metric("forward work that the backward pass does again", "of the kernels' time", "trace"),
    "traced_pageable": Metric("copies from or to ordinary (pageable) memory", "of copies with the host", "trace"),
    "traced_optimizer_kernels": Metric("launched by one optimizer step, in the median", "kernels", "trace"),
}

# Besides a number, text for the operators that take longest.
ROOFLINE: dict[str, Metric] = {
    "roofline": Metric("compared matrix products, convolutions and attention reach", "of the GPU's peak", "trace"),
    **{f"roofline_{number}": Metric("reached by", "", "trace") for number in (1, 2, 3)},
}

# From steps with their parts kept apart.
TIMER: dict[str, Metric] = {
    "overlap": Metric("parts of a step that hide behind others", "of the parts", "timer"),
    "exposed_data": Metric("fetching batches that hides behind nothing", "of the step", "timer"),
    "exposed_rest": Metric("what is neither data nor training and hides behind nothing", "of the step", "timer"),
    "longer": Metric("what takes rank {} longer where all ranks begin each part together", "", "timer"),
}

METRICS: dict[str, Metric] = {
    **THREADS, **CORES, **MEMORY, **STORAGE, **NETWORK, **GPU, **HEALTH, **TRACE, **ROOFLINE, **TIMER
}  # fmt: skip


def evidence(name: str, value: float | str, about: str = "") -> Evidence:
    """A value with what the table says of its metric.

    Args:
        name: the metric's.
        value: the number, or a text where it is not a number.
        about: filled into its meaning.
    """
    metric = METRICS[name]
    return Evidence(metric.meaning.format(about), value, metric.unit, metric.probe)


def put(numbers: Numbers, name: str, value: float | None, about: str = "") -> None:
    """Notes a number, to four significant digits, unless it is None: not measured."""
    if value is not None:
        numbers[name] = evidence(name, float(f"{value:.4g}"), about)


def of_process(pid: int) -> str:
    """What a number of one trainer is about, in words."""
    return f" (process {pid})"
