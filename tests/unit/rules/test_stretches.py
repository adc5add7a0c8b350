"""What was met in one stretch of the time only is said to be, and promises nothing for sure."""

import pytest

from perfdoctor.analysis.from_case import build, describe_trainer
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.share import Share
from perfdoctor.diagnosis import OUTSIDE
from perfdoctor.reports.wording import worded_diagnosis
from perfdoctor.rules.case import Case
from perfdoctor.rules.stretches import single_stretches
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process

EVALUATION, COMPUTE = "cpu.evaluation", "cpu.model_compute"


def account(*seconds_of_evaluation: float, sampled: int = 50) -> Account:
    """Of seconds, each of which evaluates for so long and trains for the rest."""
    found = Account(Process(100, 1, 0, None, "trainer", 0, 0), sampled=sampled)
    for block, spent in enumerate(seconds_of_evaluation):
        found.add(block, spent, CodeLocation("forward"), [Share(EVALUATION, 1.0)])
        found.add(block, 1 - spent, CodeLocation("forward"), [Share(COMPUTE, 1.0)])
    return found


@pytest.mark.parametrize(
    ("spent", "stretch"),
    [
        ([0, 0, 0, 0.8, 1, 1, 0.4, 0, 0, 0, 0, 0], 4.0),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1], 3.0),
        ([0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0], None),
        ([0.3] * 12, None),
        ([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0], None),
        ([0, 0, 0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0], None),
    ],
)
def test_one_stretch_is_told_from_what_comes_again_or_goes_on(spent: list[float], stretch: float | None) -> None:
    assert single_stretches([account(*spent)]).get(EVALUATION) == (pytest.approx(stretch) if stretch else None)


def test_ordinary_work_and_traced_steps_are_no_stretches() -> None:
    once = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert set(single_stretches([account(*once)])) == {EVALUATION}
    assert single_stretches([account(*once, sampled=0)]) == {}


def test_what_came_once_promises_nothing_for_sure() -> None:
    """Five of fifteen seconds may be one evaluation in an hour."""
    watched = account(*[0.0] * 6, *[1.0] * 5, *[0.0] * 4)
    case = Case(watched.causes().fractions(), (describe_trainer(watched, {}),), {}, watched_s=15.0)
    told = worded_diagnosis(build(case, [watched], OUTSIDE))
    assert (told.verdict.cause, told.verdict.confidence) == (EVALUATION, pytest.approx(2 / 3))
    assert "5 s out of 15 s watched and not seen to come again" in told.findings[0].summary
    ranges = [fix.speedup_range for fix in told.findings[0].fixes if fix.speedup_range]
    assert {least for least, _ in ranges} == {1.0}
