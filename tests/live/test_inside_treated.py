"""``diagnose(treat=True)`` on real jobs: what is planted is found between their steps, and nothing of it stays."""

import json
from pathlib import Path

import pytest

from tests.processes.insiding import Run, run_inside

pytestmark = pytest.mark.alone

JOB = "inside_treated.py"


def losses(folder: Path) -> list[str]:
    return list(json.loads((folder / "losses.json").read_text()))


def is_whole(run: Run) -> None:
    """Makes sure that the diagnosis is there, with all that was tried, and the settings as they were.

    Steps may be too short for a verdict beside it.
    """
    assert run.status == 0, run.err
    assert run.said["clean"] == "1"
    assert run.told["treated"]["inside"]
    assert run.told["verdict"]["summary"]


def test_too_many_threads_are_found_and_the_losses_are_those_of_a_job_without(tmp_path: Path) -> None:
    run = run_inside(
        tmp_path, "--threads", "16", "--treat", "within noise", "--minutes", "1", "--report", "out.html", script=JOB
    )
    is_whole(run)
    best = run.told["treated"]["best"]
    assert best["id"] in ("threads=1", "threads=2")
    assert best["measured"]["low"] > 1
    assert best["training"] == "may round differently"
    assert best["changes"][0]["change"].startswith("torch.set_num_threads(")
    assert best["changes"][0]["change"] in run.err.replace("\n      ", "\n")
    assert best["changes"][0]["title"] in (tmp_path / "out.html").read_text()
    assert run.said["changed"] == "inside"
    treated = losses(tmp_path)
    plain = run_inside(tmp_path, "--steps", str(len(treated)), script=JOB, PERFDOCTOR_DISABLE="1")
    assert plain.status == 0, plain.err
    assert losses(tmp_path) == treated


def test_where_nothing_helps_nothing_is_claimed(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--width", "1000", "--treat", "within noise", "--minutes", "0.4", script=JOB)
    is_whole(run)
    assert run.told["treated"]["best"] is None
    assert "confidence" not in run.told["treated"]
    assert "faster, as measured" not in run.err


def test_around_a_step_nothing_is_changed_between_steps(tmp_path: Path) -> None:
    """What takes the time here is that all objects are looked through; what rounds differently is not tried."""
    collecting = ("--way", "step", "--width", "1000", "--objects", "30000", "--collect")
    run = run_inside(tmp_path, *collecting, "--minutes", "1", script=JOB)
    is_whole(run)
    best = run.told["treated"]["best"]
    assert {"gc.freeze()", "gc.collect() rarely"} & set(best["id"].split(" + "))
    assert best["measured"]["low"] > 1
    assert best["training"] == "computes the same"
    assert run.said["changed"] == "inside"


def test_an_exception_in_the_middle_leaves_nothing_changed(tmp_path: Path) -> None:
    run = run_inside(
        tmp_path, "--width", "1000", "--objects", "30000", "--collect", "--raise-changed", "--minutes", "1", script=JOB
    )
    assert run.status == 0, run.err
    assert run.said["raised"] == "of the user's own"
    assert run.said["undone"] == "1"
    assert run.told["treated"]["interrupted"]
