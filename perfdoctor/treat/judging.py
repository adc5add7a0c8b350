"""Comparing runs: where a job becomes steady, how much faster one kind of run is, and whether it trains the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations

from perfdoctor.compare.estimates import difference, mean
from perfdoctor.knowledge import thresholds
from perfdoctor.results.treatment import Outcome, Speedup, Training


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


def compare_losses(controls: Sequence[Sequence[float]], treated: Sequence[Sequence[float]], *, exact: bool) -> Training:
    """How the losses of some runs compare with those of the controls, backward pass by backward pass.

    Where they are not the same to the last bit, their means over some stretches are compared. They may differ by as
    much as two controls do, by what the spread of the losses in the stretch lets a mean vary, or by rounding.

    Args:
        controls: losses of each run without the change, in order.
        treated: the same with the change.
        exact: the change does not touch what is computed, so the losses must be the same where those of controls are.
    """
    runs = [*controls, *treated]
    count = min(map(len, runs), default=0)
    if not count or not controls or not treated:
        return Training.UNKNOWN
    first = _bits(controls[0], count)
    reproducible = all(_bits(losses, count) == first for losses in controls)
    if reproducible and all(_bits(losses, count) == first for losses in treated):
        return Training.IDENTICAL
    if exact and reproducible and len(controls) > 1:
        return Training.DIFFERENT
    stretches = max(1, min(int(thresholds.LOSS_STRETCHES), count // int(thresholds.LOSSES_OF_STRETCH)))
    for number in range(stretches):
        part = slice(number * count // stretches, (number + 1) * count // stretches)
        if not _alike([losses[part] for losses in controls], [losses[part] for losses in treated]):
            return Training.DIFFERENT
    return Training.WITHIN_NOISE


def _bits(losses: Sequence[float], count: int) -> list[str]:
    """As text that differs for every two values, and where no value is a number still equals itself."""
    return [loss.hex() for loss in losses[:count]]


def _alike(controls: Sequence[Sequence[float]], treated: Sequence[Sequence[float]]) -> bool:
    before, after = ([statistics.fmean(losses) for losses in side] for side in (controls, treated))
    if not all(map(math.isfinite, (*before, *after))):
        return any(not math.isfinite(mean) for mean in before)
    between = max((abs(one - other) for one, other in combinations(before, 2)), default=0.0)
    spread = statistics.fmean(statistics.pvariance(losses) for losses in (*controls, *treated))
    chance = thresholds.LOSS_DEVIATIONS * math.sqrt(2 * spread / len(controls[0]))
    reach = max(between, chance, thresholds.LOSS_ROUNDING * abs(statistics.fmean(before)))
    return abs(statistics.fmean(before) - statistics.fmean(after)) <= reach
