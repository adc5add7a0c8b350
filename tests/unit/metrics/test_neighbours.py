"""Neighbours are counted where they are in the way: on the cores that the job may use."""

from collections.abc import Iterable

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.neighbours import (
    BusyHelper,
    Neighbour,
    find_busy_helper,
    find_neighbours,
    neighbour_cores,
)
from perfdoctor.recording.schema import Fact, Sample
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.readings import Readings
from tests.builders import jobs
from tests.builders.jobs import START, process, readings


def host(mask: str) -> list[Sample]:
    """A host of four cores, of which cores 0 and 1 are busy with the job and a neighbour, and 2 and 3 with others."""
    used = {"core:0": 10.0, "core:1": 5.0, "core:2": 10.0, "core:3": 10.0}
    return [
        Fact(START, "cpu", "host", "logical_cores", "4"),
        Fact(START, "cpu", "pid:10", "affinity", mask),
        *[one for core, busy in used.items() for one in readings(core, "busy_seconds_total", 0, busy, every_s=10)],
        *readings("job", "cpu_seconds_total", 0, 8, every_s=10),
        *readings("perfdoctor", "cpu_seconds_total", 0, 0.5, every_s=10),
        *readings("host", "neighbours_seconds_total", 0, 26.5, every_s=10),
    ]


def cores_of(samples: Iterable[Sample]) -> float | None:
    with jobs.recorded(samples) as recording:
        return neighbour_cores(Readings(recording))


@pytest.mark.parametrize(("mask", "cores"), [("0-1", 0.65), ("0,1", 0.65), ("0-3", 2.65)])
def test_neighbours_on_other_cores_are_not_in_the_way(mask: str, cores: float) -> None:
    assert cores_of(host(mask)) == pytest.approx(cores)


def test_without_times_of_the_cores_the_whole_host_is_known() -> None:
    assert cores_of(one for one in host("0-1") if "core:" not in str(one)) == pytest.approx(2.65)
    assert cores_of([]) is None


def test_the_busiest_are_named_first() -> None:
    samples = [
        Fact(START, "cpu", "neighbour:7", "command", "cc1plus"),
        *readings("neighbour:7", "cpu_seconds_total", 3, 8, every_s=10),
        Fact(START, "cpu", "neighbour:8", "command", "stress"),
        *readings("neighbour:8", "cpu_seconds_total", 100, 109, every_s=10),
    ]
    with jobs.recorded(samples) as recording:
        assert find_neighbours(Readings(recording)) == (Neighbour(8, "stress", 0.9), Neighbour(7, "cc1plus", 0.5))


def test_the_busiest_process_of_the_job_s_own_is_known_with_its_line() -> None:
    """Not its trainer, nor a loader worker; and where nobody was started there is none."""
    line = Frame("/job/train.py", "evaluate", 57)
    [side] = process(7, parent=100, uses_torch=False)
    own = [
        *process(100),
        side._replace(command="/usr/bin/python3 /job/side.py --fast"),
        *process(8, parent=100, uses_torch=False),
        *readings("pid:100", "user_seconds_total", 0, 10, every_s=10),
        *readings("pid:7", "user_seconds_total", 0, 5, every_s=10),
        *readings("pid:7", "system_seconds_total", 0, 4, every_s=10),
        *readings("pid:8", "user_seconds_total", 0, 2, every_s=10),
        *jobs.stacks(7, (line,), times=300, every_s=0.01),
    ]
    with jobs.recorded(own) as recording:
        found = find_busy_helper(JobTimeline(recording), Readings(recording))
    assert found == BusyHelper(7, "python3 side.py", pytest.approx(0.9), "/job/train.py:57 evaluate")
    with jobs.recorded(process(100)) as recording:
        assert find_busy_helper(JobTimeline(recording), Readings(recording)) is None
