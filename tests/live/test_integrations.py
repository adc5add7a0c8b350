"""perfdoctor's callbacks in the real frameworks: right steps, phases and verdicts, and training left as it was."""

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfdoctor import diagnose
from tests.files import TARGETS
from tests.processes.attaching import is_a_diagnosis
from tests.processes.insiding import Run, run_inside

CAUSE = "cpu.input_preprocessing"


def here(framework: str) -> Any:
    there = importlib.util.find_spec(framework) is not None
    return pytest.param(framework, marks=pytest.mark.skipif(not there, reason=f"{framework} is not installed"))


both = pytest.mark.parametrize("framework", [here("lightning"), here("transformers")])
lightning = pytest.mark.parametrize("framework", [here("lightning")])


def train(framework: str, folder: Path, *arguments: str, **environment: str) -> Run:
    launcher = (sys.executable, str(TARGETS / f"inside_{framework}.py"))
    run = run_inside(folder, *arguments, launcher=launcher, **environment)
    assert run.status == 0, run.err
    assert "RuntimeWarning" not in run.err
    return run


def is_sound(run: Run, steps: int = 60) -> dict[str, float]:
    """Makes sure that the steps add up; returns each phase's mean in milliseconds."""
    assert run.said["clean"] == "1"
    is_a_diagnosis(run.told)
    assert run.told["verdict"]["level"] == "measured inside"
    assert run.steps["count"] == steps
    phases = {name: phase["mean_s"] * 1000 for name, phase in run.steps["phases"].items()}
    assert sum(phases.values()) == pytest.approx(run.steps["mean_s"] * 1000, rel=0.01)
    assert phases.keys() >= {"data", "forward", "loss", "backward", "optimizer"}
    return phases


@both
def test_slow_dataset_and_the_same_weights_when_disabled(framework: str, tmp_path: Path) -> None:
    run = train(framework, tmp_path, "--item-ms", "1", "--steps", "300")
    phases = is_sound(run)
    shares = {part["cause"]: part["share"] for part in run.told["breakdown"]}
    shares.pop("cpu.contention", None)  # other tests are beside this one
    assert max(shares, key=lambda cause: shares[cause]) == CAUSE
    assert phases["data"] > 0.5 * run.steps["mean_s"] * 1000
    assert phases["data"] >= 16
    (tmp_path / "told.json").unlink()
    plain = train(framework, tmp_path, "--steps", "300", PERFDOCTOR_DISABLE="1")
    assert plain.told == {}
    assert plain.said["weights"] == run.said["weights"]


def typical(run: Run) -> dict[str, float]:
    """Each phase's median in milliseconds: a step that something else on the machine held up does not count."""
    return {name: phase["median_s"] * 1000 for name, phase in run.steps["phases"].items()}


@both
@pytest.mark.alone  # milliseconds are compared
def test_what_runs_in_the_optimizers_closure_is_not_the_optimizers(framework: str, tmp_path: Path) -> None:
    run = train(framework, tmp_path, "--optimizer-ms", "10", "--step-ms", "5", "--observe", "150")
    is_sound(run, 150)
    phases = typical(run)
    assert run.told["verdict"]["cause"] == "cpu.python_overhead"
    assert 10 <= phases["optimizer"] < 14
    assert 5 <= phases["other"] < 9


@both
def test_workers_and_validation_between_epochs(framework: str, tmp_path: Path) -> None:
    # Epochs of 16 steps; a validation of 4 batches of 16 ms.
    run = train(framework, tmp_path, "--item-ms", "1", "--workers", "1", "--validate", "--items", "256")
    is_sound(run)
    assert run.steps["outside_s"] > 3 * 0.064
    assert run.steps["median_s"] < 0.03
    assert run.told["verdict"]["cause"] in (CAUSE, "cpu.worker_startup")


@both
@pytest.mark.alone  # milliseconds are compared
def test_accumulated_gradients_are_steps_as_the_progress_bar_counts_them(framework: str, tmp_path: Path) -> None:
    run = train(framework, tmp_path, "--accumulate", "4", "--step-ms", "5")
    is_sound(run)
    phases = typical(run)
    batches = 4 if framework == "transformers" else 1
    assert phases["other"] >= 5 * batches
    assert phases["other"] < 9 * batches


@both
def test_trained_twice_and_from_a_stream(framework: str, tmp_path: Path) -> None:
    """The second time may begin while perfdoctor still watches, and its steps count on."""
    sizes = ("--items", "2000", "--steps", "80", "--observe", "75")
    run = train(framework, tmp_path, "--item-ms", "3", "--stream", "--twice", *sizes)
    is_sound(run, 75)
    assert run.told["verdict"]["cause"] == CAUSE


@lightning
def test_either_package_of_lightning(framework: str, tmp_path: Path) -> None:
    run = train(framework, tmp_path, "--item-ms", "1", "--package", "pytorch_lightning")
    is_sound(run)
    assert run.told["verdict"]["cause"] == CAUSE


@lightning
@pytest.mark.alone  # two ranks keep two cores busy
def test_ranks_that_lightning_starts(framework: str, tmp_path: Path) -> None:
    run = train(framework, tmp_path, "--item-ms", "1", "--ranks", "2", "--items", "9000", "--steps", "300")
    assert run.told["verdict"]["level"] == "measured inside"
    assert run.told["verdict"]["cause"] == CAUSE
    assert [rank["rank"] for rank in run.told["ranks"]] == [0, 1]
    assert all(rank["steps"]["count"] > 40 for rank in run.told["ranks"])


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_without_the_framework_it_says_what_to_install(framework: str, tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules.update(dict.fromkeys(['lightning', 'pytorch_lightning', 'transformers']))\n"
        f"try:\n    import perfdoctor.{framework}\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert f"pip install 'perfdoctor[{framework}]'" in done.stdout


def test_what_a_callback_holds_can_be_sent_to_another_process() -> None:
    """Launchers that spawn their ranks pickle the Trainer."""
    sent = pickle.loads(pickle.dumps(diagnose(steps=7)))
    assert sent._options.steps == 7
