"""The simulated GPU and its NVML: the launch queue, collectives, windows, and what labelled jobs read on an H100."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.gpu_jobs.device import H100, QUEUE, Gpu, Meeting, Op, Use
from tests.gpu_jobs.events import MS, US, S, Simulation, Task
from tests.gpu_jobs.job import Clocks, Job, Kernels, Step, Unsure, Watch
from tests.gpu_jobs.nvml import SimulatedNvml

BUSY = Use(sm=0.9, tensor=0.5, dram=0.4)
SOME = Kernels(1, 10, 10, BUSY)
STEP = Step(SOME, SOME, SOME)


def driver(gpu: Gpu, at_s: float, **job: object) -> SimulatedNvml:
    nvml = SimulatedNvml(Job((STEP,), unsure=Unsure(memory_factor=1.0), **job), [gpu], {gpu.index: 1})
    nvml.now_ns = round(at_s * S)
    return nvml


def gpm(nvml: SimulatedNvml, gpu: Gpu, name: str, *, over_s: float) -> float:
    first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    now = nvml.now_ns
    nvml.now_ns = now - round(over_s * S)
    nvml.nvmlGpmSampleGet(gpu, first)
    nvml.now_ns = now
    nvml.nvmlGpmSampleGet(gpu, second)
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.numMetrics, request.sample1, request.sample2 = 1, first, second
    request.metrics[0].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
    metric = nvml.nvmlGpmMetricsGet(request).metrics[0]
    assert metric.nvmlReturn == 0
    return float(metric.value)


def launched(launches: int, kernel_us: float) -> list[int]:
    """When each of so many launches of long kernels returned; one costs the host 5 us."""
    sim = Simulation(0)
    stream = Gpu(sim, 0, H100).stream()
    returned = []

    def host() -> Task:
        for _ in range(launches):
            yield 5 * US
            while (room := stream.room_at(1)) is not None and room > sim.now:
                yield room - sim.now
            stream.launch(Op(1, round(kernel_us * US), BUSY))
            returned.append(sim.now)

    sim.spawn(host())
    sim.run(10 * S)
    return returned


def test_the_queue_is_full_after_1024_launches_and_then_each_takes_a_kernel() -> None:
    """As measured: some 1000 launches of 5 us, and then one per kernel (Stack Overflow 53970187)."""
    returned = launched(1500, 190)
    between = [later - earlier for earlier, later in pairwise(returned)]
    # 1024 are pending, and those that began in the meantime.
    first = next(number for number, gap in enumerate(between) if gap > 5 * US)
    assert QUEUE <= first <= QUEUE + 40
    assert between[first + 1 :] == [190 * US] * (len(between) - first - 1)


def test_the_host_runs_ahead_of_short_kernels_for_ever() -> None:
    returned = launched(3000, 3)
    assert returned[-1] == 3000 * 5 * US


def test_a_collective_waits_for_the_last_rank_and_ends_for_all_at_once() -> None:
    sim = Simulation(0)
    gpus = [Gpu(sim, index, H100) for index in range(3)]
    meeting = Meeting(3, 2 * MS, Use(sm=0.1), Use(sm=0.2, nvlink=1e9))
    parts = []
    for late, gpu in enumerate(gpus):
        work = gpu.stream().launch(Op(1, 10 * late * MS, BUSY))
        parts.append(gpu.stream().launch(Op(1, 0, Use(), (work,), meeting)))
    assert [part.start for part in parts] == [0, 10 * MS, 20 * MS]
    assert [part.end for part in parts] == [22 * MS] * 3
    waits = [(start, end) for start, end, use in gpus[0].intervals if use is meeting.waiting]
    assert waits == [(0, 20 * MS)]


def test_what_follows_a_collective_waits_with_it() -> None:
    sim = Simulation(0)
    first, last = Gpu(sim, 0, H100), Gpu(sim, 1, H100)
    meeting = Meeting(2, MS, Use(), Use())
    stream = first.stream()
    part = stream.launch(Op(1, 0, Use(), (), meeting))
    update = first.stream().launch(Op(1, MS, BUSY, (part,)))
    assert update.start is None
    assert stream.drained_at() is None
    sim.run(5 * MS)
    last.stream().launch(Op(1, 0, Use(), (), meeting))
    assert (update.start, update.end) == (6 * MS, 7 * MS)


def pulsed(use: Use, part: float, *, seconds: float = 10.0, period_ms: float = 10.0) -> Gpu:
    """A GPU on which something runs for a part of each period."""
    gpu = Gpu(Simulation(0), 0, H100)
    period = round(period_ms * MS)
    for start in range(-2 * S, round(seconds * S), period):
        gpu.note(start, start + round(part * period), use)
    return gpu


def test_utilisation_is_of_the_last_whole_window() -> None:
    """A pause shows only when its window has ended, and then for as long as a window."""
    gpu = Gpu(Simulation(0), 0, H100)
    gpu.note(0, 3 * S, BUSY)
    gpu.note(4 * S, 6 * S, BUSY)
    read = [driver(gpu, at).nvmlDeviceGetUtilizationRates(gpu).gpu for at in (2.9, 3.1, 3.5, 4.1, 4.4)]
    assert read == [100, 100, 0, 0, 100]


def test_utilisation_counts_kernels_and_no_copies() -> None:
    copies = pulsed(Use(kernel=False, pcie_in=2e10), 1.0)
    assert driver(copies, 5).nvmlDeviceGetUtilizationRates(copies).gpu == 0
    assert gpm(driver(copies, 5), copies, "PCIE_RX_PER_SEC", over_s=0.5) * 2**20 == pytest.approx(2e10, rel=0.01)


def test_an_idle_gpu_reads_nothing_and_draws_its_idle_power() -> None:
    gpu = Gpu(Simulation(0), 0, H100)
    nvml = driver(gpu, 5)
    assert nvml.nvmlDeviceGetUtilizationRates(gpu) == SimpleNamespace(gpu=0, memory=0)
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 120_000  # a loaded model on an H100 that does nothing
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 1
    assert gpm(nvml, gpu, "SM_UTIL", over_s=0.5) == 0


def test_energy_is_the_integral_of_power() -> None:
    gpu = pulsed(BUSY, 0.5)
    nvml = driver(gpu, 2)
    before = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    watts = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
    nvml.now_ns = 6 * S
    assert (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before) / 4000 == pytest.approx(watts, rel=0.02)


# Means of labelled jobs on 8 H100s at 700 W (atharvanihalani/gpu-telemetry-exploration): watts, utilisation, activity
# of multiprocessors, tensor cores and memory, and bytes of NVLink per second.
LABELLED = {
    "compute-bound": (689, 1.0, 0.88, 0.58, 0.37, 1.5e9),
    "small kernels": (547, 0.85, 0.64, 0.19, 0.32, 8.9e9),
    "tensor and pipeline parallel, waiting": (418, 0.99, 0.45, 0.11, 0.32, 50e9),
    "offloaded to the host": (186, 0.14, 0.09, 0.06, 0.04, 5e9),
    "idle": (120, 0.0, 0.0, 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("label", LABELLED)
def test_labelled_jobs_read_as_they_did_on_an_h100(label: str) -> None:
    watts, busy, sm, tensor, dram, link = LABELLED[label]
    part = busy or 1.0
    use = Use(kernel=busy > 0, sm=sm / part, tensor=tensor / part, dram=dram / part, nvlink=link / part)
    gpu = pulsed(use, part)
    nvml = driver(gpu, 5)
    assert nvml.nvmlDeviceGetPowerUsage(gpu) / 1000 == pytest.approx(watts, rel=0.12)
    assert nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == pytest.approx(100 * busy, abs=6)
    for name, value in (("SM_UTIL", sm), ("ANY_TENSOR_UTIL", tensor), ("DRAM_BW_UTIL", dram)):
        assert gpm(nvml, gpu, name, over_s=1) == pytest.approx(100 * value, abs=0.5)


def test_a_compute_bound_board_is_held_by_its_power_limit_at_slightly_lower_clocks() -> None:
    """SwPowerCap is set on every well-fed H100, with clocks 3 to 11 % lower."""
    gpu = pulsed(Use(sm=0.92, tensor=0.62, dram=0.4), 1.0)
    nvml = driver(gpu, 5)
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x4
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 700_000
    assert 0.89 <= nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) / 1980 <= 0.97


def test_a_rank_that_waits_in_a_collective_is_busy_at_low_power() -> None:
    """152 of 700 W at 100 % were seen (NVIDIA/nccl issue 1550)."""
    gpu = pulsed(Use(sm=0.14, heat=0.5), 1.0)
    nvml = driver(gpu, 5)
    assert nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 100
    assert 130_000 <= nvml.nvmlDeviceGetPowerUsage(gpu) <= 170_000


def test_lowered_clocks_slow_kernels_and_show_their_reason() -> None:
    sim = Simulation(0)
    gpu = Gpu(sim, 0, H100)
    gpu.slower = 1 / 0.45
    op = gpu.stream().launch(Op(1, 9 * MS, BUSY))
    assert op.end == 20 * MS
    held = pulsed(BUSY, 1.0)
    nvml = driver(held, 5, clocks=(Clocks(0.45, 0x8),))
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(held) == 0x8
    assert nvml.nvmlDeviceGetClockInfo(held, nvml.NVML_CLOCK_SM) == pytest.approx(0.45 * 1980, abs=15)
    # Less power than at full clocks, by more than the clocks.
    assert nvml.nvmlDeviceGetPowerUsage(held) < 0.5 * driver(held, 5).nvmlDeviceGetPowerUsage(held)


def test_counters_of_nvlink_grow_by_what_it_carries() -> None:
    gpu = pulsed(Use(sm=0.16, nvlink=150e9), 0.5)
    counts = [driver(gpu, at).nvmlDeviceGetFieldValues(gpu, [(138, 0xFFFFFFFF)])[0].value.ullVal for at in (3, 5)]
    assert (counts[1] - counts[0]) * 1024 / 2 == pytest.approx(75e9, rel=0.01)
    refusing = SimulatedNvml(Job((STEP,), unsure=Unsure(counts_links=False)), [gpu], {0: 1})
    assert refusing.nvmlDeviceGetFieldValues(gpu, [(138, 0xFFFFFFFF)])[0].nvmlReturn


def test_a_partition_has_no_utilisation() -> None:
    gpu = pulsed(BUSY, 1.0)
    nvml = driver(gpu, 5, watch=Watch(device="mig"))
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetUtilizationRates(gpu)
    assert not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice
