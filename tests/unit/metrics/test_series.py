"""What is drawn of measurements over time."""

import pytest

from perfdoctor.diagnosis import Series
from perfdoctor.metrics.series import chart_series
from perfdoctor.recording.schema import Sample
from tests.builders import jobs

TRAINER = [*jobs.process(10), *jobs.thread(10, 10, "R", run=0.6, delay=0.2)]


def drawn(*samples: Sample) -> dict[tuple[str, str], Series]:
    return {(one.chart, one.name): one for one in chart_series(jobs.timeline([*TRAINER, *samples]))}


def values(series: Series) -> set[float]:
    return {round(value, 6) for value in series.values if value is not None}


def test_the_main_thread_is_on_a_cpu_and_waits_for_one() -> None:
    found = drawn()
    assert values(found["Main thread of the trainer", "on a CPU"]) == {0.6}
    assert values(found["Main thread of the trainer", "waiting for a CPU"]) == {0.2}


def test_ranks_share_a_chart() -> None:
    ranks: list[Sample] = [
        *jobs.process(20, RANK="1", WORLD_SIZE="2"), *jobs.thread(20, 20, "R", run=0.3),
        *jobs.process(10, RANK="0", WORLD_SIZE="2"),
    ]  # fmt: skip
    found = drawn(*ranks)
    assert values(found["Trainers on a CPU", "rank 1"]) == {0.3}
    assert {name for chart, name in found if chart.endswith("on a CPU")} == {"rank 0", "rank 1"}


def test_workers_count_together() -> None:
    workers: list[Sample] = []
    for pid in (20, 30):
        workers += jobs.process(pid, parent=10, forked=True)
        workers += jobs.thread(pid, pid, "R", name="pt_data_worker", run=0.7, delay=0.1)
    found = drawn(*workers)
    assert values(found["Loader workers", "on a CPU"]) == {1.4}
    assert values(found["Loader workers", "waiting for a CPU"]) == {0.2}


def test_a_counter_is_drawn_as_its_growth_and_a_level_as_it_is() -> None:
    grown = jobs.readings("device:vda", "busy_seconds_total", *(0.25 * n for n in range(11)))
    power = jobs.readings("gpu:0", "power_watts", *(300.0 for _ in range(11)))
    of_process = jobs.readings("gpu:0/pid:10", "power_watts", *(1.0 for _ in range(11)))
    found = drawn(*grown, *power, *of_process)
    assert values(found["Storage devices", "busy (device:vda)"]) == {0.25}
    assert values(found["GPU power", "power (gpu:0)"]) == {300.0}
    assert ("GPU power", "power (gpu:0/pid:10)") not in found


def test_what_was_read_once_or_stays_zero_is_not_drawn() -> None:
    idle = jobs.readings("host", "swapped_in_bytes_total", *(7.0 for _ in range(11)))
    once = jobs.readings("interface:eth0", "received_bytes_total", 5.0)
    assert {chart for chart, _ in drawn(*idle, *once)} == {"Main thread of the trainer"}


def test_what_was_not_read_is_a_gap() -> None:
    late = jobs.readings("interface:eth0", "received_bytes_total", *(1e6 * n for n in range(5)))
    series = drawn(*late)["Network", "received (interface:eth0)"]
    assert series.values[-1] is None
    assert series.values[2] == pytest.approx(1.0)
