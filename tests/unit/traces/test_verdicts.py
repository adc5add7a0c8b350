"""Verdicts from traces that others recorded on real GPUs, against an expert's reading of each."""

import pytest

from perfdoctor.causes import CAUSES
from perfdoctor.cluster.files import find_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge import thresholds
from perfdoctor.traces.account import account_for
from perfdoctor.traces.device import classify_work, split_devices
from perfdoctor.traces.reader import read_trace
from perfdoctor.traces.steps import TraceWindow
from tests.builders.traces import diagnose_traces
from tests.files import real


def diagnose(name: str) -> Diagnosis:
    diagnosis = diagnose_traces(read_trace(path) for path in find_traces([real(name)]))
    assert sum(line.share for line in diagnosis.breakdown) == pytest.approx(1.0, abs=0.001)
    assert diagnosis.verdict.level == "traced"
    return diagnosis


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("resnet50-v100-0-workers", "cpu.input_preprocessing"),
        ("resnet50-v100-list-root", "cpu.input_preprocessing"),
        ("owlv2-h100", "cpu.input_preprocessing"),
        ("bert-small-h100", "cpu.kernel_launch"),
        ("resnet-ddp-a100-rank0-of-2", "cpu.kernel_launch"),
        ("mlp-ddp-v100-rank1-of-2", "cpu.kernel_launch"),
        ("resnet18-mi300x-no-pool", "gpu.memory_pressure"),
        ("moe-expert-parallel-b200-before", "cpu.synchronization"),
        ("segment-anything-a100-before", "cpu.synchronization"),
        ("torchrec-a100-rank0-of-16", "cpu.synchronization"),
        ("resnet-checkpointing-mi300x-rank0-of-8", "communication.unattributed_wait"),
        ("qwen-0.5b-h100", "gpu.memory_bandwidth"),
        ("segment-anything-a100-after", "gpu.memory_bandwidth"),
        ("cpu-only-gloo-rank34-of-300", "communication.unattributed_wait"),
    ],
)
def test_the_verdict_is_the_experts(name: str, cause: str) -> None:
    assert diagnose(name).verdict.cause == cause


@pytest.mark.parametrize("name", ["resnet-ddp-v100-sound", "nanogpt-h100-adam-before", "nanogpt-h100-adam-after"])
def test_sound_jobs_and_hidden_communication_are_not_called_ill(name: str) -> None:
    assert diagnose(name).verdict.cause == "gpu.compute"


def test_the_loader_is_to_blame_before_workers_and_not_after() -> None:
    before, after = diagnose("resnet50-v100-0-workers"), diagnose("resnet50-v100-4-workers")
    found = next(one for one in before.findings if one.cause == "cpu.input_preprocessing")
    # The steps became 174.8 / 142.8 times as fast.
    assert found.predicted_speedup > 174.8 / 142.8
    assert not any(one.cause == "cpu.input_preprocessing" for one in after.findings)


def test_what_is_left_of_a_cured_job_is_arithmetic_copies_and_launching() -> None:
    """The expert sees gaps and convolutions in full precision; neither copies nor launching make a tenth."""
    diagnosis = diagnose("resnet50-v100-4-workers")
    assert diagnosis.verdict.cause == "gpu.compute"
    assert {"cpu.kernel_launch", "gpu.host_transfer"} <= {one.cause for one in diagnosis.findings}


def test_a_wait_is_worth_what_its_removal_gained() -> None:
    """The same step without the waits took 28.4 instead of 33.5 ms."""
    verdict = diagnose("moe-expert-parallel-b200-before").verdict
    assert verdict.predicted_speedup == pytest.approx(33.5 / 28.4, abs=0.05)
    after = diagnose("moe-expert-parallel-b200-after")
    assert not any(one.cause == "cpu.synchronization" for one in after.findings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mtia-inference", "does not know"),
        ("no-distributed-info", "nothing that a GPU did"),
    ],
)
def test_what_cannot_be_told_is_said(name: str, words: str) -> None:
    diagnosis = diagnose(name)
    assert diagnosis.verdict.bottleneck is None
    assert words in diagnosis.verdict.summary
    assert diagnosis.findings == ()


@pytest.mark.parametrize("name", ["resnet50-v100-warm-up", "toy-mi250"])
def test_a_jobs_start_is_named_and_nothing_is_promised_for_it(name: str) -> None:
    diagnosis = diagnose(name)
    assert (diagnosis.verdict.bottleneck, diagnosis.verdict.cause) == ("cpu", "cpu.startup")
    assert diagnosis.verdict.predicted_speedup == 1.0
    assert "says nothing about the steps that follow" in diagnosis.verdict.summary


def test_without_a_gpu_nothing_is_said_about_one() -> None:
    diagnosis = diagnose("cpu-only-gloo-rank34-of-300")
    assert [one.cause for one in diagnosis.findings if one.cause.startswith("gpu.")] == []
    assert any("No GPU activity" in one.reason for one in diagnosis.not_examined)


def test_the_rank_that_sleeps_is_named_and_what_it_does_is_not_guessed() -> None:
    """A sleep of a second was injected into each step of rank 2."""
    diagnosis = diagnose("torchrec-4xv100-sleep")
    assert [rank["rank"] for rank in diagnosis.ranks] == [0, 1, 2, 3]
    waits = [rank["waits_for"].get("2", 0.0) for rank in diagnosis.ranks]
    assert waits == pytest.approx([0.91, 0.91, 0, 0.91], abs=0.01)
    assert diagnosis.verdict.straggler_rank == 2
    assert (diagnosis.verdict.bottleneck, diagnosis.verdict.cause) == ("cpu", "cpu.python_overhead")
    assert diagnosis.verdict.share == pytest.approx(0.91, abs=0.01)
    assert diagnosis.verdict.confidence <= thresholds.CONFIDENCE_UNSEEN_CODE
    assert "the trace does not show what it does" in diagnosis.verdict.summary
    assert "it happens on rank 2" in diagnosis.verdict.summary
    assert any("within '# running sparse arch' then" in one.reason for one in diagnosis.not_examined)
    assert not any(one.cause.startswith("communication.") for one in diagnosis.findings)
    assert diagnosis.job["clock_error_us"] < 50


def test_the_late_rank_is_named_with_what_makes_it_late() -> None:
    """Rank 1 launches too slowly; by the table that comes with the traces its peers wait 31 to 39 ms, and it 5.7 ms."""
    diagnosis = diagnose("nanogpt-8xh100")
    assert diagnosis.verdict.straggler_rank == 1
    assert diagnosis.verdict.cause == "cpu.kernel_launch"
    assert diagnosis.findings[0].ranks == (1,)
    waits = [sum(rank["waits_for"].values()) for rank in diagnosis.ranks]
    assert min(share for rank, share in enumerate(waits) if rank != 1) > 5 * waits[1]


# Of the time from the first to the last event on the device, in percent; from the table that comes with the traces.
@pytest.mark.parametrize(
    ("name", "busy", "exposed"),
    [
        ("resnet50-v100-0-workers", 60.57, 0.0),
        ("resnet50-v100-list-root", 50.26, 0.0),
        ("mlp-ddp-v100-rank1-of-2", 57.74, 20.62),
        ("torchrec-a100-rank0-of-16", 35.6, 15.05),
        ("resnet-checkpointing-mi300x-rank0-of-8", 97.04, 63.9),
        ("segment-anything-a100-before", 47.71, 0.0),
        ("gpu-only-mi210", 89.36, 0.0),
    ],
)
def test_device_times_are_those_that_others_measured(name: str, busy: float, exposed: float) -> None:
    trace = read_trace(real(name))
    whole = TraceWindow(int(trace.device.start.min()), int(trace.device.end.max()))
    [time] = split_devices(trace, classify_work(trace), whole)
    assert 100 * time.busy.total / whole.length == pytest.approx(busy, abs=0.01)
    alone = {work.name: 100 * times.total / whole.length for work, times in time.alone.items()}
    assert alone["COMMUNICATION"] == pytest.approx(exposed, abs=0.06)


def test_causes_of_traces_are_known() -> None:
    shares = account_for(read_trace(real("torchrec-a100-rank0-of-16"))).shares
    assert shares.keys() <= CAUSES.keys()
