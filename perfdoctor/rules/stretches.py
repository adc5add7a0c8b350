"""What was met in a single stretch of the time watched: how often it comes, and so what it costs, was not seen.

An evaluation of five seconds that a watch of fifteen meets by chance may come every minute or once a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfdoctor.causes import CAUSES
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts, summed_by_block

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without

Floats = npt.NDArray[np.float64]


def single_stretches(accounts: Sequence[Account]) -> dict[str, float]:
    """By bottleneck that was met in one stretch only, how long that was, in seconds.

    Args:
        accounts: of the trainers; of steps that were traced nothing is said.
    """
    if not any(account.sampled for account in accounts):
        return {}
    parts = summed_by_block(account.by_block() for account in accounts)
    if not parts:
        return {}
    blocks = [parts.get(number, Amounts()) for number in range(min(parts), max(parts) + 1)]
    watched = np.array([block.total for block in blocks])
    found = {}
    for cause in set().union(*blocks):
        if cause in CAUSES and not CAUSES[cause].healthy:
            spent = np.array([block[cause] for block in blocks])
            if spent.sum() >= thresholds.REPORTED_SHARE * watched.sum() and (stretch := _only_one(spent, watched)):
                found[cause] = float(watched[stretch].sum()) / len(accounts)
    return found


def _only_one(spent: Floats, watched: Floats) -> slice | None:
    """The stretch of blocks that has nearly all of what was spent, none of them empty; None where there is none."""
    whole, stretch = spent.sum(), slice(0, len(spent))
    start, held = 0, 0.0
    for end, amount in enumerate(spent.tolist(), start=1):
        held += amount
        while held - spent[start] >= thresholds.OF_ONE_STRETCH * whole:
            held -= spent[start]
            start += 1
        if held >= thresholds.OF_ONE_STRETCH * whole and end - start < stretch.stop - stretch.start:
            stretch = slice(start, end)
    short = watched[stretch].sum() <= thresholds.ONE_STRETCH * watched.sum()
    dense = (spent[stretch] >= thresholds.DENSE_STRETCH * spent[stretch].mean()).all()
    return stretch if short and dense else None
