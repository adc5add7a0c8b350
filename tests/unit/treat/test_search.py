"""The search: what it finds in jobs whose truth is known, and what it spends."""

import pytest

from perfdoctor.messages import Message
from perfdoctor.results.treatment import Outcome, Training
from perfdoctor.treat.run import RunChange
from perfdoctor.treat.search import Arm, Found, search
from perfdoctor.treat.situation import Treatment
from perfdoctor.treat.treatments import together
from tests.builders.trials import Laboratory, a_run, a_treatment, arms


def effects(**gains: float) -> "Laboratory":
    """A quiet laboratory in which variables have these effects, each by itself and all together."""

    def speedup(variables: set[str]) -> float:
        gain = 1.0
        for name in variables:
            gain *= gains.get(name.lower(), 1.0)
        return gain

    return Laboratory(speedup, 0.01, 1200)


def test_the_best_is_found_and_measured_by_runs_of_its_own() -> None:
    lab = effects(good=1.5, bad=0.7)
    found = arms(Found(), a_treatment("bad"), a_treatment("good"), a_treatment("nothing"))
    search(found, lab)
    assert [arm.outcome for arm in found.arms] == [Outcome.UNDECIDED, Outcome.FASTER, Outcome.SAME]
    assert found.best is not None
    assert found.best.name == "good"
    assert found.best is not found.arms[1]
    assert found.best.speedup == pytest.approx(1.5, rel=0.05)
    assert found.best.training is Training.IDENTICAL


def test_changes_that_help_are_put_together() -> None:
    lab = effects(good=1.5, better=2.0)
    found = arms(Found(), a_treatment("good"), a_treatment("better"))
    search(found, lab)
    assert found.best is not None
    assert found.best.name == "better + good"
    assert found.best.speedup == pytest.approx(3.0, rel=0.05)


def test_what_brings_nothing_beside_the_best_is_left_out() -> None:
    lab = Laboratory(lambda variables: 1.5 if variables else 1.0, 0.01, 1200)
    found = arms(Found(), a_treatment("one"), a_treatment("other"))
    search(found, lab)
    assert [arm.outcome for arm in found.combined] == [Outcome.SAME]
    assert found.best is not None
    assert " + " not in found.best.name


def test_what_is_hopeless_is_not_run_again() -> None:
    lab = effects(bad=0.3)
    found = arms(Found(), a_treatment("bad"))
    search(found, lab)
    assert lab.names.count("bad") == 1
    assert found.arms[0].outcome is Outcome.UNDECIDED
    assert isinstance(found.arms[0].detail, Message)


@pytest.mark.parametrize("budget_s", [15, 100, 300, 1000])
def test_the_budget_is_kept(budget_s: float) -> None:
    lab = Laboratory(lambda variables: 1.3 if variables else 1.0, 0.03, budget_s)
    found = arms(Found(), *map(a_treatment, "abcdefgh"))
    search(found, lab)
    assert lab.left_s() >= 0
    tried = [arm for arm in found.arms if arm.outcome is not Outcome.NOT_TRIED]
    assert len(tried) <= max(1, budget_s / 20)


def test_without_an_effect_nothing_is_kept_in_nineteen_of_twenty_jobs() -> None:
    """Six changes are tried in each, and the luckiest is run again."""
    kept = 0
    for seed in range(200):
        found = arms(Found(), *map(a_treatment, "abcdef"))
        search(found, Laboratory(lambda _: 1.0, 0.04, 1000, seed=seed))
        kept += found.best is not None
    assert kept / 200 <= 0.05


def test_a_bound_is_never_the_best() -> None:
    found = arms(Found(), a_treatment("free", bound=True))
    search(found, effects(free=5.0))
    assert found.arms[0].outcome is Outcome.FASTER
    assert found.best is None


def judged(treatment: Treatment, **run: object) -> Arm:
    controls = [a_run(1.0, losses=[1.0, 2.0] * 10), a_run(1.001, losses=[1.0, 2.0] * 10)]
    arm = Arm((treatment,), treatment.change, controls)
    for step_s in (0.5, 0.501):
        arm.take(a_run(step_s, **run))  # type: ignore[arg-type]
    arm.judge()
    return arm


def test_what_trains_differently_is_not_faster() -> None:
    arm = judged(a_treatment("x"), losses=[5.0, 6.0] * 10)
    assert (arm.outcome, arm.training) == (Outcome.OTHER_TRAINING, Training.DIFFERENT)


def test_what_leaves_no_memory_is_not_faster() -> None:
    treatment = a_treatment("x")
    arm = Arm((treatment,), treatment.change, [a_run(1.0), a_run(1.001)])
    for step_s in (0.5, 0.501):
        run = a_run(step_s)
        run.memory_left = 0.01
        arm.take(run)
    arm.judge()
    assert arm.outcome is Outcome.NO_MEMORY


def test_a_change_that_takes_no_hold_has_failed() -> None:
    treatment = a_treatment("x", change=RunChange({"loader": {"num_workers": 2}}))
    arm = judged(treatment)
    assert arm.outcome is Outcome.FAILED
    assert judged(treatment, applied=["loader"], losses=[1.0, 2.0] * 10).outcome is Outcome.FASTER


def test_settings_are_joined_unless_they_contradict() -> None:
    workers = a_treatment("a", change=RunChange({"loader": {"num_workers": 2}}))
    ahead = a_treatment("b", change=RunChange({"loader": {"prefetch_factor": 8}}, {"A": "1"}))
    fewer = a_treatment("c", change=RunChange({"loader": {"num_workers": 1}}))
    assert together([workers, ahead]) == RunChange({"loader": {"num_workers": 2, "prefetch_factor": 8}}, {"A": "1"})
    assert together([workers, fewer]) is None
    assert together([ahead, a_treatment("d", change=RunChange(variables={"A": None}))]) is None
