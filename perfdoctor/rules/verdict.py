"""The verdict: which cause comes first, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfdoctor.causes import (
    CAUSES,
    GPU_COMPUTE,
    KERNEL_LAUNCH,
    PYTHON_OVERHEAD,
    STARTUP,
    SYNCHRONIZATION,
    UNATTRIBUTED,
)
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED, Advice, Finding, NoVerdict, Why
from perfdoctor.knowledge import hardware, thresholds
from perfdoctor.messages import say
from perfdoctor.metrics.statistics import with_replacement
from perfdoctor.timeline.amounts import Amounts, summed_by_block
from perfdoctor.timeline.quantiles import quantiles

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without
    from perfdoctor.rules.case import Case

# How many of them agree is known to 3.5 % at worst, which is the standard error of a half.
RESAMPLES = 200
_SEED = 20  # any: the same recording gives the same diagnosis


def decide(
    by_share: Mapping[str, float],
    accounts: Sequence[Account],
    level: str,
    *,
    ordinary: Collection[str] = (),
    late_ranks_explained: bool = True,
) -> str | NoVerdict:
    """The cause to name, or why none can be named.

    Args:
        by_share: cause to fraction of wall time.
        accounts: of the trainers.
        level: what they rest on.
        ordinary: as for ``first_cause``.
        late_ranks_explained: whether it is known what a rank does for which others wait.
    """
    late = late_shares(accounts)
    cause = first_cause(by_share, late, level, ordinary)
    if not late_ranks_explained and (rank := straggler(accounts, UNATTRIBUTED)) is not None:
        costs = 0.0 if cause is None or CAUSES[cause].healthy else by_share.get(cause, 0.0)
        if cause is None or late.get(UNATTRIBUTED, 0.0) >= max(thresholds.MIN_SHARE, costs):
            waits = [one.waited_for()[rank] / one.seconds for one in accounts if one.rank != rank]
            summary = say("verdict.late_rank", rank=rank, waits=float(np.mean(waits)))
            return NoVerdict(Why.LATE_RANK, summary, straggler_rank=rank)
    return cause or NoVerdict(Why.UNATTRIBUTED, say("verdict.unattributed"))


def first_cause(
    by_share: Mapping[str, float],
    late: Mapping[str, float] | None = None,
    level: str = "",
    ordinary: Collection[str] = (),
) -> str | None:
    """The cause that a verdict names; None if what is known does not suffice.

    Args:
        by_share: cause to fraction of wall time.
        late: of that, what ranks waited for in other ones. A rank with more of what is no bottleneck than others holds
            them back as one with a bottleneck would.
        level: what the shares rest on.
        ordinary: causes of which there is nothing to change but what would be in any job (``ordinary_causes``). What
            sound jobs have of them as well does not count against other causes.
    """
    unknown = by_share.get(UNATTRIBUTED, 0.0)
    known = {cause: share for cause, share in by_share.items() if cause != UNATTRIBUTED}
    on_gpu = level != TRACED and any(cause.startswith("gpu.") for cause in known)
    large = {
        cause: share
        for cause, share in known.items()
        if not CAUSES[cause].healthy and share >= _minimum(cause, on_gpu=on_gpu, ordinary=cause in ordinary)
    }
    if STARTUP in large:  # so much of it says that the steps which follow are not in what was seen
        return STARTUP
    if large:
        usual = {} if on_gpu else {cause: CAUSES[cause].minimum for cause in ordinary}
        top = _largest({cause: share - usual.get(cause, 0.0) for cause, share in large.items()}, level)
        most = large[top]
        unequal = {cause: share for cause, share in (late or {}).items() if CAUSES[cause].healthy}
        if unequal and imbalance(late or {}) > most:
            return max(unequal, key=lambda cause: unequal[cause])
        enough = most >= unknown * thresholds.MIN_SHARE or unknown < thresholds.MAX_UNATTRIBUTED
        return top if enough else None
    healthy = {cause: share for cause, share in known.items() if CAUSES[cause].healthy}
    if not healthy or unknown > thresholds.MAX_UNATTRIBUTED:
        return None
    return max(healthy, key=lambda cause: healthy[cause])


def imbalance(late: Mapping[str, float]) -> float:
    """Fraction of all ranks' time that they wait for ranks which only have more to do of what all of them do.

    Args:
        late: as for ``first_cause``. The model's arithmetic comes with the calls that it takes.
    """
    return sum(share for cause, share in late.items() if CAUSES[cause].healthy or cause == PYTHON_OVERHEAD)


def _minimum(cause: str, *, on_gpu: bool, ordinary: bool) -> float:
    """The fraction of wall time from which a cause can be the bottleneck.

    Every job that trains on the CPU has some of those of the host; beside a GPU only what leaves that idle counts.
    """
    minimum = CAUSES[cause].minimum
    if on_gpu and cause.startswith("cpu.") and cause != STARTUP:
        return min(minimum, thresholds.MIN_SHARE)
    return max(minimum, thresholds.MIN_ORDINARY_OVERHEAD) if ordinary else minimum


# What is advised to any model that is not compiled.
_FOR_ANY_MODEL = frozenset(("interpreter.compile_model", "interpreter.larger_batch"))


def ordinary_causes(findings: Iterable[Finding], level: str) -> frozenset[str]:
    """Python overhead where all that could be changed is the calls which the model's own operators take.

    Small models that are sound spend up to a quarter of their time on those. A trace shows what it counts as such.
    """
    if level == TRACED:
        return frozenset()
    return frozenset(
        one.cause for one in findings if one.cause == PYTHON_OVERHEAD and _FOR_ANY_MODEL.issuperset(_changes(one))
    )


def _changes(found: Finding) -> Iterator[str]:
    return (fix.message.id if isinstance(fix, Advice) else "" for fix in found.fixes)


def _largest(large: Mapping[str, float], level: str) -> str:
    """Of the causes that can be the bottleneck the one that costs most; a generic one gives way to a specific one."""
    top = max(large, key=lambda cause: large[cause] * _overstated(cause, level))
    if not CAUSES[top].generic:
        return top
    specific = {
        cause: share
        for cause, share in large.items()
        if not CAUSES[cause].generic and _overstated(cause, level) == 1 and share >= CAUSES[cause].nearly * large[top]
    }
    return max(specific, key=lambda cause: specific[cause], default=top)


def _overstated(cause: str, level: str) -> float:
    """By what the share of a cause counts: less than 1 where what measured it slowed down what it measured."""
    return CAUSES[cause].overstated if level == TRACED else 1.0


# Whose shares divide the time of a GPU between work and idling; all else that holds up its host is seen on that.
_OF_GPU_TIME = frozenset((GPU_COMPUTE, KERNEL_LAUNCH, SYNCHRONIZATION))


def most_confidence(case: Case, cause: str, level: str) -> float:
    """How sure a verdict can be at most, by what it rests on.

    Args:
        case: the job.
        cause: the one that is named.
        level: what the accounts rest on.
    """
    if level != TRACED and case.uses_gpu:
        if cause in _OF_GPU_TIME and not gpu_use_is_read(case):
            return thresholds.CONFIDENCE_GPU_UNREAD
        return thresholds.CONFIDENCE_GPU_TRIED if knows_such_gpus(case) else thresholds.CONFIDENCE_GPU_OUTSIDE
    if level == OUTSIDE:
        return thresholds.CONFIDENCE_OUTSIDE
    return {INSIDE: thresholds.CONFIDENCE_INSIDE, TRACED: thresholds.CONFIDENCE_TRACED}.get(level, 1.0)


def knows_such_gpus(case: Case) -> bool:
    """Whether a job was watched from outside as others were on a GPU of its generation, with its use read."""
    return gpu_use_is_read(case) and hardware.tried_from_outside(case.setting("compute_capability"))


def gpu_use_is_read(case: Case) -> bool:
    """Whether the driver said how busy the job's GPUs were."""
    return case.number("gpu_busy") is not None


def agreement(accounts: Sequence[Account], cause: str, level: str, ordinary: Collection[str] = ()) -> float:
    """How often the same cause comes first when the seconds of the recording are drawn anew, with replacement.

    A block bootstrap: neighbouring samples are alike, so whole seconds are drawn, the same ones for all ranks.

    Args:
        accounts: of the trainers.
        cause: the one that comes first over all of the time.
        level: what they rest on.
        ordinary: as for ``first_cause``.
    """
    parts = summed_by_block(account.by_block() for account in accounts)
    if len(parts) < 2:
        return 0.0
    late = summed_by_block(account.late_by_block() for account in accounts)
    waits = [late.get(number, Amounts()) for number in parts]
    weights = _weights(list(parts.values()))
    drawn = _drawn(list(parts.values()), weights)
    drawn_late = _drawn(waits, weights) if any(waits) else [{}] * RESAMPLES
    return (
        sum(first_cause(*shares, level, ordinary) == cause for shares in zip(drawn, drawn_late, strict=True))
        / RESAMPLES
    )


def surest(steps: int) -> float:
    """How sure to be at most after so many steps that were all alike: Laplace's rule of succession."""
    return (steps + 1) / (steps + 2)


def share_ranges(accounts: Sequence[Account]) -> dict[str, tuple[float, float]]:
    """Cause to the shares between which it lies nine times in ten when seconds are drawn anew, as for confidence."""
    parts = list(summed_by_block(account.by_block() for account in accounts).values())
    if len(parts) < 2:
        return {}
    drawn = _drawn(parts, _weights(parts))
    return {cause: tuple(quantiles([shares[cause] for shares in drawn], (0.05, 0.95)).tolist()) for cause in drawn[0]}


def _weights(parts: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
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
    drawn = _drawn(list(parts.values()), _weights(list(parts.values())))
    agreed = sum(shares["it"] >= thresholds.STRAGGLER for shares in drawn)
    return agreed / RESAMPLES >= thresholds.SURE_STRAGGLER
