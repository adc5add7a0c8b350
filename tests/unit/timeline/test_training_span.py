"""Start and end of a job are not training: what is seen of imports and of an interpreter's exit is in no account."""

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import Diagnosis, Why
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Sample
from perfdoctor.reports.wording import worded
from tests.builders.jobs import MODULE, OWN, SECONDS, code, process, recorded, stacks, thread, timeline

BACKWARD = Frame("/v/lib/python3.11/site-packages/torch/_tensor.py", "Tensor.backward", 623)
IMPORT = (OWN, Frame("<frozen importlib._bootstrap>", "_find_and_load", 1176))
# A body of a module of torchvision's is no transform.
OF_TRANSFORMS = (*IMPORT, Frame("/v/lib/python3.11/site-packages/torchvision/transforms/__init__.py", "<module>", 1))
TRAINING = ((OWN, MODULE), (OWN, BACKWARD))
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


def test_what_follows_the_last_step_of_a_job_that_ends_is_not_judged() -> None:
    parts = (5.0, TRAINING), (5.0, ((), (OWN,)))
    assert judged(watched(*parts, age_s=3600, ends=True)) == pytest.approx(5, abs=0.3)
    assert judged(watched(*parts, age_s=3600)) == pytest.approx(10, abs=0.2)


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
