"""Comparing runs: where a job becomes steady, and how much faster one kind of run is than another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfdoctor.compare.estimates import difference, mean
from perfdoctor.knowledge import thresholds
from perfdoctor.results.treatment import Outcome, Speedup


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
    before, after = (mean([math.log(time) for time in side]) for side in (controls, treated))
    gain = difference(after, before, thresholds.TRIAL_CONFIDENCE).exp()
    return Speedup(gain.value, gain.low, gain.high, len(treated), len(controls))


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
