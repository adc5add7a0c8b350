"""What a trainer spends on memory that it shares with a child goes to whatever forks."""

import pytest

from perfdoctor.attribution.attribute import attribute
from perfdoctor.attribution.forks import read_forks
from perfdoctor.causes import CHECKPOINT_WRITE, MODEL_COMPUTE, PYTHON_OVERHEAD, WORKER_STARTUP
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import CHILDREN_FAULTS, Reading, Sample
from tests.builders import jobs
from tests.builders.forks import FORKS_S, FRESH_S, PAGES, PERIOD_S, TRAINER, samples

SAVE = Frame("/v/lib/python3.11/site-packages/torch/serialization.py", "save", 900)


@pytest.mark.parametrize(
    ("frames", "cause"),
    [((jobs.OWN,), PYTHON_OVERHEAD), ((jobs.OWN, SAVE), CHECKPOINT_WRITE)],
)
def test_it_goes_to_what_forks(frames: tuple[Frame, ...], cause: str) -> None:
    job = jobs.timeline([*samples(), *jobs.named(TRAINER, TRAINER, 1), *jobs.stacks(TRAINER, frames)])
    (found,) = read_forks(job, job.processes.by_pid[TRAINER])
    assert found.cause == cause
    assert found.line == "/home/me/train.py:7 main"


def workers() -> list[Sample]:
    """Main threads of those that are forked, as torch names them."""
    pids = range(20, 20 + len(FORKS_S))
    return [sample for pid in pids for sample in jobs.thread(pid, pid, "S", name="pt_data_worker")]


def test_workers_of_a_loader_are_started() -> None:
    job = jobs.timeline([*samples(), *workers()])
    (found,) = read_forks(job, job.processes.by_pid[TRAINER])
    assert found.cause == WORKER_STARTUP


def test_a_program_of_its_own_shares_nothing() -> None:
    job = jobs.timeline(samples(forked=False))
    assert read_forks(job, job.processes.by_pid[TRAINER]) == ()


def test_children_that_were_too_short_lived_to_be_seen_are_known_by_their_end() -> None:
    trainer = [one for one in samples() if getattr(one, "pid", TRAINER) == TRAINER]
    ended = [Reading(jobs.at(max(0.0, fork + 0.01)), "threads", f"pid:{TRAINER}", CHILDREN_FAULTS, float(number))
             for number, fork in enumerate(FORKS_S)]  # fmt: skip
    job = jobs.timeline([*trainer, *ended])
    (found,) = read_forks(job, job.processes.by_pid[TRAINER])
    assert found.pages.per_fork == pytest.approx(PAGES, rel=0.1)


def test_it_is_taken_from_what_the_trainer_computes() -> None:
    (account,) = attribute(jobs.timeline([*samples(), *workers(), *jobs.stacks(TRAINER, (jobs.OWN, jobs.MODULE))]))
    copying = PAGES * FRESH_S * thresholds.COPIED_PAGE / PERIOD_S
    causes = account.causes().fractions()
    assert causes[WORKER_STARTUP] == pytest.approx(copying, rel=0.25)
    assert account.activities.seconds["copying"] / account.seconds == pytest.approx(causes[WORKER_STARTUP])
    assert causes[WORKER_STARTUP] + causes[MODEL_COMPUTE] == pytest.approx(1)
