"""``with diagnose():`` in less usual training loops: closures, scalers, nesting, two loops, threads, torch.compile."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes.attaching import is_a_diagnosis
from tests.processes.insiding import Run, run_inside

WAYS = ("lbfgs", "scaled", "nested", "adversarial", "threads", "compiled", "spawn", "forkserver")
OPTIONS = ("--observe", "60", "--item-ms", "1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One run of each, some at a time: most of their time is Python's start. To run a test again is no other run."""
    folders = {way: tmp_path_factory.mktemp(way) for way in WAYS}

    def train(way: str) -> Run:
        return run_inside(folders[way], "--way", way, *OPTIONS, script="inside_ways.py")

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(WAYS, pool.map(train, WAYS), strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_steps_are_seen_and_training_goes_on(way: str, runs: dict[str, Run]) -> None:
    run = runs[way]
    assert run.status == 0, run.err
    assert run.said["clean"] == "1", run.err
    is_a_diagnosis(run.told)
    assert run.told["verdict"]["level"] == "measured inside"
    assert run.steps["count"] == 60, run.told["not_examined"]
    phases = run.steps["phases"]
    assert {"data", "forward", "backward", "optimizer"} <= phases.keys()
    assert sum(phase["mean_s"] for phase in phases.values()) == pytest.approx(run.steps["mean_s"], rel=0.01)
    assert "Traceback" not in run.err, run.err


def test_what_a_closure_does_belongs_to_its_own_phases(runs: dict[str, Run]) -> None:
    """The model and the backward pass run inside of the optimizer's step."""
    phases = runs["lbfgs"].steps["phases"]
    assert phases["forward"]["median_s"] > 0
    assert phases["backward"]["median_s"] > 0


def test_only_the_first_wish_counts(runs: dict[str, Run]) -> None:
    assert runs["adversarial"].steps["count"] == 60
    assert "other.html" not in runs["adversarial"].err


def test_only_the_thread_that_was_first_is_watched(runs: dict[str, Run]) -> None:
    assert "thread" not in runs["threads"].steps["phases"]


def test_nothing_is_compiled_anew_when_perfdoctor_steps_aside(runs: dict[str, Run]) -> None:
    assert runs["compiled"].said["compiled"] == "2 0"
