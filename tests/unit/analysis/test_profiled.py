"""A profile of a GPU job tells how a step is composed; marks and samples tell what many steps hold beside it."""

import gzip
from collections.abc import Iterator

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.analysis.profiled import read_profiles
from perfdoctor.analysis.summarise_recording import summarise_recording
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Mark, Profile, Sample
from perfdoctor.reports.wording import worded_finding
from perfdoctor.timeline.processes import Process
from tests.builders import jobs
from tests.builders.marks import Script
from tests.builders.traces import GEMM, LOADER, MadeTrace

PID = 4321
SAVE = Frame("/v/lib/python3.11/site-packages/torch/serialization.py", "save", 800)


def half_fetching(*, saving_us: float = 0.0, idle_us: float = 10_000.0) -> MadeTrace:
    """Steps of 20 ms; in each the GPU waits for a batch for a while, and computes for the rest.

    Args:
        saving_us: how long a checkpoint takes in one of the steps, as its Python frames show it.
        idle_us: how long the GPU waits.
    """
    trace = MadeTrace()
    trace.gpu()
    start = 20_000.0
    for number in range(5):
        saving = saving_us if number == 2 else 0.0
        fetched, computed = start + idle_us, start + 20_000
        trace.step(number, start, computed + saving)
        trace.annotation(LOADER, start, fetched - 10)
        trace.operator("aten::mm", fetched - 10, fetched)
        trace.launch(GEMM, fetched - 8, fetched, computed)
        if saving:
            trace.span("python_function", "torch/serialization.py(800): save", computed, computed + saving)
        start = computed + saving
    return trace


def training(*, saving_s: float = 0.0, starting_s: float = 0.0, reading: str = "D") -> Iterator[Sample]:
    """Ten seconds of steps, each 10 ms of fetching and 10 ms of the rest, in five epochs.

    Args:
        saving_s: how long an epoch's last step saves state, blocked on a disk.
        starting_s: how long its first step starts loader workers, asleep.
        reading: the states of the main thread while it trains, one for each 20 ms.
    """
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    steps = round((2 - saving_s - starting_s) / 0.020)
    for _ in range(5):
        if starting_s:
            script.call("loader start", 1000 * starting_s, 1)
        for number in range(steps):
            script.call("data", 10)
            script.call("forward", 4, 3)
            script.call("backward", 4)
            script.call("optimizer", 2)
            if number == steps - 1:
                script.wait(1000 * saving_s)
            script.ends()
    script.mark("end", "scope", 1)
    yield from jobs.process(PID)
    saved = round(saving_s * jobs.PER_S)
    states = (reading * 100)[: 100 - saved] + "D" * saved
    yield from jobs.thread(PID, PID, states, call="futex")
    train, save = (jobs.OWN, jobs.MODULE), (jobs.OWN, SAVE)
    saves = round(saving_s / 0.05)
    yield from jobs.stacks(PID, *[train] * (40 - saves), *[save] * saves)
    for mark in script.marks:
        yield Mark(jobs.START + mark.time_ns, PID, *mark[2:])


def diagnosed(trace: MadeTrace, samples: Iterator[Sample]) -> Diagnosis:
    with jobs.recorded([*samples, *recorded(trace.text())]) as recording:
        return examine(recording)


def shares(diagnosis: Diagnosis) -> dict[str, float]:
    return {one.cause: one.share for one in diagnosis.breakdown}


def recorded(text: str) -> list[Profile]:
    return [Profile(PID, 0, 100, gzip.compress(text.encode()))]


def test_a_checkpoint_that_no_traced_step_held_is_found() -> None:
    diagnosis = diagnosed(half_fetching(idle_us=1000), training(saving_s=1.0, reading="S"))
    assert (diagnosis.verdict.cause, diagnosis.verdict.level) == ("io.checkpoint_write", "traced")
    found = shares(diagnosis)
    assert found["io.checkpoint_write"] == pytest.approx(0.5, abs=0.03)
    assert found["gpu.compute"] == pytest.approx(0.5 * 19 / 20, abs=0.03)
    assert diagnosis.verdict.share == found["io.checkpoint_write"]
    assert diagnosis.verdict.confidence > 0.5
    assert sum(found.values()) == pytest.approx(1)


def test_an_epochs_new_workers_that_no_traced_step_held_are_found() -> None:
    diagnosis = diagnosed(half_fetching(idle_us=1000), training(starting_s=0.6, reading="SSR"))
    assert diagnosis.verdict.cause == "cpu.worker_startup"
    assert diagnosis.verdict.share == pytest.approx(0.3, abs=0.03)


def test_a_checkpoint_that_a_traced_step_held_weighs_as_often_as_it_came() -> None:
    """In the trace it takes five sixths of the time; of the ten seconds, half."""
    found = shares(diagnosed(half_fetching(saving_us=500_000, idle_us=1000), training(saving_s=1.0, reading="S")))
    assert found["io.checkpoint_write"] == pytest.approx(0.5, abs=0.05)


def test_without_checkpoints_steps_are_composed_as_traced() -> None:
    found = shares(diagnosed(half_fetching(), training(reading="S")))
    assert found["gpu.compute"] == pytest.approx(0.5, abs=0.03)
    assert "io.checkpoint_write" not in found


def test_the_device_is_told_by_the_trace_and_fetching_by_the_samples() -> None:
    """The main thread is blocked in reads in two of three samples; why it sleeps in the third is not known."""
    with jobs.recorded(training(reading="DDS")) as recording:
        profiled = read_profiles(recorded(half_fetching().text()))
        _ = recording.facts
        job = jobs.JobTimeline(recording)
        sampled = attribute(job)
        assert profiled.covers(sampled)
        [joined] = profiled.join(job, sampled)
    found = joined.causes().fractions()
    assert found["gpu.compute"] == pytest.approx(0.5, abs=0.02)
    assert found["io.storage_read"] == pytest.approx(0.5, abs=0.02)
    assert sum(found.values()) == pytest.approx(1)
    assert joined.phases == sampled[0].phases
    assert joined.seconds == pytest.approx(10, abs=0.1)
    assert (profiled.steps(PID)["count"], profiled.steps(PID)["marked"]) == (5, True)
    assert profiled.steps(PID)["median_s"] == pytest.approx(0.020)
    assert profiled.numbers["traced_busy"].value == pytest.approx(0.5, abs=0.02)


def test_a_profile_of_a_cpu_job_only_adds_numbers() -> None:
    trace = MadeTrace()
    trace.step(0, 0, 1000)
    trace.operator("aten::mm", 0, 900)
    profiled = read_profiles(recorded(trace.text()))
    assert not profiled.covers([Account(Process(PID, 1, 0, None, "trainer", 0, None))])
    assert profiled.steps(PID)["count"] == 1


def watched_from_outside() -> Iterator[Sample]:
    """Ten seconds of a job that marks nothing."""
    yield from jobs.process(PID)
    yield from jobs.thread(PID, PID, "SR" * 50, call="futex")
    yield from jobs.stacks(PID, *[(jobs.OWN, jobs.MODULE)] * 40)


def unmarked() -> MadeTrace:
    """Steps of 20 ms, half of them fetching, by what PyTorch marks itself, with the job's own functions."""
    trace = MadeTrace()
    trace.gpu()
    for start in (20_000.0 * number for number in range(5)):
        trace.annotation(LOADER, start, start + 9_990)
        trace.span("python_function", "train.py(30): forward", start + 9_990, start + 10_100)
        trace.operator("aten::mm", start + 9_990, start + 10_000)
        trace.launch(GEMM, start + 9_992, start + 10_000, start + 20_000)
        trace.operator("autograd::engine::evaluate_function: MmBackward0", start + 11_000, start + 12_000)
    return trace


def test_steps_and_functions_of_a_job_that_was_traced_from_outside() -> None:
    diagnosis = diagnosed(unmarked(), watched_from_outside())
    assert diagnosis.verdict.level == "traced"
    profiled = diagnosis.steps["profiled"]
    assert (profiled["count"], profiled["marked"]) == (3, False)
    assert profiled["phases"]["data"]["share"] == pytest.approx(0.5, abs=0.001)
    assert profiled["device"]["phases"] == {"forward": pytest.approx(0.010)}
    assert profiled["lines"] == [{"line": "train.py:30 forward", "share": pytest.approx(110 / 20_000)}]
    assert diagnosis.ranks[0]["steps"]["profiled"] == profiled
    (computing,) = (found for found in diagnosis.findings if found.cause == "gpu.compute")
    assert "train.py:30 forward (100%)" in [one.value for one in worded_finding(computing).evidence]


def test_a_trace_without_a_whole_step_says_so() -> None:
    trace = MadeTrace()
    trace.operator("aten::mm", 0, 2000)
    (missing,) = read_profiles(recorded(trace.text())).not_examined
    assert missing.probe == "profile"
    assert "holds no whole step" in str(missing.reason)


def test_a_trainer_without_a_profile_leaves_all_to_the_samples() -> None:
    one, other = (Account(Process(PID + rank, 1, 0, None, "trainer", 0, rank)) for rank in range(2))
    profiled = read_profiles(recorded(half_fetching().text()))
    assert profiled.covers([one])
    assert not profiled.covers([one, other])


def test_a_broken_profile_is_told() -> None:
    profiled = read_profiles(recorded("not a trace"))
    assert not profiled.ranks
    assert [note.probe for note in profiled.not_examined] == ["profile"]


def test_a_summary_of_what_was_traced_says_no_more_than_the_diagnosis_that_its_gpu_was_seen_from_outside() -> None:
    """``summarise_recording`` is for jobs of many hosts; its level is the diagnosis' too."""
    on_gpu = jobs.readings(f"gpu:0/pid:{PID}", "memory_used_bytes", *[1e9] * 20, every_s=0.5, probe="gpu")
    with jobs.recorded([*training(reading="S"), *on_gpu, *recorded(half_fetching().text())]) as recording:
        summary, diagnosis = summarise_recording(recording), examine(recording)
    assert summary.level == diagnosis.verdict.level == "traced"
    assert [one.probe for one in summary.not_examined] == [one.probe for one in diagnosis.not_examined]
