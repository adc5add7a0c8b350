"""Medians, percentiles, and the spread of values of which some are odd.

Numpy's own (``median``, ``percentile``, ``quantile``) load its masked arrays when they are first called, which takes
longer than reading a small trace, and some MB of memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# A normal distribution's standard deviation, in median absolute deviations.
_PER_MEDIAN_DEVIATION = 1.4826


def quantiles(values: npt.ArrayLike, fractions: Sequence[float]) -> npt.NDArray[np.float64]:
    """The values below which some fractions of all lie, interpolated between neighbours as ``numpy.quantile`` does.

    Args:
        values: at least one, in any order.
        fractions: between 0 and 1.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    place = np.asarray(fractions, dtype=np.float64) * (len(ordered) - 1)
    below, above = ordered[np.floor(place).astype(np.int64)], ordered[np.ceil(place).astype(np.int64)]
    return np.asarray(below + (above - below) * (place % 1.0))


def median(values: npt.ArrayLike) -> float:
    """The middle of some values, at least one."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    below, above = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(below + (above - below) / 2)


def robust_deviation(values: npt.ArrayLike) -> float:
    """The standard deviation of at least one value as their median absolute deviation gives it.

    It stays what it is while fewer than half of the values are odd.
    """
    known = np.asarray(values, dtype=np.float64)
    return _PER_MEDIAN_DEVIATION * median(np.abs(known - median(known)))
