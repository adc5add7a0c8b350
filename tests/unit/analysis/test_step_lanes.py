"""What workers and GPUs did during a step: of a single one where looks are close enough, else of all of its length."""

from collections.abc import Iterable

import pytest

from perfdoctor.analysis.step_lanes import step_lanes
from perfdoctor.attribution.storage_causes import Writing
from perfdoctor.attribution.suppliers import SupplierClassifier
from perfdoctor.causes import CHECKPOINT_WRITE
from perfdoctor.recording.schema import Mark, Sample, ThreadSample
from perfdoctor.results.activity import GPU, WORKER, Lane
from tests.builders import jobs

TRAINER, INPUT = 10, "cpu.input_preprocessing"
# A worker in the pipe of its queue; it is sampled every 20 ms.
IDLES = {"call": "read", "target": "pipe"}


def marked(step_s: float, *, device: bool = False) -> list[Sample]:
    """A loop of even steps: half data, half forward pass; the device runs that while the next batch loads."""
    found: list[Sample] = [
        Mark(jobs.at(0), TRAINER, "begin", "scope", 0),
        Mark(jobs.at(0), TRAINER, "begin", "observed", 0),
    ]
    for number in range(int(8 / step_s)):
        start, middle, end = (jobs.at((number + part) * step_s) for part in (0.0, 0.5, 1.0))
        for what, begins, ends in (("data", start, middle), ("forward", middle, end)):
            found += [Mark(begins, TRAINER, "begin", what, 3), Mark(ends, TRAINER, "end", what, 0)]
        found.append(Mark(end, TRAINER, "point", "step", 0))
        if device:
            found += [
                Mark(start, TRAINER, "device point", "step", 0),
                Mark(start, TRAINER, "device begin", "forward", 3),
            ]
            found.append(Mark(middle, TRAINER, "device end", "forward", 0))
    return found


def worker(pid: int, states: str, *, started_s: float = -9.0, ended_s: float | None = None) -> list[Sample]:
    alive = jobs.process(pid, parent=TRAINER, forked=True, started_s=started_s, ended_s=ended_s)
    return [*alive, *jobs.thread(pid, pid, states, name="pt_data_worker", run=0.5, **IDLES)]  # type: ignore[arg-type]


def lanes(samples: Iterable[Sample], number: int = 3, writing: Writing = Writing()) -> tuple[Lane, ...]:  # noqa: B008
    """Of one step of a trainer."""
    trainer = [*jobs.process(TRAINER), *jobs.thread(TRAINER, TRAINER, run=1.0)]
    job = jobs.timeline([*trainer, *samples])
    suppliers = SupplierClassifier(job, writing)
    return step_lanes(suppliers, job.processes.by_pid[TRAINER], job.steps[TRAINER], number)


def spent(lane: Lane, what: str) -> float:
    return sum(part.length_s * part.fraction for part in lane.parts if part.what == what)


def test_each_worker_has_a_lane_where_a_step_is_long_enough() -> None:
    first, second = lanes([*marked(0.4), *worker(20, "R" * 10 + "S" * 10), *worker(30, "S")])
    assert (first.role, first.name, first.every_s) == (WORKER, "20", pytest.approx(0.02))
    assert [part.what for part in first.parts] == [INPUT, "", INPUT], "neighbours with the same are one"
    assert spent(first, INPUT) == pytest.approx(0.2, abs=0.02)
    assert [(part.what, part.start_s) for part in second.parts] == [("", 0.0)]
    for lane in (first, second):
        assert sum(part.length_s for part in lane.parts) == pytest.approx(0.4)


def test_a_worker_that_comes_or_goes_in_a_step_has_a_lane_for_as_long_as_it_lived() -> None:
    came, gone = worker(30, "R", started_s=1.4), worker(20, "R", ended_s=1.3)
    first, second = lanes([*marked(0.4), *gone, *came])
    assert [(part.start_s, part.length_s) for part in first.parts] == [(0.0, pytest.approx(0.1))]
    assert [(part.start_s, part.length_s) for part in second.parts] == [(pytest.approx(0.2), pytest.approx(0.2))]


def test_short_steps_are_put_one_upon_the_other() -> None:
    """At 50 samples a second each of 190 steps is met twice or less; in its second half the worker idles."""
    states = "".join("R" if tick / 50 % 0.042 < 0.021 else "S" for tick in range(501))
    (lane,) = lanes([*marked(0.042), *worker(20, states)])
    assert (lane.name, lane.steps) == ("", 190)
    middle = 0.021
    busy = sum(part.length_s * part.fraction for part in lane.parts if part.what == INPUT and part.start_s < middle)
    assert busy == pytest.approx(0.021, rel=0.2)
    assert spent(lane, INPUT) == pytest.approx(busy, rel=0.2), "nearly nothing of it lies behind the middle"
    by_bin: dict[float, float] = {}
    for part in lane.parts:
        assert part.base == pytest.approx(by_bin.get(part.start_s, 0.0))
        by_bin[part.start_s] = part.base + part.fraction
    assert list(by_bin.values()) == pytest.approx([1.0] * len(by_bin))


@pytest.mark.parametrize("step_s", [0.4, 0.042])
def test_a_worker_writes_for_what_the_files_of_its_trainer_are_written_for(step_s: float) -> None:
    samples = [
        one._replace(syscall="write", target="file:/state") if isinstance(one, ThreadSample) else one
        for one in worker(20, "D")
    ]
    (lane,) = lanes([*marked(step_s), *samples], writing=Writing({"file:/state": CHECKPOINT_WRITE}))
    assert {part.what for part in lane.parts} == {CHECKPOINT_WRITE}


def test_a_worker_that_was_hardly_seen_has_an_empty_lane() -> None:
    seen = [sample for sample in worker(20, "R") if getattr(sample, "time_ns", 0) <= jobs.at(0.06)]
    (lane,) = lanes([*marked(0.042), *seen])
    assert lane.parts == ()
    assert lane.every_s == pytest.approx(0.02)


def test_a_device_that_was_asked_shows_its_phases_at_their_own_time() -> None:
    (lane,) = lanes(marked(0.4, device=True))
    assert (lane.role, lane.every_s) == (GPU, None)
    assert [(part.what, part.start_s, part.length_s) for part in lane.parts if part.what == "forward"] == [
        ("forward", 0.0, pytest.approx(0.2))
    ]


@pytest.mark.parametrize(("step_s", "drawn"), [(2.0, True), (0.4, False)])
def test_a_gpu_of_which_only_the_use_was_read_is_drawn_in_long_steps(step_s: float, drawn: bool) -> None:
    use = jobs.readings("gpu:0", "busy_fraction", *([0.25, 0.75] * 10), every_s=0.5, probe="gpu")
    there = jobs.readings(f"gpu:0/pid:{TRAINER}", "memory_bytes", 1e9, 1e9, probe="gpu")
    (lane,) = lanes([*marked(step_s), *use, *there], number=1)
    assert (lane.role, lane.name, lane.every_s) == (GPU, "gpu:0", pytest.approx(0.5))
    assert bool(lane.parts) == drawn
    if drawn:
        assert [part.fraction for part in lane.parts] == [0.75, 0.25, 0.75, 0.25]
        assert sum(part.length_s for part in lane.parts) == pytest.approx(2.0)


def test_without_workers_and_gpu_there_is_no_lane() -> None:
    assert lanes(marked(0.4)) == ()
