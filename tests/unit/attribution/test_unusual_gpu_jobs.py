"""Jobs on a GPU that look unlike most: other drivers, other versions, ranks that nobody watches."""

from collections.abc import Mapping

import pytest

from perfdoctor.attribution.attribute import attribute
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, Fact, Sample, ThreadSample, ThreadSeen
from tests.builders import jobs
from tests.builders.gpu_hosts import BACKWARD, DISPATCH, DRIVER, FORWARD, HSA, LOOP, PID, PYTHON, SPIN, gpu_job, shares

ARITHMETIC = ("libtorch_cpu.so", "mkl_blas_avx512_sgemm_kernel")


def test_waits_of_a_driver_that_asks_for_no_time_are_waits_also_where_the_job_asks_for_it() -> None:
    """AMD's runtime does not; the job's own loop does now and then, and that vouched for no wait."""
    draining = {HSA: 0.555, DISPATCH: 0.26, PYTHON: 0.18, SPIN: 0.005}
    found = shares(gpu_job(code=draining, stacks=(FORWARD, LOOP), busy_fraction=0.6))
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.05)
    assert found.get("cpu.kernel_launch", 0.0) < 0.05


def on_cpu(variables: Mapping[str, str] | None = None) -> list[Sample]:
    """A trainer on the CPU with a PyTorch that was built for CUDA, on a machine with a GPU."""
    return [
        *jobs.process(PID, **(variables or {})),
        *jobs.thread(PID, PID, "R", run=1.0),
        *jobs.thread(PID + 1, PID, "S", name="pt_autograd_0"),
        *jobs.stacks(PID, FORWARD),
        *jobs.named(PID, PID, 1),
        *jobs.code(PID, *ARITHMETIC, round(0.6 * CODE_FREQUENCY * jobs.SECONDS)),
        *jobs.code(PID, *DISPATCH, round(0.4 * CODE_FREQUENCY * jobs.SECONDS)),
        Fact(jobs.START, "gpu", f"pid:{PID}", "device_files", "nvidia"),
    ]


def of_gpu(**levels: float) -> list[Sample]:
    return [row for name, level in levels.items() for row in jobs.readings("gpu:0", name, *[level] * 20, every_s=0.5)]


def test_a_job_that_only_counted_the_gpus_computes_on_the_cpu() -> None:
    """The first backward pass asks for the devices, which starts autograd's threads and opens the driver's files."""
    samples = [*on_cpu(), *of_gpu(busy_fraction=0.0)]
    found = shares(samples)
    assert found["cpu.model_compute"] == pytest.approx(0.6, abs=0.02)
    assert found["cpu.python_overhead"] == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(("works", "computes"), [(0.0, False), (0.3, True)])
def test_autograds_thread_works_for_a_device_that_is_used(works: float, computes: bool) -> None:
    """Of an accelerator whose driver nobody knows here it is the only trace."""
    samples = [
        *jobs.process(PID),
        *jobs.thread(PID, PID, "R", run=1.0),
        *jobs.thread(PID + 1, PID, "S", name="pt_autograd_0", run=works),
        *jobs.stacks(PID, FORWARD),
    ]
    assert jobs.timeline(samples).gpus.used_by(PID) == computes


@pytest.mark.parametrize(
    ("levels", "computes"),
    [
        ({"job_processes": 0.0, "foreign_processes": 0.0, "busy_fraction": 0.0}, False),
        ({"job_processes": 0.0, "foreign_processes": 1.0, "busy_fraction": 0.9}, False),
        # Nobody is listed on a GPU that works.
        ({"job_processes": 0.0, "foreign_processes": 0.0, "busy_fraction": 0.9}, True),
        ({"busy_fraction": 0.0}, True),
    ],
)
def test_without_machine_code_the_driver_tells_who_computes_on_its_gpu(
    levels: Mapping[str, float], computes: bool
) -> None:
    samples = [row for row in on_cpu() if not isinstance(row, CodeSample)]
    assert jobs.timeline([*samples, *of_gpu(**levels)]).gpus.used_by(PID) == computes


SPINNING = {SPIN: 0.45, DRIVER: 0.45, DISPATCH: 0.05, PYTHON: 0.05}
IN_COLLECTIVES = {
    "busy_fraction": 1.0, "sm_active_fraction": 0.3, "tensor_active_fraction": 0.1, "dram_bandwidth_fraction": 0.1,
    "power_watts": 200.0, "power_limit_watts": 700.0,
}  # fmt: skip


def test_the_only_rank_on_its_host_waits_for_ranks_that_nobody_watches() -> None:
    alone = gpu_job(code=SPINNING, **IN_COLLECTIVES)
    assert "communication.unattributed_wait" not in shares(alone)
    rank = gpu_job(code=SPINNING, rank={"RANK": "3", "WORLD_SIZE": "16"}, **IN_COLLECTIVES)
    assert shares(rank)["communication.unattributed_wait"] == pytest.approx(0.79, abs=0.02)


@pytest.mark.parametrize(("busy", "cause"), [(1.0, "communication.bandwidth"), (0.5, "cpu.kernel_launch")])
def test_ranks_with_a_host_each_are_compared(busy: float, cause: str) -> None:
    """The exchange is what both have in common, unless the GPU of one of them idles meanwhile."""
    pcie = {f"pcie_{way}_bytes_per_second": 2e9 for way in ("sent", "received")}
    hosts = []
    for number, part in enumerate((1.0, busy)):
        levels = {**IN_COLLECTIVES, **pcie, "busy_fraction": part}
        code = SPINNING if part == 1.0 else {DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}
        rank = {"RANK": str(number), "WORLD_SIZE": "2"}
        cores = jobs.readings("host", "usable_cores", 8.0)
        hosts.append(jobs.timeline([*cores, *gpu_job(code=code, rank=rank, **levels)]))
    found = attribute(*hosts)[0].causes().fractions()
    assert found[cause] >= 0.45
    assert "communication.unattributed_wait" not in found


EMPTY_CACHE = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/cuda/memory.py", "empty_cache", 222))


@pytest.mark.parametrize(
    ("states", "sampled"),
    [
        ("R", 1.0),
        ("R", 0.6),  # the rest is in the kernel
        ("RRRRRRRSSS", 0.7),  # asleep in calls on the driver's files
    ],
)
def test_a_job_that_empties_its_cache_allocates_with_room_left(states: str, sampled: float) -> None:
    """Half of the memory is in use; giving back waits for the GPU, and what is asked for again is allocated anew."""
    code = {SPIN: 0.25 * sampled, DRIVER: 0.3 * sampled, DISPATCH: 0.25 * sampled, PYTHON: 0.2 * sampled}
    levels = {"busy_fraction": 0.55, "memory_used_bytes": 40e9, "memory_total_bytes": 80e9}
    call = {"call": "ioctl", "target": "file:/dev/nvidiactl"}
    emptied = shares(gpu_job(states, code, (FORWARD, FORWARD, EMPTY_CACHE), **call, **levels))
    assert emptied["gpu.memory_pressure"] == pytest.approx(0.45, abs=0.03)
    kept = shares(gpu_job(states, code, (FORWARD, FORWARD, LOOP), **call, **levels))
    assert kept.get("gpu.memory_pressure", 0.0) < 0.01


@pytest.mark.parametrize("seen", [1.0, 0.4, 0.2])
def test_a_wait_that_asks_the_kernel_for_the_time_is_as_long_as_any(seen: float) -> None:
    """Without a clock in the kernel's shared page, or where it yields its core, most of a wait is in the kernel."""
    draining = {SPIN: 0.3 * seen, DRIVER: 0.3 * seen, DISPATCH: 0.22, PYTHON: 0.16}
    found = shares(gpu_job(code=draining, stacks=(FORWARD, LOOP), busy_fraction=0.6))
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.03)


def test_time_in_the_kernel_is_no_wait_of_a_host_that_never_asks_for_the_time() -> None:
    launching = {DRIVER: 0.15, DISPATCH: 0.4, PYTHON: 0.2}
    found = shares(gpu_job(code=launching, busy_fraction=0.6))
    assert found["cpu.kernel_launch"] == pytest.approx(0.4, abs=0.02)


YIELD = ("libc.so.6", "__sched_yield")
FULL_MEMORY = {"memory_used_bytes": 78e9, "memory_total_bytes": 80e9}


@pytest.mark.parametrize(("yields", "pressure"), [(0.08, 0.0), (0.0, 0.4)])
def test_time_in_the_kernel_is_a_wait_for_room_as_far_as_the_host_yields(yields: float, pressure: float) -> None:
    """With all memory in use, the kernel may allocate and free it; whoever is far ahead does neither."""
    launching = {YIELD: yields, DRIVER: 0.3 - yields, DISPATCH: 0.22, PYTHON: 0.03}
    found = shares(gpu_job(code=launching, stacks=(FORWARD, BACKWARD), busy_fraction=1.0, **FULL_MEMORY))
    assert found.get("gpu.memory_pressure", 0.0) == pytest.approx(pressure, abs=0.05)


def test_waits_free_no_memory_since_a_little_more_time_than_usual_is_in_the_kernel() -> None:
    """A host that reads numbers all the time, and a GPU whose memory is full; some samples are lost."""
    waiting = {SPIN: 0.07, DRIVER: 0.42, DISPATCH: 0.33, PYTHON: 0.11}
    found = shares(gpu_job(code=waiting, stacks=(FORWARD, BACKWARD), busy_fraction=0.6, **FULL_MEMORY))
    assert found["cpu.synchronization"] == pytest.approx(0.35, abs=0.03)
    assert found.get("gpu.memory_pressure", 0.0) < 0.03


SAVE = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/serialization.py", "_save", 9))
MAKE_BATCH = (Frame(jobs.OWN.file, jobs.OWN.function, 6), Frame(jobs.OWN.file, "augment", 60))


def by_halves(first: tuple[Frame, ...], code: Mapping[tuple[str, str], float], **levels: float) -> list[Sample]:
    """A GPU's host that does something in the first half of each second, in the kernel but for this, and launches."""
    samples = gpu_job(code={}, stacks=(*[first] * 10, *[FORWARD] * 10), **levels)
    for begin, kinds in ((0.0, code), (0.5, {DRIVER: 0.2, DISPATCH: 0.7, PYTHON: 0.05})):
        for (image, symbol), part in kinds.items():
            for second in range(jobs.SECONDS):
                span = {"from_s": second + begin, "until_s": second + begin + 0.47}
                samples += jobs.code(PID, image, symbol, round(part * CODE_FREQUENCY / 2), **span)
    return samples


def test_what_the_kernel_does_while_a_checkpoint_is_written_allocates_no_memory_of_the_gpu() -> None:
    found = shares(by_halves(SAVE, {}, busy_fraction=0.5, **FULL_MEMORY))
    assert found["io.checkpoint_write"] == pytest.approx(0.5, abs=0.05)
    assert found.get("gpu.memory_pressure", 0.0) < 0.05


@pytest.mark.parametrize("memory", [{}, FULL_MEMORY])
def test_new_pages_of_a_batch_that_the_kernel_clears_belong_to_its_preparation(memory: Mapping[str, float]) -> None:
    """They are no wait for the GPU, and none of its memory."""
    code = {ARITHMETIC: 0.3, PYTHON: 0.2, DISPATCH: 0.1}
    found = shares(by_halves(MAKE_BATCH, code, busy_fraction=0.4, **memory))
    assert found["cpu.input_preprocessing"] == pytest.approx(0.48, abs=0.05)


def test_pages_of_the_host_that_the_kernel_clears_are_no_memory_of_the_gpu() -> None:
    """Results that are copied into new memory after each step: 100,000 pages a second, of 4 us each."""
    code = {DRIVER: 0.2, DISPATCH: 0.35, PYTHON: 0.05}
    samples = [row for row in gpu_job(code=code, busy_fraction=0.6, **FULL_MEMORY) if not is_of_main(row)]
    assert shares([*samples, *jobs.thread(PID, PID, run=1.0)])["gpu.memory_pressure"] == pytest.approx(0.35, abs=0.05)
    cost = Fact(jobs.START, "memory", "host", "minor_fault_seconds", "4e-6")
    faults = jobs.thread(PID, PID, run=1.0, minor_faults=lambda seconds: 1e5 * seconds)
    assert shares([*samples, *faults, cost]).get("gpu.memory_pressure", 0.0) < 0.02


def is_of_main(row: Sample) -> bool:
    return isinstance(row, ThreadSample | ThreadSeen) and row.tid == PID


def test_whoever_yields_at_barriers_of_the_pool_waits_for_no_gpu() -> None:
    """Intel's OpenMP yields the core there; here beside an optimizer that computes on the CPU."""
    updates = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/optim/adam.py", "step", 9))
    code = {("libiomp5.so", "~"): 0.3, YIELD: 0.1, ARITHMETIC: 0.2}
    found = shares(by_halves(updates, code, busy_fraction=0.4))
    assert found["cpu.python_overhead"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("code", "each", "busy", "cause"),
    [
        # Layers on four GPUs, of which one works at a time.
        ({SPIN: 0.45, DRIVER: 0.41, DISPATCH: 0.07, PYTHON: 0.07}, 0.24, 0.82, "gpu.compute"),
        # Whoever does not wait has GPUs that work at the same time, as far as is known.
        ({DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}, 0.4, 0.4, "cpu.kernel_launch"),
    ],
)
def test_of_several_gpus_of_a_process_one_works_while_it_waits(
    code: Mapping[tuple[str, str], float], each: float, busy: float, cause: str
) -> None:
    samples = gpu_job(code=code, stacks=(FORWARD, LOOP), busy_fraction=each)
    for number in range(1, 4):
        samples += jobs.readings(f"gpu:{number}", "busy_fraction", *[each] * 20, every_s=0.5, probe="gpu")
        samples += jobs.readings(f"gpu:{number}/pid:{PID}", "memory_bytes", 1e9, 1e9, probe="gpu")
    found = shares(samples)
    assert max(found, key=lambda one: found[one]) == cause
    assert found["gpu.compute"] == pytest.approx(busy, abs=0.03)
    assert found.get("gpu.host_transfer", 0.0) < 0.1


@pytest.mark.parametrize(
    "code",
    [
        ("libtorch_cpu.so", "_ZN2at6native6AVX51217adam_fused_kernelE"),
        ("cpu_adam.so", "_ZN14Adam_Optimizer6Step_8EPfS0_S0_S0_m"),
    ],
    ids=["torch's", "DeepSpeed's"],
)
def test_parameters_that_are_updated_on_the_cpu_hold_a_gpu_up(code: tuple[str, str]) -> None:
    """What is offloaded saves memory of the GPU; it had been launching, or no bottleneck."""
    updates = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/optim/adam.py", "step", 9))
    mix = {code: 0.6, SPIN: 0.1, DRIVER: 0.1, DISPATCH: 0.1, PYTHON: 0.1}
    samples = gpu_job(code=mix, stacks=(FORWARD, updates, updates), busy_fraction=0.14)
    found = shares(samples)
    assert found["cpu.python_overhead"] == pytest.approx(0.6, abs=0.1)
    assert "cpu.model_compute" not in found
    [account] = attribute(jobs.timeline(samples))
    assert account.activities.seconds["on_host"] == pytest.approx(0.6 * account.seconds, rel=0.1)
    assert account.lines["cpu.python_overhead"]


def test_a_rank_asleep_in_a_barrier_waits_for_the_rank_that_is_not_there() -> None:
    """As gloo's do; the GPU idles meanwhile, and it is nothing of the GPU's that is waited for."""
    barrier = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "barrier", 1))
    levels = {"busy_fraction": 0.2}
    ranks = [{"RANK": str(number), "WORLD_SIZE": "2"} for number in range(2)]
    code = {PYTHON: 0.8, DISPATCH: 0.2}
    samples = [
        *gpu_job("R", code, (LOOP,), rank=ranks[0], **levels),
        *gpu_job("RSSSS", {DISPATCH: 0.2}, (barrier,), pid=200, gpu=1, rank=ranks[1], **levels),
    ]
    waiting = attribute(jobs.timeline([*jobs.readings("host", "usable_cores", 8.0), *samples]))[1]
    assert waiting.waited_for()[0] / waiting.seconds == pytest.approx(0.8, abs=0.1)
    found = waiting.causes().fractions()
    assert found["cpu.python_overhead"] >= 0.5
    assert found.get("gpu.host_transfer", 0.0) + found.get("cpu.synchronization", 0.0) < 0.1
