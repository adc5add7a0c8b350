"""Evidence on recordings with known contents: rates, shares and what is absent."""

from collections.abc import Iterable

import pytest

from perfdoctor.metrics.measure import measure
from perfdoctor.metrics.names import Measured, Trainers
from perfdoctor.recording.schema import Fact, Sample, ThreadSample
from perfdoctor.timeline.threads import JobThreads, read_threads
from tests.builders import jobs
from tests.builders.jobs import at, readings, thread

TRAINER, WORKERS = 10, (20, 30)
ROLES = [(TRAINER, WORKERS)]


def record(samples: Iterable[Sample], roles: Trainers = ROLES) -> Measured:
    """Writes samples through the real writer and measures what is in them."""
    with jobs.recorded(samples) as recording:
        return measure(recording, JobThreads(read_threads(recording)), roles)


def value(measured: Measured, name: str, trainer: int | None = None) -> float:
    found = (measured.job if trainer is None else measured.trainers[trainer])[name].value
    assert isinstance(found, float)
    return found


def test_nothing_measured_is_nothing_said() -> None:
    assert record([]) == ({}, {TRAINER: {}})
    assert record([], []) == ({}, {})


def test_what_goes_through_a_fabric_counts_once() -> None:
    samples = [
        *readings("interface:eth0", "received_bytes_total", 0, 1e7, every_s=10),
        *readings("interface:ib0", "received_bytes_total", 0, 5e7, every_s=10),
        Fact(at(0), "network", "interface:ib0", "over_fabric", "yes"),
        *readings("fabric:mlx5_0/1", "received_bytes_total", 0, 6e7, every_s=10),
    ]
    assert value(record(samples), "received") == 7


def test_the_trainers_main_thread() -> None:
    numbers = record([*thread(TRAINER, TRAINER, run=0.6, delay=0.3, faults=5), *thread(11, TRAINER, run=0.5)])
    assert value(numbers, "trainer_running") == pytest.approx(0.6)
    assert value(numbers, "trainer_run_delay") == pytest.approx(0.3)
    assert value(numbers, "trainer_cores") == pytest.approx(1.1)
    assert value(numbers, "trainer_major_faults") == pytest.approx(5.0)
    assert value(numbers, "trainer_switches") == pytest.approx(10.0)
    assert value(numbers, "runnable_threads") == pytest.approx(1.4)
    assert "worker_busy" not in numbers.job


def test_several_trainers_are_averaged() -> None:
    samples = [*thread(10, 10, run=0.2), *thread(40, 40, run=0.8)]
    numbers = record(samples, [(10, ()), (40, ()), (99, ())])
    assert value(numbers, "trainer_running") == pytest.approx(0.5)


def test_ended_threads_count_until_they_end() -> None:
    """The last row of an ended thread has empty counters, which must not look like a reset."""
    end = ThreadSample(at(11), TRAINER, "X", None, "", 0, 0, None, None, None, None)
    assert value(record([*thread(TRAINER, TRAINER, run=0.6), end]), "trainer_running") == pytest.approx(0.6)


def test_a_worker_that_polls_its_queue_is_idle() -> None:
    idle = thread(20, 20, "RSSS", call="poll", target="pipe")
    busy = thread(30, 30, "R", run=0.9)
    numbers = record([*idle, *busy])
    assert value(numbers, "worker_busy") == pytest.approx((0.25 + 1) / 2, abs=0.02)
    assert value(numbers, "workers_busy") == pytest.approx(1.25, abs=0.04)
    assert value(numbers, "workers_busy", TRAINER) == value(numbers, "workers_busy")
    assert value(numbers, "worker_cores") == pytest.approx(0.9)


def test_the_busiest_worker_is_told_from_the_next() -> None:
    """One that only polls its queue serves another loader."""
    samples = [*thread(20, 20, "RSSS", call="poll", target="pipe"), *thread(30, 30, "R", run=0.9)]
    resting = thread(40, 40, "S", call="poll", target="pipe", switches=0.4)
    numbers = record([*samples, *resting], [(TRAINER, (20, 30, 40))])
    assert value(numbers, "busiest_worker", TRAINER) == 1.0
    assert value(numbers, "next_busiest_worker", TRAINER) == pytest.approx(0.25, abs=0.03)
    alone = record([*thread(30, 30, "R", run=0.9), *resting], [(TRAINER, (30, 40))])
    assert "busiest_worker" not in alone.trainers[TRAINER]


@pytest.mark.parametrize(
    ("call", "target"),
    [("poll", "socket:tcp"), ("futex", ""), ("pread64", "file:/data"), ("read", "file:/data")],
)
def test_a_worker_that_waits_for_something_else_is_busy(call: str, target: str) -> None:
    assert value(record(thread(20, 20, "S", call=call, target=target)), "worker_busy") == 1.0


def test_workers_whose_calls_are_unreadable_are_not_judged() -> None:
    assert "worker_busy" not in record(thread(20, 20, "S", call=None)).job


def test_worker_starts_are_those_that_were_watched() -> None:
    samples = [
        *jobs.process(20, started_s=-100, ended_s=10),
        *jobs.process(30, started_s=1, ended_s=3),
        *jobs.process(31, started_s=4),
    ]
    numbers = record(samples, [(TRAINER, (20, 30, 31))])
    assert value(numbers, "worker_starts") == pytest.approx(12.0)
    assert value(numbers, "worker_life") == pytest.approx(2.0)


def test_counters_become_rates() -> None:
    numbers = record(
        [
            *readings("job", "cpu_seconds_total", 0.0, 1.5, 3.0),
            *readings("host", "neighbours_seconds_total", 7.0, 7.5, 8.0),
            *readings("job", "read_call_bytes_total", 0.0, 4e6, 8e6),
            *readings("job", "storage_read_bytes_total", 0.0, 1e6, 2e6),
            *readings("job", "read_calls_total", 0.0, 1000.0, 2000.0),
            *readings("cgroup:/job", "quota_periods_total", 0.0, 10.0, 20.0),
            *readings("cgroup:/job", "throttled_periods_total", 0.0, 9.0, 18.0),
            *readings("interface:lo", "received_bytes_total", 0.0, 3e6),
            *readings("interface:lo", "received_packets_total", 0.0, 100.0),
            *readings("interface:eth0", "received_bytes_total", 0.0, 1e6),
            *readings("interface:eth0", "received_packets_total", 0.0, 100.0),
        ]
    )
    assert value(numbers, "job_cores") == pytest.approx(1.5)
    assert value(numbers, "neighbour_cores") == pytest.approx(0.5)
    assert value(numbers, "read_by_calls") == pytest.approx(4.0)
    assert value(numbers, "read_from_storage") == pytest.approx(1.0)
    assert value(numbers, "page_cache") == pytest.approx(0.75)
    assert value(numbers, "bytes_per_read") == pytest.approx(4000)
    assert value(numbers, "throttled_periods") == pytest.approx(0.9)
    assert value(numbers, "received") == pytest.approx(4.0)
    assert value(numbers, "loopback") == pytest.approx(0.75)
    assert value(numbers, "bytes_per_packet") == pytest.approx(20000)


def test_what_was_read_once_or_not_at_all_has_no_rate() -> None:
    numbers = record(
        [
            *readings("job", "cpu_seconds_total", 5.0),
            *readings("host", "neighbours_seconds_total", None, None, None),
            *readings("job", "read_call_bytes_total", 0.0, 0.0),
            *readings("job", "read_calls_total", 0.0, 0.0),
            *readings("host", "memory_available_bytes", None),
        ]
    )
    assert set(numbers.job) == {"read_by_calls", "read_calls"}


def test_a_counter_that_starts_anew_does_not_run_backwards() -> None:
    assert value(record(readings("job", "cpu_seconds_total", 10.0, 11.0, 0.0, 1.0)), "job_cores") == pytest.approx(
        2 / 3, abs=1e-3
    )


def test_only_the_jobs_gpus_count() -> None:
    numbers = record(
        [
            *readings("gpu:0", "job_processes", 0.0),
            *readings("gpu:0", "busy_fraction", 1.0),
            *readings("gpu:1", "job_processes", 1.0),
            *readings("gpu:1", "busy_fraction", 0.2, 0.4),
            *readings("gpu:1", "memory_used_bytes", 10e9),
            *readings("gpu:1", "memory_total_bytes", 80e9),
            *readings("gpu:1/pid:10", "sm_fraction", 0.2),
        ]
    )
    assert value(numbers, "gpus") == 1
    assert value(numbers, "gpu_busy") == pytest.approx(0.3)
    assert value(numbers, "gpu_memory_share") == pytest.approx(0.125)
    assert "gpu_tensor" not in numbers.job


def test_a_job_on_the_cpu_has_no_gpu_numbers() -> None:
    numbers = record([*readings("gpu:0", "job_processes", 0.0), *readings("gpu:0", "busy_fraction", 1.0)])
    assert not [name for name in numbers.job if name.startswith("gpu")]
