"""Which rank the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfdoctor.causes import CAUSES
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.resampling import RESAMPLES, drawn_sums, drawn_weights
from perfdoctor.timeline.amounts import Amounts

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without


def late_shares(accounts: Sequence[Account]) -> dict[str, float]:
    """Cause to the fraction of all ranks' wall time that they waited for it in other ranks."""
    waited = Amounts.summed(amounts for account in accounts for amounts in account.waits.values())
    total = sum(account.seconds for account in accounts)
    return {cause: amount / total for cause, amount in waited.items()} if total else {}


def straggler(accounts: Sequence[Account], cause: str | None) -> int | None:
    """The rank that the others wait for; None if there is none, or if it is not always the same one.

    A rank is the straggler if nearly all waiting for ranks is for it, and if that waiting is a part of the verdict's
    cause that matters.
    """
    if cause is None or cause.startswith("communication."):
        return None
    return late_rank(accounts, thresholds.MIN_IMBALANCE if CAUSES[cause].healthy else thresholds.MIN_SHARE)


def late_rank(accounts: Sequence[Account], least: float) -> int | None:
    """The rank that nearly all waiting for ranks is for; None where that is less than some fraction of the time."""
    if len(accounts) < 2 or not any(account.waits for account in accounts):
        return None
    waits = Amounts.summed(account.waited_for() for account in accounts)
    waited = waits.total
    watched = max(account.seconds for account in accounts)
    if waited < least * watched:
        return None
    rank = max(waits, key=lambda rank: waits[rank])
    if waits[rank] < thresholds.STRAGGLER * waited:
        return None
    return rank if _is_always_late(accounts, rank) else None


def _is_always_late(accounts: Sequence[Account], rank: int) -> bool:
    """Whether nearly all waiting is for a rank when the seconds of the recording are drawn anew, as for confidence.

    Of ranks that are alike one is late for longer than the others in a few seconds, by chance. A trace has all waits of
    its steps, and is not drawn anew.
    """
    if not any(account.sampled for account in accounts):
        return True
    parts: dict[int, Amounts[str]] = {}
    for account in accounts:
        for (block, late), amounts in account.waits.items():
            parts.setdefault(block, Amounts())["it" if late == rank else "others"] += amounts.total
    if len(parts) < 2:
        return True
    drawn = drawn_sums(list(parts.values()), drawn_weights(list(parts.values())))
    agreed = sum(shares["it"] >= thresholds.STRAGGLER for shares in drawn)
    return agreed / RESAMPLES >= thresholds.SURE_STRAGGLER
