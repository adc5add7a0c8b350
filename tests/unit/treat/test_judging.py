"""How runs are compared: what is said of changes with a known effect, many times over, and whether losses differ."""

import math
import random
from collections import Counter

import pytest

from perfdoctor.results.treatment import Outcome, Speedup, Training
from perfdoctor.treat.judging import compare, compare_losses, judge, steady_from

LOOKS = (2, 3, 4, 5)


def said_of(gain: float, noise: tuple[float, float], times: int = 1500) -> dict[Outcome, float]:
    """How often a change of a known effect is called what, looked at after each round as the search does."""
    rng = random.Random(1)
    said: Counter[Outcome] = Counter()
    for _ in range(times):
        controls = [math.exp(rng.gauss(0, noise[0])) for _ in LOOKS] + [math.exp(rng.gauss(0, noise[0]))]
        treated = [math.exp(rng.gauss(-math.log(gain), noise[1])) for _ in LOOKS] + [1.0]
        looks = (judge(compare(controls[: runs + 1], treated[:runs])) for runs in LOOKS)
        said[next((outcome for outcome in looks if outcome is not Outcome.UNDECIDED), Outcome.UNDECIDED)] += 1
    return {outcome: count / times for outcome, count in said.items()}


@pytest.mark.parametrize("noise", [(0.005, 0.005), (0.03, 0.03), (0.1, 0.1), (0.03, 0.1), (0.1, 0.03)], ids=str)
def test_a_change_without_effect_is_hardly_ever_called_faster(noise: tuple[float, float]) -> None:
    said = said_of(1.0, noise)
    assert said.get(Outcome.FASTER, 0.0) <= 0.05
    assert said.get(Outcome.SLOWER, 0.0) <= 0.05


def test_on_a_quiet_machine_no_effect_is_seen_as_none() -> None:
    assert said_of(1.0, (0.005, 0.005))[Outcome.SAME] > 0.9


@pytest.mark.parametrize(("gain", "noise"), [(1.2, 0.02), (2.0, 0.1)])
def test_an_effect_that_exceeds_the_noise_is_found(gain: float, noise: float) -> None:
    assert said_of(gain, (noise, noise)).get(Outcome.FASTER, 0.0) > 0.9


def test_what_is_slower_is_called_slower() -> None:
    assert said_of(0.8, (0.01, 0.01)).get(Outcome.SLOWER, 0.0) > 0.9


def test_the_interval_holds_the_truth_as_often_as_it_claims() -> None:
    rng = random.Random(2)
    held = 0
    for _ in range(2000):
        controls = [math.exp(rng.gauss(0, 0.03)) for _ in range(3)]
        treated = [math.exp(rng.gauss(-0.2, 0.03)) for _ in range(3)]
        measured = compare(controls, treated)
        assert measured.low is not None
        assert measured.high is not None
        held += measured.low <= math.exp(0.2) <= measured.high
    assert 0.96 <= held / 2000 <= 0.99  # 0.97, and somewhat more by rounding the degrees of freedom down


def test_a_single_run_has_no_interval_and_decides_nothing() -> None:
    measured = compare([1.0, 1.01], [0.5])
    assert measured.speedup == pytest.approx(2.01, abs=0.01)
    assert (measured.low, measured.high) == (None, None)
    assert judge(measured) is Outcome.UNDECIDED


def test_a_gain_that_is_not_worth_it_is_none_however_sure() -> None:
    assert judge(Speedup(1.01, 1.005, 1.015, 5, 5)) is Outcome.SAME


def test_first_steps_that_take_longer_are_left_out() -> None:
    rng = random.Random(3)
    steady = [1 + 0.05 * rng.random() for _ in range(60)]
    assert steady_from([9.0, 5.0, 2.0, *steady]) == 3


@pytest.mark.parametrize("times", [[], [5.0], [1.0] * 20, [1.0, 1.0]], ids=len)
def test_nothing_is_left_out_of_steady_steps(times: list[float]) -> None:
    assert steady_from(times) == 0


def course(seed: int, *, end: float = 0.5, steps: int = 80) -> list[float]:
    """Losses that fall, with the spread that batches have."""
    rng = random.Random(seed)
    return [end + (2.3 - end) * math.exp(-step / 30) + rng.gauss(0, 0.1) for step in range(steps)]


def test_the_same_losses_are_identical() -> None:
    assert compare_losses([course(1), course(1)], [course(1), course(1)], exact=True) is Training.IDENTICAL


def test_only_what_all_runs_have_is_compared() -> None:
    shorter = course(1)[:30]
    assert compare_losses([course(1), course(1)], [shorter], exact=True) is Training.IDENTICAL


def test_a_change_that_may_not_touch_losses_must_not() -> None:
    rounded = [loss * (1 + 1e-7) for loss in course(1)]
    controls = [course(1), course(1)]
    assert compare_losses(controls, [rounded], exact=True) is Training.DIFFERENT
    assert compare_losses(controls, [rounded], exact=False) is Training.WITHIN_NOISE


def test_another_order_of_the_batches_is_within_the_noise() -> None:
    assert compare_losses([course(1), course(2)], [course(3), course(4)], exact=False) is Training.WITHIN_NOISE


def test_where_controls_differ_an_exact_change_may_differ_too() -> None:
    assert compare_losses([course(1), course(2)], [course(3)], exact=True) is Training.WITHIN_NOISE


def test_training_that_goes_elsewhere_is_seen() -> None:
    assert compare_losses([course(1), course(2)], [course(3, end=1.2)], exact=False) is Training.DIFFERENT


def test_losses_that_are_no_numbers_are_others() -> None:
    broken = [*course(1)[:40], *[math.nan] * 40]
    assert compare_losses([course(1), course(2)], [broken], exact=False) is Training.DIFFERENT
    assert compare_losses([broken, broken], [broken], exact=True) is Training.IDENTICAL


def test_without_losses_nothing_is_known() -> None:
    assert compare_losses([[], []], [[]], exact=False) is Training.UNKNOWN
