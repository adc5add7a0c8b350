"""Comparing runs: where a job becomes steady, and how much faster one kind of run is than another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from perfdoctor.knowledge import thresholds
from perfdoctor.treatment import Outcome, Speedup


def steady_from(times: Sequence[float]) -> int:
    """How many of the first steps to leave out.

    The number for which the mean of the rest is known best: the marginal standard error rule (MSER; White 1997,
    "An effective truncation heuristic for bias reduction in simulation output"), which leaves out half of them at most.

    Args:
        times: seconds that each step took.
    """
    count = len(times)
    total, squares = sum(times), sum(time * time for time in times)
    best, cut = math.inf, 0
    for skipped in range((count + 1) // 2):
        left = count - skipped
        error = max(0.0, squares - total * total / left) / (left * left)
        if error < best * (1 - 1e-9):
            best, cut = error, skipped
        total, squares = total - times[skipped], squares - times[skipped] ** 2
    return cut


def compare(controls: Sequence[float], treated: Sequence[float]) -> Speedup:
    """The speed-up of some runs, with its interval by Welch's t-test on the logarithms of their times.

    Args:
        controls: seconds per step of each run without the change.
        treated: the same with the change.
    """
    before, after = [math.log(time) for time in controls], [math.log(time) for time in treated]
    gain = statistics.fmean(before) - statistics.fmean(after)
    speedup = math.exp(gain)
    if len(before) < 2 or len(after) < 2:
        return Speedup(speedup, None, None, len(after), len(before))
    errors = [statistics.variance(side) / len(side) for side in (before, after)]
    error = sum(errors)
    if error == 0:
        return Speedup(speedup, speedup, speedup, len(after), len(before))
    # Welch and Satterthwaite's degrees of freedom, rounded down: a little too cautious.
    parts = zip(errors, (before, after), strict=True)
    freedom = int(error**2 / sum(one**2 / (len(side) - 1) for one, side in parts) + 1e-9)
    reach = student_t(max(1, freedom), thresholds.TRIAL_CONFIDENCE) * math.sqrt(error)
    return Speedup(speedup, math.exp(gain - reach), math.exp(gain + reach), len(after), len(before))


def judge(measured: Speedup) -> Outcome:
    """What a measured speed-up shows: faster or slower where the whole interval is, and it is enough to matter."""
    if measured.low is None or measured.high is None:
        return Outcome.UNDECIDED
    if measured.low > 1 and measured.speedup >= thresholds.WORTH_A_CHANGE:
        return Outcome.FASTER
    if measured.high < 1 and measured.speedup <= 1 / thresholds.WORTH_A_CHANGE:
        return Outcome.SLOWER
    if measured.low > 1 / thresholds.NO_DIFFERENCE and measured.high < thresholds.NO_DIFFERENCE:
        return Outcome.SAME
    return Outcome.UNDECIDED


@lru_cache
def student_t(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's t: what is exceeded with a probability of ``1 - confidence``."""
    low, high = 0.0, 1.0
    while within_t(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within_t(middle, freedom) < confidence else (low, middle)
    return high


def within_t(t: float, freedom: int) -> float:
    """The probability that Student's t lies between ``-t`` and ``t`` (Abramowitz and Stegun 1964, 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    if freedom == 1:
        return 2 * angle / math.pi
    term = total = cosine if odd else 1.0
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
