"""Seconds of a recording drawn anew, with replacement: what a verdict comes to by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

import numpy as np
import numpy.typing as npt

from perfdoctor.metrics.statistics import with_replacement

# How many of them agree is known to 3.5 % at worst, which is the standard error of a half.
RESAMPLES = 200
_SEED = 20  # any: the same recording gives the same diagnosis


def drawn_weights(parts: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
    """Parts of an account drawn anew, with replacement: one row per draw, by what each part counts in it."""
    drawn = _draws(len(parts))
    totals = drawn @ np.array([sum(part.values()) for part in parts])
    weights: npt.NDArray[np.float64] = drawn / np.where(totals > 0, totals, 1.0)[:, np.newaxis]
    return weights


@lru_cache(maxsize=1)  # the ranges and the confidence are of the same parts
def _draws(count: int) -> npt.NDArray[np.int64]:
    """How often each of so many parts is drawn: one row per draw."""
    draws = with_replacement(Random(_SEED), RESAMPLES, count) + np.arange(RESAMPLES)[:, np.newaxis] * count
    return np.bincount(draws.ravel(), minlength=RESAMPLES * count).reshape(RESAMPLES, count)


def drawn_sums(accounts: Sequence[Mapping[str, float]], weights: npt.NDArray[np.float64]) -> list[dict[str, float]]:
    """The sums of some accounts, one row of weights per sum."""
    names = sorted(set().union(*accounts))
    amounts = np.array([[account.get(name, 0.0) for name in names] for account in accounts])
    return [dict(zip(names, row, strict=True)) for row in (weights @ amounts).tolist()]
