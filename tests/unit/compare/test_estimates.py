"""Estimates with their errors: what is said of numbers with a known truth, many times over."""

import random

import pytest

from perfdoctor.compare.estimates import (
    Estimate,
    Noise,
    Ratio,
    dependence,
    difference,
    estimate_both,
    mean,
    noise_of,
    student_t,
    within_t,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (7, 2.365), (10, 2.228), (30, 2.042)]
)
def test_student_s_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_t(freedom, 0.95) == pytest.approx(quantile, abs=6e-4)
    assert within_t(student_t(freedom, 0.97), freedom) == pytest.approx(0.97)


def test_a_single_value_has_no_interval() -> None:
    found = difference(mean([1.0]), mean([2.0, 3.0]), 0.95)
    assert (found.value, found.low, found.high) == (1.5, None, None)


def test_what_never_varies_is_known_exactly() -> None:
    found = difference(mean([1.0, 1.0]), mean([2.0, 2.0]), 0.95)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_a_ratio_is_that_of_the_sums() -> None:
    ratio = Ratio([1.0, 3.0], [10.0, 20.0])
    assert ratio.value == pytest.approx(4 / 30)
    assert sum(ratio.left) == pytest.approx(0.0)


def test_batches_that_depend_on_their_neighbours_count_less() -> None:
    ratio = Ratio([1.0, 1.2, 0.9, 1.1], [1.0] * 4)
    independent, dependent = map(ratio.estimate, (0.0, 0.5))
    assert independent.variance is not None
    assert dependent.variance == pytest.approx(3 * independent.variance)
    assert (independent.freedom, dependent.freedom) == pytest.approx((3, 1.4))


def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_claims() -> None:
    chance = random.Random(4)
    held = 0
    for _ in range(1000):
        sides = []
        for truth in (0.1, 0.12):
            steps = [chance.uniform(5, 15) for _ in range(15)]
            sides.append(Ratio([truth * one * chance.gauss(1, 0.1) for one in steps], steps))
        found = difference(*estimate_both(*sides), 0.95)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.02 <= found.high
    assert 0.95 <= held / 1000 <= 0.99


def test_a_product_varies_as_its_factors_do() -> None:
    chance = random.Random(5)
    drawn = [chance.gauss(0.5, 0.02) * chance.gauss(0.1, 0.003) for _ in range(4000)]
    product = Estimate(0.5, 0.02**2, 10).times(Estimate(0.1, 0.003**2, 10))
    assert product.variance is not None
    middle = sum(drawn) / len(drawn)
    assert product.value == pytest.approx(middle, rel=0.01)
    assert product.variance == pytest.approx(sum((one - middle) ** 2 for one in drawn) / len(drawn), rel=0.1)


def flicker(chance: random.Random, count: int) -> list[float]:
    """Batches around 1 whose pace wanders as much from minute to minute as from second to second (1/f noise)."""
    octaves = [2**power for power in range(10)]
    held = {length: [chance.gauss(0, 0.02) for _ in range(count // length + 2)] for length in octaves}
    begins = {length: chance.randrange(length) for length in octaves}
    return [1 + sum(held[length][(batch + begins[length]) // length] for length in octaves) for batch in range(count)]


def alarms(*, wandering: bool) -> int:
    """In how many of 400 pairs of runs, one after the other, a difference is seen that is only the machine's."""
    chance = random.Random(6)
    found = 0
    for _ in range(400):
        both = flicker(chance, 30)
        sides = [Ratio(part, [1.0] * 15) for part in (both[:15], both[15:])]
        estimates = (
            estimate_both(*sides)
            if wandering
            else [one.estimate(dependence(sides[0].left, sides[1].left)) for one in sides]
        )
        told = difference(*estimates, 0.98)
        assert told.low is not None
        assert told.high is not None
        found += not told.low <= 0 <= told.high
    return found


def test_what_wanders_however_long_it_is_watched_is_no_difference() -> None:
    assert alarms(wandering=True) <= 0.05 * 400
    assert alarms(wandering=False) > 0.1 * 400


def test_noise_that_longer_runs_average_out_is_told_from_the_rest() -> None:
    chance = random.Random(7)
    white = noise_of([chance.gauss(0, 0.1) for _ in range(4000)])
    assert white.averaged == pytest.approx(0.01, rel=0.1)
    assert white.wandering < 0.001
    assert noise_of([1.0], []) == Noise(0.0, 0.0)
