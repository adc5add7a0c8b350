"""Whether a job trains the same with a change: its losses beside those of the controls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations

from perfdoctor.knowledge import thresholds
from perfdoctor.results.treatment import Training


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
    """As text that tells every two values apart, and where no value is a number still equals itself."""
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
