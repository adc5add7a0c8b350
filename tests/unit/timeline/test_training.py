"""Which thread of a process trains, and from when to when.

It is the first thread, or one that Python started, as Ray Train has it. Start and end of a job are not training: what
is seen of imports and of an interpreter's exit is in no account.
"""

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import Diagnosis, Why
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Sample
from perfdoctor.reports.wording import worded
from tests.builders import jobs
from tests.builders.jobs import MODULE, OWN, SECONDS, code, process, recorded, stacks, thread, timeline

IDLE = Frame("/v/lib/python3.11/site-packages/ray/_private/worker.py", "Worker.main_loop", 1043)
LOOP = Frame("/home/me/train.py", "fit", 31)
BACKWARD = Frame("/v/lib/python3.11/site-packages/torch/autograd/graph.py", "_engine_run_backward", 979)
FIRST, TRAINS, STARTED = 10, 40, 7


def rank(pid: int, *seen: tuple[Frame, ...]) -> list[Sample]:
    """A process whose first thread idles while another one is seen in these stacks."""
    return [
        *jobs.process(pid),
        *jobs.thread(pid, pid, "S"),
        *jobs.thread(pid + TRAINS, pid, "R", run=0.9),
        *jobs.stacks(pid, (IDLE,), ident=pid),
        *jobs.stacks(pid, *seen, ident=pid + STARTED),
    ]


def calls(tid: int, times: int = 100) -> list[Sample]:
    return jobs.code(tid, "libtorch_python.so", "torch::autograd::THPVariable_add", times)


WAITS, LEARNS = (jobs.BOOTSTRAP, LOOP), (jobs.BOOTSTRAP, LOOP, BACKWARD)


def test_a_thread_that_is_seen_in_the_backward_pass_trains() -> None:
    job = jobs.timeline([*rank(FIRST, LEARNS, WAITS), *jobs.named(FIRST + TRAINS, FIRST, FIRST + STARTED, "fit")])
    assert job.threads.main_tid(FIRST) == FIRST + TRAINS
    assert job.stacks.of_main(FIRST).ident == FIRST + STARTED  # type: ignore[union-attr]


def test_machine_code_tells_where_pythons_identifiers_were_not_read() -> None:
    samples = [*rank(FIRST, LEARNS, WAITS), *jobs.gil(FIRST, 0, FIRST + TRAINS), *calls(FIRST + TRAINS)]
    # Autograd's thread calls operators too, and does without the GIL.
    samples += [*jobs.thread(FIRST + 31, FIRST), *calls(FIRST + 31, 200)]
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST + TRAINS


@pytest.mark.parametrize("by_first", [1, 50])
def test_a_first_thread_that_calls_operators_trains(by_first: int) -> None:
    samples = [*rank(FIRST, WAITS), *jobs.gil(FIRST, FIRST + TRAINS), *calls(FIRST + TRAINS), *calls(FIRST, by_first)]
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST


def test_a_first_thread_that_waits_for_batches_trains() -> None:
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_next_data", 1400)
    samples = [*jobs.process(FIRST), *jobs.thread(FIRST, FIRST, "S"), *jobs.thread(FIRST + TRAINS, FIRST)]
    samples += [*jobs.stacks(FIRST, (jobs.OWN, loader), ident=FIRST), *calls(FIRST + TRAINS)]
    samples += jobs.gil(FIRST, FIRST + TRAINS)
    assert jobs.timeline(samples).threads.main_tid(FIRST) == FIRST


def test_ranks_run_the_same_code() -> None:
    """Of the second rank only a wait was seen, in a place where the thread that trains waits in the first one, too."""
    job = jobs.timeline([*rank(FIRST, LEARNS, WAITS), *rank(100, WAITS)])
    assert job.stacks.of_main(100).ident == 100 + STARTED  # type: ignore[union-attr]


IN_BACKWARD = Frame("/v/lib/python3.11/site-packages/torch/_tensor.py", "Tensor.backward", 623)
IMPORT = (OWN, Frame("<frozen importlib._bootstrap>", "_find_and_load", 1176))
TO_MEET = Frame("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "init_process_group", 1892)
# A body of a module of torchvision's is no transform.
OF_TRANSFORMS = (*IMPORT, Frame("/v/lib/python3.11/site-packages/torchvision/transforms/__init__.py", "<module>", 1))
TRAINING = ((OWN, MODULE), (OWN, IN_BACKWARD))
PER_S = 20


def watched(*parts: tuple[float, tuple[tuple[Frame, ...], ...]], age_s: float, ends: bool = False) -> list[Sample]:
    """A job that is in some stacks by turns for some seconds, then in others; its interpreter works all the time."""
    seen: list[Sample] = []
    now = 0.0
    for seconds, turns in parts:
        seen += stacks(10, *turns, times=round(seconds * PER_S), from_s=now)
        now += seconds
    interpreter = code(10, "python3.11", "_PyEval_EvalFrameDefault", 900)
    ended = SECONDS if ends else None
    return [*process(10, started_s=-age_s, ended_s=ended), *thread(10, 10, run=1.0), *seen, *interpreter]


def judged(job: list[Sample]) -> float:
    """How many seconds are in the account."""
    (account,) = attribute(timeline(job))
    return account.seconds


def diagnosis(job: list[Sample]) -> Diagnosis:
    with recorded(job) as recording:
        return examine(recording)


def test_imports_of_a_young_job_are_not_judged() -> None:
    parts = (4.0, (IMPORT, OF_TRANSFORMS, (OWN,))), (6.0, TRAINING)
    job = watched(*parts, age_s=1)
    assert judged(job) == pytest.approx(6, abs=0.2)
    (said,) = [one for one in diagnosis(job).not_examined if worded(one.reason).startswith("4 s before")]
    assert worded(said.reason) == "4 s before the job trained were watched too: they are in no share."
    assert judged(watched(*parts, age_s=3600)) == pytest.approx(10, abs=0.2), "a long pause in a job that trains"


def test_ranks_that_have_not_found_each_other_do_not_train() -> None:
    looks = ((OWN, TO_MEET),)
    assert judged(watched((4.0, looks), (6.0, TRAINING), age_s=3600)) == pytest.approx(6, abs=0.2)
    assert judged(watched((10.0, looks), age_s=3600)) == pytest.approx(0, abs=0.2)
    assert judged(watched((5.0, TRAINING), (5.0, looks), age_s=3600)) == pytest.approx(10, abs=0.2), "a new group"


def test_no_rank_trains_before_all_have_come() -> None:
    """One waits for the other, which reads its data meanwhile."""
    late = [
        *process(11, parent=5, RANK="1", WORLD_SIZE="2"),
        *thread(11, 11, run=1.0),
        *stacks(11, (OWN,), (OWN, IMPORT[1]), times=200),
    ]
    waits = [
        *process(10, parent=5, RANK="0", WORLD_SIZE="2"),
        *thread(10, 10, "S"),
        *stacks(10, (OWN, TO_MEET), times=200),
    ]
    job = timeline([*process(5, uses_torch=False), *waits, *late])
    assert {one.trainer.rank: one.seconds for one in attribute(job)} == pytest.approx({0: 0.0, 1: 0.0}, abs=0.2)


def test_what_follows_the_last_step_of_a_job_that_ends_is_not_judged() -> None:
    parts = (5.0, TRAINING), (5.0, ((), (OWN,)))
    assert judged(watched(*parts, age_s=3600, ends=True)) == pytest.approx(5, abs=0.3)
    assert judged(watched(*parts, age_s=3600)) == pytest.approx(10, abs=0.2)


def test_who_ends_before_it_has_trained_is_not_judged() -> None:
    part = (10.0, ((OWN,), ()))
    assert judged(watched(part, age_s=1, ends=True)) == pytest.approx(0, abs=0.2)
    assert judged(watched(part, age_s=1)) == pytest.approx(10, abs=0.2)
    assert judged(watched(part, age_s=3600, ends=True)) == pytest.approx(10, abs=0.3)


def test_a_job_that_only_begins_is_watched_too_briefly() -> None:
    job = watched((9.8, (IMPORT, (OWN,))), (0.2, TRAINING), age_s=1)
    missing = diagnosis(job).verdict.missing
    assert missing is not None
    assert missing.why is Why.TOO_BRIEF
    assert "had not begun" in worded(missing.summary)


def test_a_young_job_that_waits_for_its_first_batch_is_judged() -> None:
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_next_data", 1400)
    job = watched((10.0, ((OWN, loader),)), age_s=1)
    assert judged(job) == pytest.approx(10, abs=0.2)
    assert diagnosis(job).verdict.missing is None
