"""Estimates with their errors: what is said of numbers with a known truth, many times over."""

import math
import random

import pytest

from perfdoctor.compare.estimates import (
    Estimate,
    Noise,
    Ratio,
    change,
    dependence,
    difference,
    estimate_both,
    estimate_costs,
    mean,
    noise_of,
    quotient,
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


@pytest.mark.parametrize(("value", "deviation"), [(0.5, 0.001), (0.5, 0.3), (0.01, 0.05), (0.99, 0.05), (0.999, 0.4)])
@pytest.mark.parametrize("most", [1.0, math.inf])
def test_an_amount_lies_within_what_is_possible(value: float, deviation: float, most: float) -> None:
    low, high = Estimate(value, deviation**2, 3).between(4.5, most)
    assert 0 <= low < value < high <= most
    for end in (low, high):  # as many standard errors of an amount at that end away from the estimate
        error = deviation * math.sqrt(end * (1 - end / most) / (value * (1 - value / most)))
        assert abs(value - end) == pytest.approx(4.5 * error)


def test_an_amount_at_an_end_of_what_is_possible_is_known_exactly() -> None:
    for value in (0.0, 1.0):
        assert Estimate(value, 0.0, 3).between(4.5, 1.0) == (value, value)


def test_a_change_is_that_of_welch_where_much_was_watched_and_possible_where_little_was() -> None:
    sure = Estimate(0.4, 1e-6, 14), Estimate(0.5, 2e-6, 14)
    usual, bounded = difference(*sure, 0.98), change(*sure, 0.98, most=1.0)
    assert (bounded.value, bounded.low, bounded.high) == pytest.approx((usual.value, usual.low, usual.high), abs=2e-4)
    unsure = Estimate(0.05, 0.04, 1), Estimate(0.95, 0.04, 1)
    usual, bounded = difference(*unsure, 0.98), change(*unsure, 0.98, most=1.0)
    assert usual.high is not None
    assert bounded.high is not None
    assert bounded.low is not None
    assert -1 <= bounded.low < bounded.high <= 1 < usual.high


def test_a_quotient_is_that_of_logarithms_where_much_was_watched_and_above_0_anyway() -> None:
    sure = Estimate(0.4, 1e-6, 14), Estimate(0.5, 2e-6, 14)
    usual, bounded = difference(*(one.log() for one in sure), 0.98).exp(), quotient(*sure, 0.98, most=1.0)
    assert (bounded.value, bounded.low, bounded.high) == pytest.approx((usual.value, usual.low, usual.high), rel=1e-3)
    unsure = quotient(Estimate(0.9, 0.2, 1), Estimate(0.5, 0.2, 1), 0.98, most=1.0)
    assert unsure.low is not None
    assert 0 < unsure.low < unsure.value


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


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cost_of_which_a_hiccup_is_left_has_become_less(share: float) -> None:
    chance = random.Random(1)
    usual = Ratio([chance.gauss(share, 0.02) for _ in range(15)], [1.0] * 15)
    hiccup = Ratio([0.3 if batch == 5 else 0.0 for batch in range(15)], [1.0] * 15)
    less, more = (change(*estimate_costs(*pair), 0.98, 1.0) for pair in ((usual, hiccup), (hiccup, usual)))
    assert less.high is not None
    assert less.high < 0
    assert more.low is not None
    assert more.low > 0


def test_noise_that_longer_runs_average_out_is_told_from_the_rest() -> None:
    chance = random.Random(7)
    white = noise_of([chance.gauss(0, 0.1) for _ in range(4000)])
    assert white.averaged == pytest.approx(0.01, rel=0.1)
    assert white.wandering < 0.001
    assert noise_of([1.0], []) == Noise(0.0, 0.0)
