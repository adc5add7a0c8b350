"""A trial on a batch in memory: measures what the input costs, and leaves the loader's batches as they were."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor.analysis.same_batch_trial import Trial, judge
from perfdoctor.diagnosis import Verdict
from tests.attaching import TARGETS
from tests.insiding import run_inside

pytestmark = pytest.mark.alone

TRAIN = (sys.executable, str(TARGETS / "inside_trial.py"))
INPUT = Verdict("cpu", "cpu.input_preprocessing", 0.5, 0.9, 2.0, None, "measured inside", "It is the input.")


@pytest.mark.parametrize("workers", [0, 1])
def test_slow_input_is_confirmed(workers: int, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--workers", str(workers), "--item-ms", "4", launcher=TRAIN)
    verdict = run.told["verdict"]
    assert (verdict["cause"], verdict["level"]) == ("cpu.input_preprocessing", "confirmed by trial")
    assert "A trial confirms it" in verdict["summary"]
    assert run.steps["trial"]["saved"] > verdict["share"] - 0.2
    assert run.said["lost"] == "0", "every batch of the epoch came once, in order"
    assert int(run.said["repeated"]) == run.steps["trial"]["count"]


def test_without_a_loader_there_is_no_trial(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--no-loader", launcher=TRAIN)
    assert "trial" not in run.steps
    assert any("There was no trial" in note["reason"] for note in run.told["not_examined"])


def test_a_trial_that_saves_nothing_casts_doubt() -> None:
    doubted = judge(INPUT, Trial(20, 0.1, -0.02))
    assert (doubted.confidence, doubted.level) == (0.5, "measured inside")
    assert doubted.summary == "It is the input. But in a trial on a batch kept in memory, a step took no less time."


def test_a_trial_that_saves_more_confirms_the_cause() -> None:
    confirmed = judge(INPUT, Trial(20, 0.1, 0.9))
    assert (confirmed.confidence, confirmed.level) == (0.9, "confirmed by trial")
    assert confirmed.summary.endswith("took 90% less. That is more, since making the input also slows down the rest.")


def test_a_trial_says_nothing_about_other_causes() -> None:
    other = replace(INPUT, cause="cpu.model_compute")
    assert judge(other, Trial(20, 0.1, 0.0)) == other
    assert judge(INPUT, None) == INPUT
