"""What a live view shows of recordings of real jobs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.analysis.live_view import Examined, examine_span, examine_whole, span_to_examine, view_at
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.follow import Follower
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, Unavailable
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.reports import json as report
from perfdoctor.reports.wording import worded
from perfdoctor.results.view import ThreadActivity, View
from tests.builders.jobs import START, at, code, process, readings, stacks, thread, write
from tests.recordings import corpus, packing


@contextmanager
def followed(path: Path) -> Iterator[Follower]:
    follower = Follower(path)
    follower.read_on()
    yield follower
    follower.close()


def seen(path: Path, at_s: float | None = None, examined: Examined | None = None, *, live: bool = True) -> View:
    with followed(path) as follower:
        at_ns = follower.newest_ns if at_s is None else follower.start_ns + int(at_s * NS_PER_S)
        return view_at(follower, at_ns, examined or Examined(), live=live)


def recording(name: str, folder: Path) -> Path:
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", folder / name)
    return folder / name


def test_trainers_come_by_rank_with_their_workers_below(tmp_path: Path) -> None:
    path = recording("straggler_disk", tmp_path)
    with Recording.open(path) as whole:
        view = seen(path, 5.0, examine_whole(whole))
    trainers = [one for one in view.processes if one.role == "trainer"]
    assert [one.rank for one in trainers] == [0, 1]
    for before, after in zip(view.processes, view.processes[1:], strict=False):
        assert after.role != "worker" or after.rank == before.rank


def test_readings_are_those_of_the_recording(tmp_path: Path) -> None:
    """Means over the last seconds lie between the least and the most of the recording; the job's processes share it."""
    path = recording("slow_preprocessing_workers", tmp_path)
    view = seen(path)
    assert view.host.usable == 2.0
    assert view.host.job is not None
    assert 1.0 < view.host.job <= 2.05
    by_process = [one.cores for one in view.processes if one.cores is not None]
    assert sum(by_process) == pytest.approx(view.host.job, abs=0.15)
    assert all(one.memory is not None and one.memory > 1e7 for one in view.processes)
    busiest = max((one for one in view.processes if one.role == "worker"), key=lambda one: one.cores or 0.0)
    assert busiest.main.state in (ThreadActivity.RUNNING, ThreadActivity.DELAYED)
    assert busiest.main.cores == pytest.approx(busiest.cores, abs=0.2)


def test_the_file_that_a_job_waits_for_is_named(tmp_path: Path) -> None:
    view = seen(recording("cold_reads", tmp_path), 5.0)
    assert view.paths
    assert view.paths[0].threads > 0.2
    assert view.paths[0].blocked > 0.2
    assert any(device.read and device.read > 1e6 for device in view.devices)


def test_whoever_waits_for_the_network_is_counted(tmp_path: Path) -> None:
    assert seen(recording("slow_store", tmp_path), 5.0).on_network > 0.3
    assert seen(recording("sound_training", tmp_path), 5.0).on_network == 0.0


def test_steps_are_counted_where_the_job_marks_them(tmp_path: Path) -> None:
    path = recording("sound_from_inside", tmp_path)
    with Recording.open(path) as whole:
        examined = examine_whole(whole)
        expected = 1 / examined.diagnosis.steps["mean_s"]  # type: ignore[union-attr]
    trainer = next(one for one in seen(path, 4.0, examined).processes if one.role == "trainer")
    assert trainer.steps == pytest.approx(expected, rel=0.5)
    assert all(one.steps is None for one in seen(recording("sound_training", tmp_path), 4.0).processes)


@pytest.mark.parametrize("name", ["slow_store", "straggler_preprocessing"])
def test_at_its_end_a_finished_recording_has_the_diagnosis_of_its_report(name: str, tmp_path: Path) -> None:
    path = recording(name, tmp_path)
    with Recording.open(path) as whole:
        examined = examine_whole(whole)
    view = seen(path, examined=examined, live=False)
    assert view.diagnosis is not None
    told = corpus.reduced(json.loads(report.render(view.diagnosis)))
    assert corpus.differences(corpus.load(name)["diagnosis"], told) == []
    assert view.missing == ()


@pytest.mark.parametrize("name", ["cpu_quota", "frequent_checkpoints", "sound_ddp", "too_few_workers"])
def test_so_far_the_verdict_is_mostly_the_later_one(name: str, tmp_path: Path) -> None:
    """Of the first half of a recording, as it could be known by then."""
    path = recording(name, tmp_path)
    with followed(path) as follower:
        middle_ns = (follower.start_ns + follower.newest_ns) // 2
        diagnosis = examine_span(follower, (follower.start_ns, middle_ns)).diagnosis
        view = view_at(follower, middle_ns, examine_span(follower, (follower.start_ns, middle_ns)), live=True)
    assert diagnosis is not None
    assert diagnosis.verdict.cause == corpus.load(name)["diagnosis"]["verdict"]["cause"]
    assert sum(part.share for part in diagnosis.breakdown) == pytest.approx(1.0, abs=0.001)
    assert view.diagnosed_s == (0.0, pytest.approx(view.at_s))


@pytest.mark.parametrize("name", corpus.names())
def test_any_instant_of_any_recording_can_be_looked_at(name: str, tmp_path: Path) -> None:
    path = recording(name, tmp_path)
    for at_s in (0.0, 0.4, 2.0):
        view = seen(path, at_s)
        assert view.at_s == pytest.approx(at_s)
        assert all(one.cores is None or 0 <= one.cores < 64 for one in view.processes)


def job(*more: object) -> list[object]:
    return [*process(7), *thread(7, 7, run=0.5), *more]


def test_an_instance_of_a_partitioned_gpu_has_the_clocks_and_limits_of_the_whole(tmp_path: Path) -> None:
    of_all = {"sm_clock_hertz": 1.5e9, "temperature_celsius": 60.0, "power_limit_watts": 700.0, "power_watts": 400.0}
    samples = [sample for name, value in of_all.items() for sample in readings("gpu:0", name, value, value)]
    whole, instance = seen(write(tmp_path / "a", job(*samples, *readings("gpu:0:1", "busy_fraction", 0.5, 0.7)))).gpus  # type: ignore[arg-type]
    assert (whole.name, instance.name) == ("gpu:0", "gpu:0:1")
    assert (instance.busy, instance.clock, instance.temperature, instance.power_limit) == (0.7, 1.5e9, 60.0, 700.0)
    assert instance.power is None


def test_the_first_diagnosis_waits_for_stacks(tmp_path: Path) -> None:
    with followed(write(tmp_path / "a", job(*readings("host", "x", *range(4))))) as follower:  # type: ignore[arg-type]
        assert span_to_examine(follower, at(3.0)) is None
        assert [worded(text)[:23] for text in view_at(follower, at(3.0), Examined(), live=True).missing] == [
            "The first Python stacks",
            "Watched for 3 s; a verd",
        ]


def test_where_there_will_be_no_stacks_it_does_not_wait(tmp_path: Path) -> None:
    refused = Unavailable("stacks", "py-spy is not installed.", "")
    with followed(write(tmp_path / "a", job(refused))) as follower:  # type: ignore[arg-type]
        assert span_to_examine(follower, at(3.0)) == (START, at(3.0))


def test_of_the_first_instants_there_is_no_diagnosis(tmp_path: Path) -> None:
    with followed(recording("slow_store", tmp_path)) as follower:
        begun_ns = follower.start_ns
        assert span_to_examine(follower, begun_ns) is None
        assert span_to_examine(follower, begun_ns + NS_PER_S // 2) is None
        assert span_to_examine(follower, begun_ns + 2 * NS_PER_S) == (begun_ns, begun_ns + 2 * NS_PER_S)


def test_a_diagnosis_ends_where_stacks_do(tmp_path: Path) -> None:
    cut = [segment._replace(until_ns=at(4.2)) for segment in stacks(7, (), times=80)]
    with followed(write(tmp_path / "a", job(*cut))) as follower:  # type: ignore[arg-type]
        assert span_to_examine(follower, at(9.0)) == (START, at(4.2))
        # Of a process that is sampled no more, nothing is waited for.
        assert span_to_examine(follower, at(60.0)) == (at(30.0), at(60.0))


def test_functions_without_names_yet_are_said_to_be_missing(tmp_path: Path) -> None:
    with followed(write(tmp_path / "a", job(*code(7, "libtorch.so", "", 99)))) as follower:  # type: ignore[arg-type]
        texts = [worded(text) for text in view_at(follower, at(9.9), Examined(), live=True).missing]
    assert any("get their names when you quit" in text for text in texts)


def test_a_recorder_that_has_gone_is_noticed_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    with followed(write(tmp_path / "a", readings("host", "x", 1.0))) as follower:
        assert view_at(follower, at(0.0), Examined(), live=True).silent_s == 0.0
        follower.grown_ns -= 60 * NS_PER_S
        assert view_at(follower, at(0.0), Examined(), live=True).silent_s > 50
    with RecordingWriter(tmp_path / "b", {"start_ns": str(START)}) as writer:
        writer.add([Event(at(1), "stopped", "duration")])
    with followed(tmp_path / "b") as follower:
        follower.grown_ns -= 60 * NS_PER_S
        assert view_at(follower, at(0.0), Examined(), live=False).silent_s == 0.0
