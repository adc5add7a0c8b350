"""A profile of a GPU job tells where the device's time went; the samples tell what its fetching and waiting were."""

import gzip

import pytest

from perfdoctor.analysis.profiled import read_profiles
from perfdoctor.attribution.account import Account
from perfdoctor.recording.schema import Profile
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process
from tests.builders.traces import GEMM, MadeTrace

PID = 4321


def half_fetching() -> MadeTrace:
    """Four steps of 2 ms; in each the GPU waits 1 ms for a batch, and computes for 1 ms."""
    trace = MadeTrace()
    trace.gpu()
    for number in range(4):
        start = 2000.0 * number
        trace.step(number, start, start + 2000)
        trace.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, start + 990)
        trace.operator("aten::mm", start + 990, start + 1000)
        trace.launch(GEMM, start + 992, start + 1000, start + 2000)
    return trace


def sampled(*, rank: int | None = None) -> Account:
    """Ten seconds, as samples from outside tell them: reading is twice what preparing is."""
    account = Account(Process(PID, 1, 0, None, "trainer", 0, rank))
    account.phases.update({"data": 5.0, "forward": 5.0})
    account.own[0] = Amounts({"io.storage_read": 4.0, "cpu.input_preprocessing": 2.0, "cpu.kernel_launch": 4.0})
    return account


def recorded(text: str) -> list[Profile]:
    return [Profile(PID, 0, 100, gzip.compress(text.encode()))]


def test_the_device_is_told_by_the_trace_and_fetching_by_the_samples() -> None:
    profiled = read_profiles(recorded(half_fetching().text()))
    assert profiled.covers([sampled()])
    [joined] = profiled.with_gpu_time([sampled()])
    shares = joined.causes().fractions()
    assert shares["gpu.compute"] == pytest.approx(0.5, abs=0.02)
    assert shares["io.storage_read"] == pytest.approx(0.33, abs=0.02)
    assert shares["cpu.input_preprocessing"] == pytest.approx(0.17, abs=0.02)
    assert sum(shares.values()) == pytest.approx(1)
    assert joined.phases.fractions() == {"data": 0.5, "forward": 0.5}
    assert profiled.summary() == {"count": 4, "median_s": pytest.approx(0.002)}
    assert profiled.numbers["traced_busy"].value == pytest.approx(0.5, abs=0.02)


def test_a_profile_of_a_cpu_job_only_adds_numbers() -> None:
    trace = MadeTrace()
    trace.step(0, 0, 1000)
    trace.operator("aten::mm", 0, 900)
    profiled = read_profiles(recorded(trace.text()))
    assert not profiled.covers([sampled()])
    assert profiled.summary()["count"] == 1


def test_a_trainer_without_a_profile_leaves_all_to_the_samples() -> None:
    other = sampled(rank=1)
    other.trainer = Process(PID + 1, 1, 0, None, "trainer", 0, 1)
    assert not read_profiles(recorded(half_fetching().text())).covers([sampled(rank=0), other])


def test_a_broken_profile_is_told() -> None:
    profiled = read_profiles(recorded("not a trace"))
    assert not profiled.ranks
    assert [note.probe for note in profiled.not_examined] == ["profile"]
