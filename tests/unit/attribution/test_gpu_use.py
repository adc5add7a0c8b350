"""What the GPUs of a trainer are busy with, from their driver's readings and from what H100s and A100s showed."""

import pytest

from perfdoctor.attribution.driver_calls import without_mapping
from perfdoctor.attribution.gpu_use import GpuReader, GpuUse
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import Fact, Sample
from perfdoctor.timeline.readings import Readings
from tests.builders import jobs

SHORT = {
    "busy": "busy_fraction",
    "sm": "sm_active_fraction",
    "tensor": "tensor_active_fraction",
    "dram": "dram_bandwidth_fraction",
    "fp32": "fp32_active_fraction",
    "watts": "power_watts",
    "joules": "energy_joules_total",
    "limit": "power_limit_watts",
    "default_limit": "power_limit_default_watts",
    "foreign": "foreign_sm_fraction",
    "clock": "sm_clock_hertz",
    "highest": "sm_clock_max_hertz",
    "by_power": "clocks_limited_by_power",
    "by_heat": "clocks_limited_by_heat",
    "by_hardware": "clocks_limited_by_hardware",
    "received": "pcie_received_bytes_per_second",
    "sent": "pcie_sent_bytes_per_second",
    "over_nvlink": "nvlink_sent_bytes_per_second",
}
H100 = {"limit": 700.0, "clock": 1980.0, "highest": 1980.0}


A100 = {"capability": "8.0", "limit": 400.0}


def gpu(number: int = 0, capability: str = "9.0", **levels: float | list[float]) -> list[Sample]:
    """A GPU whose readings stay as they are, or take turns."""
    samples: list[Sample] = [Fact(jobs.START, "gpu", f"gpu:{number}", "compute_capability", capability)]
    for name, level in levels.items():
        values = level if isinstance(level, list) else [level] * 20
        samples += jobs.readings(f"gpu:{number}", SHORT[name], *values, every_s=0.5, probe="gpu")
    return samples


def use_of(
    samples: list[Sample], number: int = 0, ranks: int = 1, *, asks: bool = False, unseen: bool = False
) -> GpuUse:
    with jobs.recorded(samples) as recording:
        each = [[f"gpu:{rank}"] for rank in range(ranks)]
        reader = GpuReader(Readings(recording), each, asks_for_exchange=asks, unseen_ranks=unseen)
        return reader.read([f"gpu:{number}"])


# Means of labelled jobs on 8 H100s (DCGM, 10 Hz): the README of atharvanihalani/gpu-telemetry-exploration names them.
# Two of them are inference, one beside training on the other four GPUs; what a host waits for, it does not have.
COMPUTE_BOUND = {"busy": 1.0, "sm": 0.88, "tensor": 0.58, "dram": 0.37, "watts": 689.0, "over_nvlink": 1.5e9}
BESIDE_INFERENCE = {"busy": 0.99, "sm": 0.86, "tensor": 0.48, "dram": 0.44, "watts": 685.0, "over_nvlink": 2.4e10}
SMALL_KERNELS = {"busy": 0.85, "sm": 0.64, "tensor": 0.19, "dram": 0.32, "watts": 547.0, "over_nvlink": 8.9e9}
PIPELINE_BUBBLES = {"busy": 0.99, "sm": 0.45, "tensor": 0.11, "dram": 0.32, "watts": 418.0, "over_nvlink": 5e10}
HOST_BOUND = {"busy": 0.14, "sm": 0.09, "tensor": 0.06, "dram": 0.04, "watts": 186.0, "over_nvlink": 5e9}
SPECULATIVE_DECODING = {"busy": 0.69, "sm": 0.24, "tensor": 0.04, "dram": 0.15, "watts": 207.0, "over_nvlink": 0.0}
STREAMED_INFERENCE = {"busy": 0.06, "sm": 0.03, "tensor": 0.0, "dram": 0.03, "watts": 132.0, "over_nvlink": 0.0}
ONE_WAY = {"sent": 3e7, "received": 2.9e8}
LOADED_AND_IDLE = {"busy": 0.0, "sm": 0.0, "tensor": 0.0, "dram": 0.0, "watts": 120.0, "over_nvlink": 0.0}


IDLE, EXCHANGE, FEW = "idle", "communication.bandwidth", "gpu.low_occupancy"


@pytest.mark.parametrize(
    ("job", "ranks", "most", "part", "others"),
    [
        (COMPUTE_BOUND, 8, "gpu.compute", 1.0, 0.02),
        (BESIDE_INFERENCE, 4, "gpu.compute", 0.99, 0.02),
        # Nothing holds these up for long; a sixth of the time the host is late.
        (SMALL_KERNELS, 8, "gpu.compute", 0.85, 0.15),
        # Who waits in a pipeline's bubble, and whose kernels are small, cannot be told apart further.
        (PIPELINE_BUBBLES, 8, "gpu.compute", 0.53, 0.4),
        (HOST_BOUND, 8, IDLE, 0.86, 0.12),
        # No rank exchanges anything: these are small kernels.
        (SPECULATIVE_DECODING, 8, FEW, 0.41, 0.31),
        (SPECULATIVE_DECODING, 1, FEW, 0.41, 0.31),
        (STREAMED_INFERENCE, 4, IDLE, 0.94, 0.05),
        (LOADED_AND_IDLE, 8, IDLE, 1.0, 0.01),
    ],
)
def test_what_labelled_jobs_on_h100s_spend_their_time_on(
    job: dict[str, float], ranks: int, most: str, part: float, others: float
) -> None:
    """Of the wall time the largest part, and what no other one exceeds."""
    samples = [row for number in range(ranks) for row in gpu(number, **H100, **ONE_WAY, **job)]
    parts = {cause: part * job["busy"] for cause, part in use_of(samples, ranks=ranks).parts.items()}
    parts[IDLE] = 1 - job["busy"]
    assert max(parts, key=lambda cause: parts[cause]) == most
    assert parts.pop(most) == pytest.approx(part, abs=0.03)
    assert max(parts.values()) <= others + 0.005


def test_a_labelled_job_with_pipeline_bubbles_waits_in_collectives() -> None:
    samples = [row for number in range(8) for row in gpu(number, **H100, **ONE_WAY, **PIPELINE_BUBBLES)]
    parts = use_of(samples, ranks=8).parts
    assert 0.35 <= parts[EXCHANGE] <= 0.65
    assert sum(part for cause, part in parts.items() if cause not in (EXCHANGE, "gpu.compute")) < 0.1


def test_power_alone_tells_a_wait_in_a_collective() -> None:
    # NVIDIA/nccl issue 1550: 152 of 700 W, fully used.
    assert use_of(gpu(**H100, busy=1.0, watts=152.0), ranks=8).parts["communication.bandwidth"] > 0.95
    assert "communication.bandwidth" not in use_of(gpu(**H100, busy=1.0, watts=152.0)).parts


# Kernels on some of the multiprocessors at little power: small ones, or those of collectives.
LOW = {"busy": 1.0, "sm": 0.4, "tensor": 0.05, "dram": 0.1, "watts": 300.0, "fp32": 0.0}
NO_BYTES = {"sent": 2e7, "received": 2e7, "over_nvlink": 1e9}


@pytest.mark.parametrize(
    ("moved", "asks", "cause"),
    [
        (NO_BYTES, False, "gpu.low_occupancy"),
        # Batches come from the host, and nothing goes back.
        ({**NO_BYTES, "received": 3e9}, False, "gpu.low_occupancy"),
        ({**NO_BYTES, "sent": 3e9, "received": 3e9}, False, "communication.bandwidth"),
        ({**NO_BYTES, "over_nvlink": 6e10}, False, "communication.bandwidth"),
        # Many small collectives move next to nothing.
        (NO_BYTES, True, "communication.bandwidth"),
    ],
)
def test_what_ranks_have_in_common_is_an_exchange_only_with_bytes_or_if_asked_for(
    moved: dict[str, float], asks: bool, cause: str
) -> None:
    samples = [row for number in range(2) for row in gpu(number, **H100, **LOW, **moved)]
    parts = use_of(samples, ranks=2, asks=asks).parts
    assert parts[cause] > 0.4
    assert sum(part > 0.1 for name, part in parts.items() if name != "gpu.compute") == 1


@pytest.mark.parametrize(
    ("levels", "exchanged", "unobserved"),
    [
        # NVIDIA/nccl issue 1550: 152 of 700 W, fully used, and nobody says what links carry.
        ({"busy": 1.0, "watts": 152.0}, 0.0, 1.0),
        ({**LOW, **NO_BYTES, "sm": 0.25, "watts": 175.0}, 0.0, 0.85),
        # Links between hosts: slow ones would take all of that for so many bytes.
        ({**LOW, "sm": 0.25, "watts": 175.0, "sent": 3e9, "received": 3e9}, 0.85, 0.0),
        # Kernels may need so little power, and nothing else says what they use.
        ({"busy": 1.0, "watts": 400.0}, 0.0, 0.0),
        # Whoever exchanges nothing waits for nobody.
        ({**LOW, "sent": 2e7, "received": 2e7, "over_nvlink": 0.0}, 0.0, 0.0),
        (COMPUTE_BOUND, 0.0, 0.0),
    ],
)
def test_a_rank_waits_in_collectives_also_where_nobody_watches_the_others(
    levels: dict[str, float], exchanged: float, unobserved: float
) -> None:
    """One GPU on each host, and one host is watched."""
    parts = use_of(gpu(**H100, **levels), unseen=True).parts
    assert parts.get(EXCHANGE, 0.0) == pytest.approx(exchanged, abs=0.05)
    assert parts.get("communication.unattributed_wait", 0.0) == pytest.approx(unobserved, abs=0.05)


def test_power_of_moments_tells_waits_for_unwatched_ranks() -> None:
    """It is read now and then in kernels, which draw 0.75 of the limit, and three times as often in collectives."""
    levels = {"busy": 1.0, "watts": [300.0, 88.0, 88.0, 88.0] * 5}
    parts = use_of(gpu(**A100, **levels), unseen=True).parts
    assert parts["communication.unattributed_wait"] == pytest.approx(0.75, abs=0.03)


def test_kernels_of_which_slow_links_would_not_explain_much_are_small() -> None:
    """What links carry takes 0.04 to 0.17 of the time, and multiprocessors idle for 0.4 of it."""
    samples = [row for number in range(2) for row in gpu(number, **H100, **{**LOW, "sm": 0.55}, over_nvlink=1.25e10)]
    parts = use_of(samples, ranks=2).parts
    assert parts["gpu.low_occupancy"] > 0.3
    assert parts[EXCHANGE] == pytest.approx(1.25e10 / thresholds.FAST_NVLINK_BYTES_PER_S)


@pytest.mark.parametrize(
    ("watts", "part"),
    [
        # Some readings are of moments in which it waits.
        ([400.0, 400.0, 400.0, 88.0], 0.25),
        # Kernels that draw less do so all the time.
        ([305.0, 300.0, 303.0, 304.0], 0.0),
    ],
)
def test_power_of_moments_tells_waits_from_kernels_that_need_less(watts: list[float], part: float) -> None:
    joules = [0.5 * number * sum(watts) / 4 for number in range(20)]
    levels = {"busy": 1.0, "watts": watts * 5, "joules": joules, "over_nvlink": 6e10}
    samples = [row for number in range(2) for row in gpu(number, **A100, **levels)]
    assert use_of(samples, ranks=2).parts.get(EXCHANGE, 0.0) == pytest.approx(part, abs=0.02)


def test_the_gpu_of_a_late_rank_idles() -> None:
    others = gpu(0, **H100, **LOW, **NO_BYTES)
    late = gpu(1, **H100, **{**LOW, "busy": 0.5}, **NO_BYTES)
    assert use_of([*others, *late], ranks=2).parts["communication.bandwidth"] > 0.4


def test_kernels_that_draw_the_power_of_all_multiprocessors_fill_them() -> None:
    levels = {"busy": 1.0, "sm": 0.65, "tensor": 0.45, "dram": 0.3, "fp32": 0.0}
    assert use_of(gpu(**H100, **levels, watts=590.0)).parts.get("gpu.low_occupancy", 0.0) < 0.02
    few = use_of(gpu(**H100, **levels, watts=450.0)).parts["gpu.low_occupancy"]
    assert few == pytest.approx(1 - 0.65 / 0.85, abs=0.02)


def test_tensor_cores_would_take_over_what_keeps_single_precision_units_busy() -> None:
    levels = {"busy": 1.0, "sm": 0.9, "tensor": 0.0, "dram": 0.04}
    most = float(thresholds.SINGLE_PRECISION_AT_WORK)
    half, all_of_it = (use_of(gpu(**levels, fp32=part)).parts["gpu.no_tensor_cores"] for part in (most / 2, most))
    assert half == pytest.approx(all_of_it / 2)


def test_what_is_left_without_a_limit_is_the_next_units_work() -> None:
    moving = {"busy": 1.0, "sm": 0.9, "dram": 0.72}
    assert use_of(gpu(**moving, tensor=0.0)).parts["gpu.memory_bandwidth"] == pytest.approx(1.0)
    # Tensor cores at half of what they reach are busy for half of the time that is left.
    half = thresholds.TENSOR_CORES_AT_WORK / 2
    assert use_of(gpu(**moving, tensor=half)).parts["gpu.memory_bandwidth"] == pytest.approx(0.5)
    assert use_of(gpu(**moving, tensor=0.55)).parts["gpu.compute"] == pytest.approx(1.0, abs=0.05)
    # Less of it is the limit where all multiprocessors work, and no other unit works as much.
    some = {"busy": 1.0, "sm": 0.9, "dram": 0.5}
    assert use_of(gpu(**some, tensor=0.2)).parts["gpu.memory_bandwidth"] > 0.5
    assert use_of(gpu(**some, tensor=0.35)).parts == {"gpu.compute": 1.0}
    assert "gpu.memory_bandwidth" not in use_of(gpu(**{**some, "sm": 0.7}, tensor=0.2)).parts
    # Faster products leave the bytes that they take, and fuller kernels theirs.
    single = {"busy": 1.0, "sm": 0.9, "tensor": 0.0, "fp32": 0.9, "dram": 0.4}
    assert use_of(gpu(**single)).parts["gpu.no_tensor_cores"] == pytest.approx(0.5)
    few = {"busy": 1.0, "sm": 0.17, "tensor": 0.0, "dram": 0.4}
    assert use_of(gpu(**few)).parts["gpu.low_occupancy"] == pytest.approx(0.5)


def test_an_idle_gpus_power_fills_no_multiprocessors() -> None:
    few = {"busy": 1.0, "sm": 0.17, "tensor": 0.01, "dram": 0.02}
    assert use_of(gpu(**H100, **few, watts=130.0)).parts["gpu.low_occupancy"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("levels", "cause"),
    [
        ({"busy": 0.9}, "gpu.compute"),
        ({"busy": 0.5, "sm": 0.45, "tensor": 0.3, "dram": 0.2}, "gpu.compute"),
        ({"busy": 0.5, "sm": 0.45, "tensor": 0.02, "dram": 0.4}, "gpu.memory_bandwidth"),
        ({"busy": 1.0, "sm": 0.1, "tensor": 0.01, "dram": 0.1}, "gpu.low_occupancy"),
        ({"busy": 1.0, "sm": 0.9, "tensor": 0.0, "dram": 0.2, "fp32": 0.6}, "gpu.no_tensor_cores"),
        ({"busy": 1.0, "foreign": 0.6}, "gpu.contention"),
    ],
)
def test_what_a_busy_gpu_is_busy_with(levels: dict[str, float], cause: str) -> None:
    parts = use_of(gpu(**levels)).parts
    assert max(parts, key=lambda name: parts[name]) == cause
    assert sum(parts.values()) == pytest.approx(1)


def test_a_neighbour_costs_its_time_slices_and_only_where_the_job_wanted_them() -> None:
    assert use_of(gpu(busy=1.0, foreign=0.1)).parts["gpu.contention"] == pytest.approx(0.1)
    seldom = use_of(gpu(busy=0.3, foreign=0.2))  # the job itself runs for a tenth of the time
    assert seldom.for_job * 0.3 == pytest.approx(0.1 + 0.2 * 0.1 / 0.8)


@pytest.mark.parametrize("clock", [1980.0, 1755.0, 1400.0])
def test_clocks_under_a_power_cap_are_no_fault(clock: float) -> None:
    levels = {**H100, "clock": clock, "by_power": 1.0, "watts": 699.0, "default_limit": 700.0}
    assert "gpu.throttled" not in use_of(gpu(busy=1.0, **levels)).parts


def test_a_lowered_power_limit_is_one() -> None:
    levels = {**H100, "clock": 1200.0, "by_power": 1.0, "limit": 400.0, "default_limit": 700.0}
    assert use_of(gpu(busy=1.0, **levels)).parts["gpu.throttled"] == pytest.approx(1 - 1200 / (0.93 * 1980))


@pytest.mark.parametrize("limit", ["by_heat", "by_hardware"])
def test_heat_and_hardware_cost_the_clocks_that_they_take(limit: str) -> None:
    own = {"clock": [1980.0, 1386.0] * 10, limit: [0.0, 1.0] * 10, "highest": 2100.0}
    assert use_of(gpu(busy=1.0, **own)).parts["gpu.throttled"] == pytest.approx(0.15)
    held = {"clock": 1386.0, limit: 1.0, "highest": 2500.0}
    both = [*gpu(busy=1.0, **held), *gpu(1, busy=1.0, clock=1980.0)]
    assert use_of(both, ranks=2).parts["gpu.throttled"] == pytest.approx(0.3)


def test_lowered_clocks_cost_what_they_take_also_where_use_is_not_read() -> None:
    """As on instances before Hopper: how long the GPU is busy is not known, but by what all of that is longer."""
    use = use_of(gpu(by_heat=1.0, clock=1485.0, highest=1980.0, foreign=0.0))
    assert use.busy is None
    assert use.parts == pytest.approx({
        "gpu.throttled": 1 - 0.75 / thresholds.CLOCK_UNDER_LOAD, "gpu.compute": 0.75 / thresholds.CLOCK_UNDER_LOAD
    })  # fmt: skip


def test_an_instance_of_a_partitioned_gpu_has_its_own_units_and_the_gpus_clocks() -> None:
    whole = gpu(0, by_heat=1.0, clock=1485.0, highest=1980.0, watts=350.0, limit=700.0, received=9e9, sent=1e9)
    instance = [
        *jobs.readings("gpu:0:1", "busy_fraction", *[0.9] * 20, every_s=0.5, probe="gpu"),
        *jobs.readings("gpu:0:1", "sm_active_fraction", *[0.8] * 20, every_s=0.5, probe="gpu"),
    ]
    with jobs.recorded([*whole, *instance]) as recording:
        use = GpuReader(Readings(recording), [["gpu:0:1"]]).read(["gpu:0:1"])
    assert use.busy is not None
    assert use.parts["gpu.throttled"] == pytest.approx(1 - 0.75 / thresholds.CLOCK_UNDER_LOAD, abs=0.001)
    # Whose bytes and watts the GPU's are is not known.
    assert use.copying is None


def test_copies_take_no_less_than_the_link_needs_and_no_more_than_pageable_ones() -> None:
    use = use_of(gpu(busy=0.5, received=3.05e9, sent=0.0))
    assert use.copying is not None
    least, most = use.copying
    assert least == pytest.approx(3e9 / 31.5e9, rel=0.05)
    assert most == 1.0
    assert use_of(gpu(busy=0.5)).copying is None
    both_ways = gpu(busy=0.5, received=3.05e9, sent=3.05e9)
    assert use_of(both_ways).copying == pytest.approx((6e9 / 31.5e9, 1.0), rel=0.05), "activations go out and come back"
    assert use_of(both_ways, ranks=2).copying == (0.0, 1.0), "ranks may exchange them"


@pytest.mark.parametrize(
    ("active", "waits", "launching", "busy"),
    [
        # An H200 in launch_bound: 0.19 read, 0.09 worked.
        (0.03, 0.0, 0.97, 0.19 - 0.097),
        # Kernels do fill the time that is read.
        (0.15, 0.0, 0.97, 0.19),
        # A host that waits has more queued behind.
        (0.03, 0.6, 0.3, 0.19),
        (None, 0.0, 0.97, 0.19),
    ],
)
def test_a_gpu_idles_after_kernels_although_that_counts_as_busy(
    active: float | None, waits: float, launching: float, busy: float
) -> None:
    use = GpuUse(None, 1.0, {}, None, active=active)
    assert use.without_front_end(0.19, waits, launching) == pytest.approx(busy)


@pytest.mark.parametrize(
    ("active", "busy", "low"),
    [
        # What is counted beyond the multiprocessors' work is the driver's, and no small kernels.
        (0.47, 0.553, 0.0),
        # A driver that does not count it: multiprocessors work as they do at work.
        (0.64, 0.73, 0.1),
        # Kernels are small besides.
        (0.2, 0.53, 0.0),
        (None, 0.73, 0.1),
    ],
)
def test_mapping_memory_counts_as_busy_and_keeps_no_multiprocessor_so(
    active: float | None, busy: float, low: float
) -> None:
    use = GpuUse(None, 1.0, {"gpu.low_occupancy": 0.1 / 0.73, "gpu.compute": 0.63 / 0.73}, None, active=active)
    found, computing = without_mapping(use, 0.73, 0.2)
    assert computing == pytest.approx(busy, abs=0.001)
    assert found.parts.get("gpu.low_occupancy", 0.0) * computing == pytest.approx(low)
    assert sum(found.parts.values()) == pytest.approx(1.0)
