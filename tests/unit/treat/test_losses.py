"""Whether a job trains the same: losses to the last bit, within their noise, or others."""

import math
import random

from perfdoctor.results.treatment import Training
from perfdoctor.treat.losses import compare_losses


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
