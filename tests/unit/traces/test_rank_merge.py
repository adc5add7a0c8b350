"""Several ranks with planted timelines: who is late, what for, and what of communication is transfer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.traces.reader import read_trace
from tests.builders.rank_traces import MadeJob, shares, waits
from tests.builders.traces import ALL_REDUCE, MadeTrace, diagnose_traces

STEPS = 10


def train(job: MadeJob, work: Callable[[MadeJob, int, int], None], *, transfer: float = 1000.0) -> MadeJob:
    """Steps in which every rank works, and all meet in one collective."""
    for step in range(STEPS):
        begun = list(job.now)
        for rank in range(job.world):
            work(job, rank, step)
        job.meet(transfer)
        job.step(begun)
    return job


def equal(job: MadeJob, rank: int, step: int) -> None:
    job.compute(rank, 9000.0)


def one_loads(job: MadeJob, rank: int, step: int) -> None:
    """Rank 1 fetches for 5 ms what the others have at once."""
    if rank == 1:
        job.load(rank, 5000.0)
    job.compute(rank, 4000.0)


def one_computes(job: MadeJob, rank: int, step: int) -> None:
    job.compute(rank, 9000.0 if rank == 2 else 3000.0)


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_rank_that_is_late_with_its_input_is_named(marks: bool, numbered: bool, tmp_path: Path) -> None:
    diagnosis = train(MadeJob(4, marks=marks, numbered=numbered), one_loads).diagnose(tmp_path)
    assert diagnosis.verdict.cause == "cpu.input_preprocessing"
    assert diagnosis.verdict.straggler_rank == 1
    assert diagnosis.findings[0].ranks == (1,)
    # Of each step of 10 ms: 4 compute, 1 transfer, and 5 the input of rank 1.
    assert shares(diagnosis)["cpu.input_preprocessing"] == pytest.approx(0.5, abs=0.02)
    assert shares(diagnosis)["communication.bandwidth"] == pytest.approx(0.1, abs=0.01)
    assert waits(diagnosis, 0) == {"1": pytest.approx(0.5, abs=0.02)}
    assert waits(diagnosis, 1) == {}


def test_a_rank_with_more_arithmetic_is_unequal_work(tmp_path: Path) -> None:
    diagnosis = train(MadeJob(4), one_computes).diagnose(tmp_path)
    assert diagnosis.verdict.cause == "gpu.compute"
    assert diagnosis.verdict.straggler_rank == 2
    assert waits(diagnosis, 3) == {"2": pytest.approx(0.6, abs=0.02)}
    assert not any(one.cause.startswith("communication.unattributed") for one in diagnosis.findings)


def two_stages(job: MadeJob) -> MadeJob:
    """Ranks 0 and 1 split the layers of a first stage, 2 and 3 those of a second one with twice the work.

    Layers and stages meet in kernels of one name, layers of the second stage twice as often, and the streams of the
    groups have other numbers there.
    """
    for _ in range(STEPS):
        begun = list(job.now)
        for stage, work, streams in (((0, 1), 4, (28, 32)), ((2, 3), 8, (32, 28))):
            for _ in range(work // 4):
                for rank in stage:
                    job.compute(rank, 4000.0)
                job.meet(100.0, ranks=stage, group=f"layers{stage}", streams=[streams[0]] * 2)
            for pair in ((0, 2), (1, 3)):
                job.meet(10.0, ranks=pair, group=f"stages{pair}", streams=(32, 28))
        job.step(begun)
    return job


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_groups_that_no_file_names_are_told_by_their_streams(marks: bool, numbered: bool, tmp_path: Path) -> None:
    diagnosis = two_stages(MadeJob(4, marks=marks, numbered=numbered)).diagnose(tmp_path)
    # Of each 12.3 ms the first stage waits 8.2 for the second one, which waits 4.1 for the first.
    for rank, others, waited in ((0, "23", 0.66), (1, "23", 0.66), (2, "01", 0.33), (3, "01", 0.33)):
        assert sum(waits(diagnosis, rank).get(other, 0.0) for other in others) == pytest.approx(waited, abs=0.05)
    assert shares(diagnosis).get("communication.unattributed_wait", 0.0) < 0.02
    assert shares(diagnosis).get("communication.bandwidth", 0.0) < 0.02


def test_stages_that_wait_for_each_other_are_told_to_split_their_batches(tmp_path: Path) -> None:
    job = two_stages(MadeJob(4))
    title = "Split the batch into more micro-batches"
    assert not any(fix.title == title for one in job.diagnose(tmp_path / "others").findings for fix in one.fixes)
    for made in job.traces:
        made.operator("c10d::send", 1000.0, 1001.0)
    diagnosis = job.diagnose(tmp_path / "stages")
    assert diagnosis.verdict.cause == "gpu.compute"
    fix = next(fix for fix in diagnosis.findings[0].fixes if fix.title == title)
    assert fix.predicted_speedup == pytest.approx(4 / 3, abs=0.05)
    assert fix.speedup_range == (1.0, pytest.approx(2.0, abs=0.1))
    assert "n_microbatches = 2 * n_microbatches" in fix.change


def test_a_rank_that_recorded_fewer_collectives_goes_along_with_the_others(tmp_path: Path) -> None:
    job = MadeJob(4, marks=False)
    job.meet(1000.0)
    job.traces[2].events.pop()  # it began to record later
    job.traces[2].events.pop()
    diagnosis = train(job, one_loads).diagnose(tmp_path)
    assert diagnosis.verdict.straggler_rank == 1
    assert waits(diagnosis, 2) == {"1": pytest.approx(0.5, abs=0.02)}


@pytest.mark.parametrize(("longer", "advice"), [(1, "Check the GPU"), (3, "Give all ranks the same work")])
def test_a_slow_gpu_is_told_from_more_work(longer: int, advice: str, tmp_path: Path) -> None:
    """Rank 2 computes three times as long: in kernels that are longer, or in three times as many."""
    job = MadeJob(4)
    for _ in range(8):
        begun = list(job.now)
        for rank in range(4):
            for _ in range(longer if rank == 2 else 1):
                job.compute(rank, 3000.0 if rank == 2 and longer == 1 else 1000.0)
        job.meet(100.0)
        job.step(begun)
    diagnosis = job.diagnose(tmp_path)
    assert (diagnosis.verdict.cause, diagnosis.verdict.straggler_rank) == ("gpu.compute", 2)
    [fix] = diagnosis.findings[0].fixes
    assert fix.title.startswith(advice)


def test_clocks_that_are_apart_change_nothing(tmp_path: Path) -> None:
    skew = [0.0, 700_000.0, -3_000_000.0, 12_345.6]
    plain = train(MadeJob(4, numbered=True), one_loads).diagnose(tmp_path / "plain")
    skewed = train(MadeJob(4, numbered=True, skew=skew), one_loads).diagnose(tmp_path / "skewed")
    assert skewed.verdict.straggler_rank == 1
    assert skewed.job["clock_error_us"] < 1.0
    for cause, share in shares(plain).items():
        assert shares(skewed)[cause] == pytest.approx(share, abs=0.001)


def test_equal_ranks_have_no_straggler(tmp_path: Path) -> None:
    diagnosis = train(MadeJob(4), equal).diagnose(tmp_path)
    assert diagnosis.verdict.cause == "gpu.compute"
    assert diagnosis.verdict.straggler_rank is None
    assert shares(diagnosis)["gpu.compute"] == pytest.approx(0.9, abs=0.005)
    assert shares(diagnosis)["communication.bandwidth"] == pytest.approx(0.1, abs=0.005)
    assert all(waits(diagnosis, rank) == {} for rank in range(4))


def test_when_all_are_there_it_is_bandwidth(tmp_path: Path) -> None:
    diagnosis = train(MadeJob(2), lambda job, rank, step: job.compute(rank, 2000.0), transfer=8000.0).diagnose(tmp_path)
    assert diagnosis.verdict.cause == "communication.bandwidth"
    assert diagnosis.verdict.straggler_rank is None
    assert shares(diagnosis)["communication.bandwidth"] == pytest.approx(0.8, abs=0.01)


def test_many_small_collectives_are_latency(tmp_path: Path) -> None:
    job = MadeJob(2, numbered=True, size=1000)
    for _ in range(STEPS):
        begun = list(job.now)
        for rank in range(2):
            job.compute(rank, 2000.0)
        for _ in range(50):
            job.meet(40.0)
        job.step(begun)
    diagnosis = job.diagnose(tmp_path)
    assert diagnosis.verdict.cause == "communication.latency"
    assert shares(diagnosis)["communication.latency"] == pytest.approx(0.5, abs=0.01)


def test_what_is_hidden_behind_arithmetic_is_no_wait(tmp_path: Path) -> None:
    """Both ranks exchange behind their arithmetic; rank 1 comes late to it, and nobody is held up."""
    job = MadeJob(2)

    def behind(late: float) -> Callable[[MadeTrace, float], None]:
        return lambda made, now: made.launch(ALL_REDUCE, now - 4.0, now + late, now + 7000.0, stream=20)

    for _ in range(STEPS):
        begun = list(job.now)
        for rank in range(2):
            job.compute(rank, 9000.0, hidden=behind(5000.0 * rank))
        job.step(begun)
    diagnosis = job.diagnose(tmp_path)
    assert diagnosis.job["matched_collectives"] == STEPS
    assert shares(diagnosis)["gpu.compute"] == pytest.approx(1.0, abs=0.001)
    assert waits(diagnosis, 0) == {}


def test_another_rank_in_each_step_is_no_straggler_but_its_work_is_the_cause(tmp_path: Path) -> None:
    def changing(job: MadeJob, rank: int, step: int) -> None:
        if (rank + step) % 4 == 0:
            job.load(rank, 5000.0)
        job.compute(rank, 4000.0)

    diagnosis = train(MadeJob(4), changing).diagnose(tmp_path)
    assert diagnosis.verdict.cause == "cpu.input_preprocessing"
    assert diagnosis.verdict.straggler_rank is None
    assert shares(diagnosis)["cpu.input_preprocessing"] == pytest.approx(0.5, abs=0.02)
    assert set(waits(diagnosis, 0)) == {"1", "2", "3"}


def test_a_rank_that_was_not_seen_is_not_blamed_on_those_that_were(tmp_path: Path) -> None:
    """Rank 1 is late in two of three steps, and its trace is missing."""

    def sometimes(job: MadeJob, rank: int, step: int) -> None:
        one_loads(job, rank, step) if step % 3 else job.compute(rank, 4000.0)

    diagnosis = train(MadeJob(4, numbered=True), sometimes).diagnose(tmp_path, ranks=[0, 2, 3])
    assert diagnosis.verdict.cause == "communication.unattributed_wait"
    assert diagnosis.verdict.straggler_rank is None
    assert any("3 of 4 ranks were seen" in one.reason for one in diagnosis.not_examined)


def test_of_ranks_that_were_seen_the_late_one_is_named_though_others_are_missing(tmp_path: Path) -> None:
    diagnosis = train(MadeJob(4, numbered=True), one_loads).diagnose(tmp_path, ranks=[0, 1, 3])
    assert diagnosis.verdict.cause == "cpu.input_preprocessing"
    assert diagnosis.verdict.straggler_rank == 1


def test_groups_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    """Ranks 0 and 1 meet, and 2 and 3, by kernels of one name; rank 3 is late to its own group only."""
    job = MadeJob(4)
    for step in range(STEPS):
        begun = list(job.now)
        for rank in range(4):
            job.compute(
                rank, (8000.0 if rank == 3 else 2000.0 if rank == 2 else 4000.0) + 700.0 * (step % 4) * (rank > 1)
            )
        job.meet(200.0, ranks=[0, 1])
        job.meet(200.0, ranks=[2, 3])
        job.step(begun)
        job.now = [max(job.now)] * 4
    diagnosis = job.diagnose(tmp_path)
    assert set(waits(diagnosis, 2)) == {"3"}
    assert waits(diagnosis, 0) == {}


def test_blame_goes_on_to_the_rank_that_does_not_wait(tmp_path: Path) -> None:
    """A chain: 1 waits for 0 in one group, 2 for 1 in another, as pipeline stages do."""
    job = MadeJob(3, numbered=True)
    for _ in range(STEPS):
        begun = list(job.now)
        job.load(0, 6000.0)
        for rank in range(3):
            job.compute(rank, 1000.0)
        job.meet(300.0, ranks=[0, 1], group="a")
        job.meet(300.0, ranks=[1, 2], group="b")
        job.meet(300.0)
        job.step(begun)
    diagnosis = job.diagnose(tmp_path)
    assert diagnosis.verdict.straggler_rank == 0
    assert diagnosis.verdict.cause == "cpu.input_preprocessing"
    assert waits(diagnosis, 2)["0"] > 0.9 * sum(waits(diagnosis, 2).values())


def test_a_rank_that_began_to_record_earlier_is_matched(tmp_path: Path) -> None:
    """No marks and no numbers: rank 0 saw three collectives more, at the beginning."""
    job = train(MadeJob(2, marks=False), one_loads)
    job.traces[1].events = [event for event in job.traces[1].events if event["ts"] >= 31_000.0]
    diagnosis = job.diagnose(tmp_path)
    assert diagnosis.verdict.straggler_rank == 1
    assert diagnosis.job["matched_collectives"] == STEPS - 3


def test_traces_of_different_runs_are_refused(tmp_path: Path) -> None:
    MadeJob.write(train(MadeJob(2), equal), tmp_path / "a")
    MadeJob.write(train(MadeJob(4), equal), tmp_path / "b")
    for files, words in [
        (["a/rank0.json", "b/rank0.json"], "all of rank 0"),
        (["a/rank0.json", "b/rank1.json"], "not of one run"),
    ]:
        traces = [read_trace(tmp_path / file) for file in files]
        with pytest.raises(PerfDoctorError, match=words):
            diagnose_traces(traces)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_copy_of_a_trace_is_no_other_rank(numbered: bool, tmp_path: Path) -> None:
    """As a folder that was filled up with one rank's file; its ranks' numbers may have been changed, or be missing."""
    job = train(MadeJob(4), one_loads)
    for rank in (2, 3):
        job.traces[rank].events = job.traces[0].events
    if not numbered:
        for made in job.traces:
            del made.document["distributedInfo"]
    diagnosis = job.diagnose(tmp_path)
    assert len(diagnosis.ranks) == 2
    [note] = [one for one in diagnosis.not_examined if "a copy of it" in one.reason]
    assert note.reason.startswith("rank2.json, rank3.json: the same as rank0.json")


def test_equal_ranks_are_no_copies(tmp_path: Path) -> None:
    diagnosis = train(MadeJob(4), equal).diagnose(tmp_path)
    assert len(diagnosis.ranks) == 4
    assert not any("a copy of it" in one.reason for one in diagnosis.not_examined)


def test_a_rank_that_begins_its_trace_late_was_not_observed_before(tmp_path: Path) -> None:
    """One step, which rank 1 begins 5 ms after the others: what it did until then lies before its trace."""
    job = MadeJob(4)
    job.now[1] += 5000.0
    begun = list(job.now)
    for rank in range(job.world):
        job.compute(rank, 4000.0)
    job.meet(1000.0)
    job.step(begun)
    diagnosis = job.diagnose(tmp_path)
    assert shares(diagnosis)["communication.unattributed_wait"] == pytest.approx(0.75 * 0.5, abs=0.05)
    assert shares(diagnosis).get("unattributed", 0.0) < 0.05
    assert waits(diagnosis, 0) == {"1": pytest.approx(0.5, abs=0.05)}


def test_traces_of_different_times_are_told(tmp_path: Path) -> None:
    """The same steps, an hour apart by the clocks."""
    skew = [0.0, 3.6e9]
    job = train(MadeJob(2), equal)
    later = train(MadeJob(2, skew=skew), equal)
    job.traces[1] = later.traces[1]
    for event in job.traces[1].events:
        if str(event["name"]).startswith("ProfilerStep"):
            event["name"] = f"ProfilerStep#{1000 + int(str(event['name']).split('#')[1])}"
    told = " ".join(one.reason for one in job.diagnose(tmp_path).not_examined)
    assert "apart" in told
    assert "different steps" in told
