"""A trial on a batch in memory: measures what the input costs, and leaves the loader's batches as they were."""

import sys
from pathlib import Path

import pytest

from tests.files import TARGETS
from tests.processes.insiding import run_inside

pytestmark = pytest.mark.alone

TRAIN = (sys.executable, str(TARGETS / "inside_trial.py"))


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
