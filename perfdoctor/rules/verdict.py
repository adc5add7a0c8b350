"""The verdict: which cause comes first, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfdoctor.amounts import Amounts
from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED
from perfdoctor.metrics.resampling import with_replacement

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without

# A cause must cost this fraction of the wall time to be called the bottleneck: peers warn from 0.10 (TraceML's
# policy), and sampling 15 s at 50 Hz tells 0.10 from 0 with certainty (standard error 0.011).
MIN_SHARE = 0.10
# Some of these is in every job that trains on the CPU; only an excess of it is an illness.
# So it is with memory traffic in every job on a GPU: 0.25 to 0.41 of the wall time of sound traces, 0.39 of an unfused
# transformer (Ivanov et al., "Data movement is all you need", 2021).
MIN_SHARE_OF = {
    "cpu.python_overhead": 0.22,
    "cpu.contention": 0.15,
    "cpu.gil_contention": 0.12,
    "gpu.memory_bandwidth": 0.50,
    "gpu.low_occupancy": 0.15,
}
# Causes that every job has some of anyway give way to a specific one that costs nearly as much.
GENERIC = frozenset(("cpu.input_preprocessing", "cpu.python_overhead", "cpu.contention"))
NEARLY = 0.8
# A lock makes its holder's work look guilty, although it only matters because the others queue for it.
NEARLY_OF = {"cpu.lock_contention": 0.6}
# Ranks whose arithmetic differs wait for each other a little in every job; this much of the wall time is an imbalance.
MIN_IMBALANCE = 0.3
# Where more than this is unattributed, nothing is named that costs less than the unknown.
MAX_UNATTRIBUTED = 0.5
# A profiler slows the host down, by 10 to 20 % as a rule, and not the GPU: what it overstates comes first only where it
# leads by more.
OVERSTATED = {TRACED: {"cpu.kernel_launch": 0.85, "cpu.python_overhead": 0.85}}
RESAMPLES = 200
# Sampling from outside sees states and stacks at different instants. Marks from inside make phases and steps exact, but
# what a thread waits for is still sampled. Tracing slows the host down.
CONFIDENCE_CAP = {OUTSIDE: 0.95, INSIDE: 0.98, TRACED: 0.98}
_SEED = 20


def first_cause(by_share: Mapping[str, float], late: Mapping[str, float] | None = None, level: str = "") -> str | None:
    """The cause that a verdict names; None if what is known does not suffice.

    Args:
        by_share: cause to fraction of wall time.
        late: of that, what ranks waited for in other ones. A rank with more of a healthy cause than others holds them
            back as an ill one would.
        level: what the shares rest on.
    """
    overstated = OVERSTATED.get(level, {})
    ill = {
        cause: share
        for cause, share in by_share.items()
        if cause != UNATTRIBUTED and not CAUSES[cause].healthy and share >= MIN_SHARE_OF.get(cause, MIN_SHARE)
    }
    unknown = by_share.get(UNATTRIBUTED, 0.0)
    if ill:
        top = max(ill, key=lambda cause: ill[cause] * overstated.get(cause, 1.0))
        if top in GENERIC:
            specific = {
                cause: share
                for cause, share in ill.items()
                if cause not in GENERIC and cause not in overstated and share >= NEARLY_OF.get(cause, NEARLY) * ill[top]
            }
            top = max(specific, key=lambda cause: specific[cause], default=top)
        unequal = {cause: share for cause, share in (late or {}).items() if CAUSES[cause].healthy and share > ill[top]}
        if unequal:
            return max(unequal, key=lambda cause: unequal[cause])
        return top if ill[top] >= unknown * MIN_SHARE or unknown < MAX_UNATTRIBUTED else None
    healthy = {cause: share for cause, share in by_share.items() if cause in CAUSES and CAUSES[cause].healthy}
    if not healthy or unknown > MAX_UNATTRIBUTED:
        return None
    return max(healthy, key=lambda cause: healthy[cause])


def confidence(accounts: Sequence[Account], cause: str | None, level: str) -> float:
    """How often the same cause comes first when the seconds of the recording are drawn anew, with replacement.

    A block bootstrap: neighbouring samples are alike, so whole seconds are drawn, the same ones for all ranks.
    """
    blocks = sorted(set().union(*(account.block_numbers for account in accounts)))
    parts = [Amounts.summed(account.block(block) for account in accounts) for block in blocks]
    waits = [Amounts.summed(account.late_block(block) for account in accounts) for block in blocks]
    return agreement(parts, cause, level, waits)


def agreement(
    accounts: Sequence[Mapping[str, float]],
    cause: str | None,
    level: str,
    waits: Sequence[Mapping[str, float]] = (),
) -> float:
    """How often the same cause comes first when the parts of an account are drawn anew, with replacement.

    Args:
        accounts: seconds by cause for each part of the time.
        cause: the one that comes first over all of it.
        level: what the account rests on; it caps the confidence.
        waits: of each part, what ranks waited for in other ones.
    """
    if cause is None or len(accounts) < 2:
        return 0.0
    parts = len(accounts)
    draws = with_replacement(Random(_SEED), RESAMPLES, parts) + np.arange(RESAMPLES)[:, np.newaxis] * parts
    drawn = np.bincount(draws.ravel(), minlength=RESAMPLES * parts).reshape(RESAMPLES, parts)
    totals = drawn @ np.array([sum(account.values()) for account in accounts])
    weights = drawn / np.where(totals > 0, totals, 1.0)[:, np.newaxis]
    found, late = _drawn(accounts, weights), _drawn(waits, weights) if any(waits) else [{}] * RESAMPLES
    agreed = sum(first_cause(*shares, level) == cause for shares in zip(found, late, strict=True))
    return min(CONFIDENCE_CAP.get(level, 1.0), agreed / RESAMPLES)


def surest(steps: int) -> float:
    """How sure to be at most after so many steps that were all alike: Laplace's rule of succession."""
    return (steps + 1) / (steps + 2)


def _drawn(accounts: Sequence[Mapping[str, float]], weights: npt.NDArray[np.float64]) -> list[dict[str, float]]:
    """The sums of some accounts, one row of weights per sum."""
    names = sorted(set().union(*accounts))
    amounts = np.array([[account.get(name, 0.0) for name in names] for account in accounts])
    return [dict(zip(names, row, strict=True)) for row in (weights @ amounts).tolist()]


def late_shares(accounts: Sequence[Account]) -> dict[str, float]:
    """Cause to the fraction of all ranks' wall time that they waited for it in other ranks."""
    waited = Amounts.summed(amounts for account in accounts for amounts in account.waits.values())
    total = sum(account.seconds for account in accounts)
    return {cause: amount / total for cause, amount in waited.items()} if total else {}


def straggler(accounts: Sequence[Account], cause: str | None) -> int | None:
    """The rank that the others wait for; None if there is none, or if it is not always the same one.

    A rank is the straggler if it is blamed for at least 80 % of all waiting for ranks (what TraceML and Ascend's
    advisor ask of a culprit), and if that waiting is a part of the verdict's cause that matters.
    """
    if cause is None or cause.startswith("communication.") or len(accounts) < 2:
        return None
    blamed = Amounts.summed(account.waited_for() for account in accounts)
    waited = blamed.total
    watched = max(account.seconds for account in accounts)
    if waited < (MIN_IMBALANCE if CAUSES[cause].healthy else MIN_SHARE) * watched:
        return None
    rank = max(blamed, key=lambda rank: blamed[rank])
    return rank if blamed[rank] >= 0.8 * waited else None
