"""Numbers on the health of host, GPUs and fabric, from recordings with known contents."""

from collections.abc import Iterable

import pytest

from perfdoctor.diagnosis import Evidence
from perfdoctor.metrics.health import measure_health
from perfdoctor.recording.schema import Fact, Sample
from perfdoctor.timeline.readings import Readings
from tests.builders import jobs
from tests.builders.jobs import at, readings

TRAINER = 10


def measured(samples: Iterable[Sample]) -> dict[str, Evidence]:
    with jobs.recorded(samples) as recording:
        return measure_health(Readings(recording), [(TRAINER, ())])


def values(samples: Iterable[Sample]) -> dict[str, float | None]:
    return {name: one.value if isinstance(one.value, float) else None for name, one in measured(samples).items()}


def fact(subject: str, name: str, value: str) -> Fact:
    return Fact(at(0), "test", subject, name, value)


def gpu(number: int, *, busy: float = 0.9, generation: float = 5, width: float = 16, links: float = 18) -> list[Sample]:
    subject = f"gpu:{number}"
    return [
        *readings(subject, "job_processes", 1),
        *readings(subject, "busy_fraction", busy, busy, busy),
        *readings(subject, "pcie_generation", generation, generation),
        *readings(subject, "pcie_generation_max", 5),
        *readings(subject, "pcie_width", width, width),
        *readings(subject, "pcie_width_max", 16),
        *readings(subject, "nvlinks_active", links),
    ]


def test_nothing_read_is_nothing_said() -> None:
    assert measured([]) == {}


def test_sound_gpus() -> None:
    assert values([*gpu(0), *gpu(1)]) == {"pcie_link": 1.0, "nvlinks_down": 0.0}


def test_the_narrowest_pcie_link_counts() -> None:
    found = measured([*gpu(0), *gpu(1, width=8, generation=4)])
    assert found["pcie_link"].value == 0.25
    assert found["pcie_link"].name == "PCIe link of gpu:1 at work"


def test_a_link_that_slows_down_while_its_gpu_is_idle_is_not_judged() -> None:
    assert "pcie_link" not in values(gpu(0, busy=0.0, generation=1))


def test_links_that_another_gpu_has_up_are_down() -> None:
    assert values([*gpu(0), *gpu(1, links=12)])["nvlinks_down"] == pytest.approx(1 / 3, rel=1e-3)
    assert "nvlinks_down" not in values(gpu(0, links=12))  # nobody knows how many there should be


def test_errors_of_links_and_of_gpus() -> None:
    samples = [
        *gpu(0),
        *readings("gpu:0", "nvlink_replays_total", 100, 130, every_s=10),
        *readings("gpu:0", "nvlink_crc_errors_total", 5, 15, every_s=10),
        *readings("gpu:0", "pcie_replays_total", 0, 20, every_s=10),
        *readings("gpu:0", "row_remapping_pending", 0, 1),
        *readings("gpu:0", "row_remapping_failed", 0, 0),
        *readings("gpu:0", "xid", 74, 63),
        *readings("gpu:0", "xid_errors_total", 0, 2),
    ]
    found = measured(samples)
    assert found["nvlink_errors"].value == 4
    assert found["pcie_replays"].value == 2
    assert found["gpu_repairs_pending"].value == 1
    assert found["xid_errors"].value == 2
    assert found["xid_errors"].name == "Xid errors (63, 74) of the GPUs while they were watched"


def test_a_trainer_far_from_its_gpu() -> None:
    samples = [
        *gpu(0),
        fact("gpu:0", "numa_node", "1"),
        fact("node:0", "distances", "10 21"),
        fact("node:1", "distances", "21 10"),
        *readings(f"pid:{TRAINER}", "numa_node", 0, 0, 0, 1),
    ]
    found = values(samples)
    assert found["far_from_gpu"] == 0.75
    assert found["gpu_distance"] == 2.1


def test_of_several_gpus_the_trainers_own_counts() -> None:
    nodes = [fact("gpu:0", "numa_node", "0"), fact("gpu:1", "numa_node", "1")]
    ran = readings(f"pid:{TRAINER}", "numa_node", 1, 1)
    assert "far_from_gpu" not in values([*gpu(0), *gpu(1), *nodes, *ran])
    own = readings(f"gpu:1/pid:{TRAINER}", "memory_bytes", 1)
    assert values([*gpu(0), *gpu(1), *nodes, *ran, *own])["far_from_gpu"] == 0


def test_cores() -> None:
    samples = [
        *readings("host", "core_clock_hertz", 1.2e9, 1.4e9),
        fact("host", "core_clock_nominal_hertz", "2600000000"),
        *readings("core:0", "heat_limited_seconds_total", 5, 5, every_s=10),
        *readings("core:1", "heat_limited_seconds_total", 5, 8, every_s=10),
        *readings("host", "steal_seconds_total", 0, 10, every_s=10),
        *readings("host", "busy_seconds_total", 0, 30, every_s=10),
    ]
    assert values(samples) == {"core_clock_deficit": 0.5, "heat_limited_cores": 0.3, "stolen_share": 0.25}


def test_of_control_groups_the_innermost_tells_what_the_job_waits_for() -> None:
    samples = [
        *readings("cgroup:/pods", "memory_pressure_some_seconds_total", 0, 9, every_s=10),
        *readings("cgroup:/pods/job", "memory_pressure_some_seconds_total", 0, 2, every_s=10),
        *readings("cgroup:/pods/job", "reclaimed_bytes_total", 0, 5e7, every_s=10),
        *readings("cgroup:/pods/job", "limit_hits_total", 0, 40, every_s=10),
        *readings("cgroup:/pods/job", "refaults_total", 0, 1000, every_s=10),
        *readings("job", "storage_read_bytes_total", 0, 8_192_000, every_s=10),
        *readings("host", "compaction_stalls_total", 0, 300, every_s=10),
    ]
    assert values(samples) == {
        "memory_stalled": 0.2,
        "reclaimed": 5.0,
        "limit_hits": 4.0,
        "read_again": 0.5,
        "compaction_stalls": 30.0,
    }


def test_what_others_of_the_group_read_again_is_not_counted() -> None:
    samples = [
        *readings("cgroup:/pods/job", "refaults_total", 0, 1000, every_s=10),
        *readings("job", "storage_read_bytes_total", 0, 1_000_000, every_s=10),
    ]
    assert values(samples) == {}


def test_what_is_read_again_is_counted_by_two_counters_that_differ_a_little() -> None:
    samples = [
        *readings("cgroup:/pods/job", "refaults_total", 0, 1014, every_s=10),
        *readings("job", "storage_read_bytes_total", 0, 1000 * 4096, every_s=10),
    ]
    assert values(samples) == {"read_again": 1.0}


def port(number: int, gigabits: int, board: str = "MT_0838", carried: float = 1e9) -> list[Sample]:
    subject = f"fabric:mlx5_{number}/1"
    told = {"board": board, "link_layer": "InfiniBand", "link_bits_per_second": str(gigabits * 10**9)}
    said: list[Sample] = [fact(subject, name, value) for name, value in told.items()]
    return [*said, *readings(subject, "sent_bytes_total", 0, carried, every_s=10)]


def test_a_port_is_held_against_others_of_its_kind() -> None:
    slow = measured([*port(0, 400), *port(1, 200)])["fabric_link"]
    assert (slow.value, slow.name) == (0.5, "speed of fabric:mlx5_1/1, against another port of such an adapter")
    assert values([*port(0, 400), *port(1, 400)])["fabric_link"] == 1.0
    storage = port(1, 25, board="MT_0012")  # another adapter, for another purpose
    assert "fabric_link" not in values([*port(0, 400), *storage])
    assert "fabric_link" not in values(port(0, 200))  # nobody knows what it should have
    assert values([*port(0, 400), *port(1, 200, carried=0)])["fabric_link"] == 1.0  # none of the job's


def test_the_fabric() -> None:
    samples = [
        *readings("fabric:mlx5_0/1", "received_bytes_total", 0, 4e9, every_s=10),
        *readings("fabric:mlx5_0/1", "symbol_errors_total", 0, 20, every_s=10),
        *readings("fabric:mlx5_1/1", "resent_packets_total", 0, 10, every_s=10),
    ]
    assert values(samples) == {"fabric_received": 400.0, "fabric_errors": 3.0}
