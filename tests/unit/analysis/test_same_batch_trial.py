"""What a trial on a batch in memory makes of a verdict."""

from dataclasses import replace

from perfdoctor.analysis.same_batch_trial import SameBatchTrial, judge
from perfdoctor.diagnosis import Verdict
from perfdoctor.reports.wording import worded

INPUT = Verdict("cpu", "cpu.input_preprocessing", 0.5, 0.9, 2.0, None, "measured inside", "It is the input.")


def test_a_trial_that_saves_nothing_casts_doubt() -> None:
    doubted = judge(INPUT, SameBatchTrial(20, 0.1, -0.02))
    assert (doubted.confidence, doubted.level) == (0.5, "measured inside")
    assert (
        worded(doubted.summary)
        == "It is the input. But in a trial on a batch kept in memory, a step took no less time."
    )


def test_a_trial_that_saves_more_confirms_the_cause() -> None:
    confirmed = judge(INPUT, SameBatchTrial(20, 0.1, 0.9))
    assert (confirmed.confidence, confirmed.level) == (0.9, "confirmed by trial")
    assert worded(confirmed.summary).endswith(
        "took 90% less. That is more than its share, since making the input also slows down the rest."
    )


def test_a_trial_says_nothing_about_other_causes() -> None:
    other = replace(INPUT, cause="cpu.model_compute")
    assert judge(other, SameBatchTrial(20, 0.1, 0.0)) == other
    assert judge(INPUT, None) == INPUT
