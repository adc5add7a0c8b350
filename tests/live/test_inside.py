"""``with diagnose():`` in real training scripts: how loops are written, and how they end."""

from pathlib import Path

import pytest

from tests.processes.attaching import is_a_diagnosis
from tests.processes.insiding import ENOUGH, Run, run_inside

pytestmark = pytest.mark.alone  # verdicts count

CAUSE = "cpu.input_preprocessing"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The script without any of it."""
    return run_inside(tmp_path_factory.mktemp("plain"), "--steps", "150", PERFDOCTOR_DISABLE="1")


def is_sound(run: Run, steps: int = 60) -> None:
    """Makes sure that the training went on untouched, and that the steps add up."""
    assert run.status == 0, run.err
    assert run.said["clean"] == "1"
    is_a_diagnosis(run.told)
    assert run.told["verdict"]["level"] == "measured inside"
    assert run.steps["count"] == steps
    total = sum(phase["mean_s"] for phase in run.steps["phases"].values())
    assert total == pytest.approx(run.steps["mean_s"], rel=0.01)


def test_disabled_it_does_nothing(plain: Run, tmp_path: Path) -> None:
    assert plain.status == 0
    assert plain.err == ""
    assert plain.told == {}
    assert plain.said["told"] == "None"


def test_around_a_step_and_with_the_same_losses_as_without(plain: Run, tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--steps", "150", "--report", "out.html", "--recording", "out.perfdoctor")
    is_sound(run)
    assert run.said["losses"] == plain.said["losses"]
    assert run.said["called"] == "diagnose __enter__ __exit__", "nothing else of it is left"
    assert run.said["told"] == CAUSE
    assert run.told["verdict"]["cause"] == CAUSE
    assert run.steps["phases"]["data"]["share"] > 0.5
    assert {"forward", "loss", "backward", "optimizer"} <= run.steps["phases"].keys()
    assert "preparing the input" in run.err
    assert "Time per step" in (tmp_path / "out.html").read_text()
    assert '<table class="source">' in (tmp_path / "out.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"told.json", "out.html", "out.perfdoctor"}


def test_around_the_loop_with_validation_between_epochs(plain: Run, tmp_path: Path) -> None:
    validating = ("--items", "64", "--validate", "--workers", "1")
    run = run_inside(tmp_path, *ENOUGH, "--way", "loop", *validating)
    is_sound(run)
    # 15 epochs, each with a validation of 4 batches of 16 ms.
    assert run.steps["outside_s"] > 15 * 0.06 * 0.5
    assert run.told["verdict"]["bottleneck"] == "cpu"


def test_validation_between_single_steps(tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--items", "64", "--validate")
    is_sound(run)
    assert run.steps["outside_s"] > 14 * 0.06 * 0.5
    assert [note for note in run.told["not_examined"] if note["probe"] == "steps"] == [], "it is in the breakdown"
    assert run.told["verdict"]["cause"] == CAUSE


@pytest.mark.parametrize("way", ["decorator", "accumulate", "two"])
def test_other_ways_to_train(way: str, tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--way", way)
    is_sound(run)
    assert run.told["verdict"]["cause"] == CAUSE


def test_no_loader_and_a_phase_of_the_users_own(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--way", "synthetic", "--observe", "30", "--collect")
    is_sound(run, 30)
    assert {"augment", "forward", "backward", "optimizer"} <= run.steps["phases"].keys()
    assert run.steps["collector_s"] > 0
    assert run.told["verdict"]["cause"] == "cpu.garbage_collection"


def test_a_step_may_hold_several_steps_of_one_optimizer(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--way", "reinforced", "--observe", "60")
    is_sound(run, 60)
    # In each it sleeps once.
    assert run.steps["median_s"] > 0.008


def test_an_optimizer_may_have_several_turns_while_another_has_one(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--way", "criticised", "--observe", "60")
    is_sound(run, 60)
    # In each it sleeps three times.
    assert run.steps["median_s"] > 0.009


def test_steps_that_the_script_tells(tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--way", "told")
    is_sound(run)
    assert run.told["verdict"]["cause"] == CAUSE
    assert run.steps["phases"]["data"]["mean_s"] > 2 * 0.016


def test_steps_that_the_script_forgets_to_tell(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--item-ms", "1", "--steps", "150", "--way", "forgotten")
    assert run.status == 0
    assert run.told["steps"] == {}
    assert "step() was not called" in str(run.told["not_examined"])


@pytest.mark.parametrize(("way", "status"), [("raise", 1), ("exit", 3)])
def test_a_loop_that_ends_early(way: str, status: int, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--way", way, "--item-ms", "1", "--seconds", "3")
    assert run.status == status
    assert run.said["clean"] == "0" or way == "exit"
    assert ("ValueError: of the user's own" in run.err) == (way == "raise")
    assert run.told["verdict"]["cause"] == CAUSE
    assert run.told["job"]["stopped"] == "last observed step"
