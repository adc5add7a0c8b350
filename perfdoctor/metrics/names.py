"""Names of the numbers that rules rest on: what each is, its unit, and the probe that saw it.

``{}`` stands for what the number is about. Fractions are 0 to 1, and their units say of what.
"""

Meaning = tuple[str, str, str]

_OF_TIME = "of the time"

THREADS: dict[str, Meaning] = {
    "trainer_running": ("trainer's main thread on a core", _OF_TIME, "threads"),
    "trainer_run_delay": ("trainer's main thread itself ready but without a core", _OF_TIME, "threads"),
    "trainer_switches": ("voluntary context switches of the trainer's main thread", "/s", "threads"),
    "trainer_major_faults": ("major page faults of the trainer's main thread", "/s", "threads"),
    "trainer_cores": ("kept busy by one trainer's threads", "cores", "threads"),
    "worker_busy": ("loader workers not waiting for work", _OF_TIME, "threads"),
    "workers_busy": ("loader workers of a trainer{} that are busy at a time", "workers", "threads"),
    "busiest_worker": ("busiest loader worker of a trainer{} not waiting for work", _OF_TIME, "threads"),
    "next_busiest_worker": ("next busiest loader worker of a trainer{} not waiting for work", _OF_TIME, "threads"),
    "worker_cores": ("kept busy by all loader workers", "cores", "threads"),
    "worker_run_delay": ("loader workers ready but without a core", _OF_TIME, "threads"),
    "worker_starts": ("loader workers started", "/min", "processes"),
    "worker_life": ("median life of a loader worker that ended", "s", "processes"),
    "own_fetching": ("trainer{} preparing batches in its main thread", _OF_TIME, "stacks"),
    "own_sampling": ("trainer{} drawing indices for its loader in its main thread", _OF_TIME, "stacks"),
    "own_compiling": ("trainer{} compiling its model (torch.compile)", _OF_TIME, "stacks"),
    "interpreter_code": ("of interpreter and dispatch, Python's interpreter", "of the samples", "code"),
    "library_code": ("of what runs around the arithmetic, libraries other than torch", "of the samples", "code"),
    "runnable_threads": ("threads of the job on a core or queueing for one, at a time", "threads", "threads"),
}

CORES: dict[str, Meaning] = {
    "job_cores": ("kept busy by the job", "cores", "cpu"),
    "neighbour_cores": ("kept busy by processes outside the job", "cores", "cpu"),
    "host_cores_busy": ("busy on the host", "cores", "cpu"),
    "stolen_cores": ("taken away by the hypervisor", "cores", "cpu"),
    "own_cores": ("kept busy by perfdoctor itself", "cores", "cpu"),
    "cpu_pressure": ("some task on the host waited for a core", _OF_TIME, "cpu"),
    "throttled_periods": ("quota periods in which the control group was stopped", "of periods", "cpu"),
    "throttled_cores": ("stopped by the quota at a time", "cores", "cpu"),
}

MEMORY: dict[str, Meaning] = {
    "swap_in": ("read back from swap", "MB/s", "memory"),
    "swap_out": ("written to swap", "MB/s", "memory"),
    "swapped": ("memory of the job that is swapped out", "MB", "memory"),
    "refaults": ("pages read again soon after the page cache dropped them", "/s", "memory"),
    "major_faults": ("major page faults of the job", "/s", "memory"),
    "memory_pressure": ("all tasks stalled for memory", _OF_TIME, "memory"),
    "memory_available": ("available memory", "MB", "memory"),
    "trainer_rss": ("resident memory of the trainers", "MB", "memory"),
}

STORAGE: dict[str, Meaning] = {
    "read_by_calls": ("asked for by read calls", "MB/s", "io"),
    "read_calls": ("read calls", "/s", "io"),
    "read_from_storage": ("read from storage", "MB/s", "io"),
    "written_by_calls": ("handed to write calls", "MB/s", "io"),
    "write_calls": ("write calls", "/s", "io"),
    "written_to_storage": ("written to storage", "MB/s", "io"),
    "bytes_per_read": ("asked for by one read call", "bytes", "io"),
    "page_cache": ("of what read calls asked for came from the page cache", "of bytes", "io"),
    "device_busy": ("device {} had requests under way", _OF_TIME, "io"),
    "device_read": ("delivered by device {}", "MB/s", "io"),
    "device_written": ("stored by device {}", "MB/s", "io"),
    "read_latency": ("taken by one read of device {}", "ms", "io"),
    "read_from_server": ("read from network file systems", "MB/s", "io"),
}

NETWORK: dict[str, Meaning] = {
    "received": ("received over all network interfaces", "MB/s", "network"),
    "loopback": ("of what was received came from this host itself", "of bytes", "network"),
    "sent": ("sent over all network interfaces", "MB/s", "network"),
    "packets": ("packets received", "/s", "network"),
    "bytes_per_packet": ("in a packet", "bytes", "network"),
    "retransmits": ("TCP segments sent again", "of segments", "network"),
}

GPU: dict[str, Meaning] = {
    "gpus": ("GPUs that the job uses", "GPUs", "gpu"),
    "gpu_busy": ("GPU ran some kernel", _OF_TIME, "gpu"),
    "gpu_sm": ("multiprocessors with work", _OF_TIME, "gpu"),
    "gpu_occupancy": ("warp slots in use", _OF_TIME, "gpu"),
    "gpu_tensor": ("tensor cores busy", _OF_TIME, "gpu"),
    "gpu_dram": ("GPU memory bandwidth in use", _OF_TIME, "gpu"),
    "gpu_fp32": ("single-precision units busy", _OF_TIME, "gpu"),
    "gpu_fp16": ("half-precision units busy", _OF_TIME, "gpu"),
    "gpu_foreign_sm": ("GPU used by other jobs", _OF_TIME, "gpu"),
    "gpu_foreign_processes": ("processes of other jobs on the GPU", "processes", "gpu"),
    "gpu_limited_by_power": ("GPU clock held down by the power limit", _OF_TIME, "gpu"),
    "gpu_limited_by_heat": ("GPU clock held down by heat", _OF_TIME, "gpu"),
    "gpu_limited_by_hardware": ("GPU clock held down by the hardware", _OF_TIME, "gpu"),
    "gpu_clock": ("GPU clock", "MHz", "gpu"),
    "gpu_clock_max": ("highest GPU clock", "MHz", "gpu"),
    "gpu_clock_deficit": ("GPU clock below its highest", "of the clock", "gpu"),
    "gpu_power": ("GPU power", "W", "gpu"),
    "gpu_power_limit": ("GPU power limit", "W", "gpu"),
    "gpu_temperature": ("GPU temperature", "°C", "gpu"),
    "gpu_memory": ("GPU memory in use", "MB", "gpu"),
    "gpu_memory_share": ("GPU memory in use", "of the memory", "gpu"),
    "gpu_pcie_received": ("received over PCIe", "MB/s", "gpu"),
    "gpu_pcie_sent": ("sent over PCIe", "MB/s", "gpu"),
    "gpu_nvlink_received": ("received over NVLink", "MB/s", "gpu"),
}

TRACE: dict[str, Meaning] = {
    "traced_busy": ("GPU had work, in the trace", _OF_TIME, "trace"),
    "traced_kernels": ("kernels and copies started on a GPU", "/s", "trace"),
    "traced_kernel_time": ("taken by one kernel, in the median", "µs", "trace"),
    "traced_short_kernels": ("kernels that take less than 10 µs", "of kernels", "trace"),
    "traced_launch_delay": ("from a launch to its kernel on an idle GPU, in the median", "µs", "trace"),
    "traced_waits": ("calls that wait for the GPU", "/s", "trace"),
    "traced_waiting": ("threads wait for the GPU in such calls", _OF_TIME, "trace"),
    "traced_blocked": ("threads wait in copies to the GPU until it gets to them", _OF_TIME, "trace"),
    "traced_allocations": ("calls that allocate or free GPU memory", "/s", "trace"),
    "traced_operators": ("operators called in one step, those inside others not counted", "operators", "trace"),
    "traced_compiling": ("the model is compiled (torch.compile)", _OF_TIME, "trace"),
    "traced_loading": ("main thread fetches batches, in the trace", _OF_TIME, "trace"),
    "traced_memory": ("GPU memory that PyTorch had reserved at most", "of the memory", "trace"),
    "traced_copies": ("copies between host and GPU with nothing else on the GPU", _OF_TIME, "trace"),
    "traced_collectives": ("collectives on a GPU", "/s", "trace"),
    "traced_exposed": ("collectives with nothing else on the GPU", _OF_TIME, "trace"),
    "traced_hidden": ("collectives behind other work of the GPU", _OF_TIME, "trace"),
    "traced_beside": ("taken by kernels beside a collective", "times as long as by the same ones alone", "trace"),
    "traced_lengthened": ("kernels at least take longer because collectives run beside them", _OF_TIME, "trace"),
    "traced_lengthened_step": ("of each step, by which kernels take longer beside collectives", "ms", "trace"),
    "traced_behind": ("taken by collectives behind kernels", "times as long as by the same ones alone", "trace"),
    "traced_held_up": ("exposed transfer that the same collectives would not take alone", _OF_TIME, "trace"),
    "traced_bus_alone": ("bus bandwidth of the collective that takes most, when alone", "GB/s", "trace"),
    "traced_bus_behind": ("bus bandwidth of the same collective behind kernels", "GB/s", "trace"),
    "traced_tensor_cores": ("matrix kernels whose names tell of tensor cores", "of their time", "trace"),
    **{
        f"traced_matrix_{precision}": (f"matrix kernels in {precision}", "of their time", "trace")
        for precision in ("fp8", "bf16", "fp16", "tf32", "fp64", "fp32")
    },
    "traced_same_kernels": ("taken on the late rank by the same kernels", "times as long as on others", "trace"),
    "traced_layout": ("kernels that only change a tensor's layout", "of the kernels' time", "trace"),
    "traced_softmax": ("softmax kernels of their own", "of the kernels' time", "trace"),
    "traced_fused_attention": ("fused attention kernels", "of the kernels' time", "trace"),
    "traced_recomputed": ("forward work that the backward pass does again", "of the kernels' time", "trace"),
    "traced_pageable": ("copies from or to ordinary (pageable) memory", "of copies with the host", "trace"),
    "traced_optimizer_kernels": ("launched by one optimizer step, in the median", "kernels", "trace"),
}

# Besides a number, text for the operators that take longest.
ROOFLINE: dict[str, Meaning] = {
    "roofline": ("compared matrix products, convolutions and attention reach", "of the GPU's peak", "trace"),
    **{f"roofline_{number}": ("reached by", "", "trace") for number in (1, 2, 3)},
}

# From steps with their parts kept apart.
TIMER: dict[str, Meaning] = {
    "overlap": ("parts of a step that hide behind others", "of the parts", "timer"),
    "exposed_data": ("fetching batches that hides behind nothing", "of the step", "timer"),
    "exposed_rest": ("what is neither data nor training and hides behind nothing", "of the step", "timer"),
    "longer": ("what takes rank {} longer where all ranks begin each part together", "", "timer"),
}

MEANINGS: dict[str, Meaning] = {
    **THREADS, **CORES, **MEMORY, **STORAGE, **NETWORK, **GPU, **TRACE, **ROOFLINE, **TIMER
}  # fmt: skip
