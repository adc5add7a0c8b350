"""Draws with replacement, for bootstrap estimates."""

from random import Random

import numpy as np
import numpy.typing as npt


def with_replacement(random: Random, draws: int, count: int) -> npt.NDArray[np.int64]:
    """Numbers below ``count``, as many of them in each draw, one row per draw.

    Python's random bytes: to load numpy's generators takes longer than to read a small trace.
    """
    numbers = np.frombuffer(random.randbytes(8 * draws * count), dtype=np.uint64) % np.uint64(count)
    return np.asarray(numbers.astype(np.int64).reshape(draws, count))
