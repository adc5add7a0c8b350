"""What is wrong with the machine is evidence and a fix where it costs this job time, and nothing elsewhere."""

import pytest

from perfdoctor.rules.gains import freed
from perfdoctor.rules.health import CONDITIONS
from tests.builders.cases import finding, titles

# A cause, numbers that show a fault, and the beginning of the fix.
FAULTS: tuple[tuple[str, dict[str, float], str], ...] = (
    ("gpu.host_transfer", {"pcie_link": 0.5}, "Give the GPU its full PCIe link"),
    ("gpu.host_transfer", {"pcie_replays": 3.0}, "Have the GPU's PCIe link looked at"),
    ("gpu.host_transfer", {"far_from_gpu": 0.9, "gpu_distance": 2.1}, "Run each rank on the NUMA node"),
    ("communication.bandwidth", {"nvlinks_down": 0.5}, "Bring NVLink back up"),
    ("communication.latency", {"nvlink_errors": 2.0}, "Have NVLink looked at"),
    ("communication.bandwidth", {"fabric_link": 0.5}, "Give all ports of the fabric their full speed"),
    ("communication.bandwidth", {"fabric_errors": 5.0}, "Have the fabric's links looked at"),
    ("communication.bandwidth", {"xid_errors": 1.0}, "Take the faulty GPU out"),
    ("cpu.kernel_launch", {"core_clock_deficit": 0.4}, "Let the cores run at their full clock"),
    ("cpu.model_compute", {"heat_limited_cores": 0.3}, "Let the cores run at their full clock"),
    ("cpu.contention", {"stolen_share": 0.3}, "Move to a host that is not oversubscribed"),
    ("io.storage_read", {"memory_stalled": 0.4}, "Give the job more memory"),
    ("io.storage_read", {"limit_hits": 500.0, "read_again": 0.6}, "Give the job more memory"),
    ("cpu.python_overhead", {"compaction_stalls": 90.0, "memory_pressure": 0.2}, "Have huge pages assembled"),
)


@pytest.mark.parametrize(("cause", "numbers", "fix"), FAULTS)
def test_a_fault_is_shown_with_the_cause_that_it_makes_dearer(cause: str, numbers: dict[str, float], fix: str) -> None:
    found = finding(cause, numbers=numbers)
    assert any(title.startswith(fix) for title in titles(found))
    assert {one.value for one in found.evidence} >= set(numbers.values()) - {0.2}  # memory_pressure is not repeated
    assert not any(title.startswith(fix) for title in titles(finding(cause)))


@pytest.mark.parametrize(("cause", "numbers", "fix"), FAULTS)
def test_a_fault_is_not_shown_with_other_causes(cause: str, numbers: dict[str, float], fix: str) -> None:
    found = finding("cpu.lock_contention", numbers=numbers)
    assert not any(title.startswith(fix) for title in titles(found))


@pytest.mark.parametrize(
    ("cause", "numbers"),
    [
        ("gpu.host_transfer", {"pcie_link": 1.0, "pcie_replays": 0.0, "far_from_gpu": 0.1}),
        ("communication.bandwidth", {"nvlinks_down": 0.0, "nvlink_errors": 0.0, "fabric_errors": 0.0}),
        ("communication.bandwidth", {"fabric_link": 1.0}),
        ("communication.bandwidth", {"xid_errors": 0.0, "gpu_repairs_pending": 0.0}),
        ("cpu.model_compute", {"core_clock_deficit": 0.03, "heat_limited_cores": 0.0, "stolen_share": 0.01}),
        ("io.storage_read", {"memory_stalled": 0.01, "limit_hits": 500.0}),
        ("io.storage_read", {"limit_hits": 500.0}),  # page cache at its limit is given back all the time
        ("cpu.python_overhead", {"compaction_stalls": 90.0}),  # nobody waits long
    ],
)
def test_a_sound_machine_changes_nothing(cause: str, numbers: dict[str, float]) -> None:
    assert titles(finding(cause, numbers=numbers)) == titles(finding(cause))


def test_a_faulty_gpu_counts_where_one_rank_computes_longer() -> None:
    fault = {"gpu_repairs_pending": 1.0}
    slow = finding("gpu.compute", numbers={**fault, "traced_same_kernels": 1.3}, ranks=2)
    assert "Take the faulty GPU out of the job" in titles(slow)
    assert "Take the faulty GPU out of the job" not in titles(finding("gpu.compute", numbers=fault, ranks=2))


@pytest.mark.parametrize(
    ("cause", "numbers", "gain"),
    [
        ("gpu.host_transfer", {"pcie_link": 0.25}, freed(0.5 * 0.75)),
        ("communication.bandwidth", {"nvlinks_down": 0.5}, freed(0.5 * 0.5)),
        ("cpu.python_overhead", {"core_clock_deficit": 0.4}, freed(0.5 * 0.4)),
        ("cpu.contention", {"stolen_share": 0.2}, freed(0.5 * 0.2)),
    ],
)
def test_the_gain_is_what_the_fault_takes_of_the_cause(cause: str, numbers: dict[str, float], gain: float) -> None:
    gains = [fix.predicted_speedup for fix in finding(cause, numbers=numbers).fixes if fix.predicted_speedup]
    assert any(one == pytest.approx(gain) for one in gains)


def test_every_condition_has_a_fault_here() -> None:
    shown = {name for _, numbers, _ in FAULTS for name in numbers}
    assert all(set(condition.evidence) & shown for condition in CONDITIONS)
