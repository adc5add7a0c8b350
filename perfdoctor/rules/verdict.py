"""The verdict: which cause comes first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.causes import CAUSES, MODEL_COMPUTE, PYTHON_OVERHEAD, STARTUP, UNATTRIBUTED
from perfdoctor.diagnosis import TRACED, Advice, Finding, Fix, NoVerdict, Why, expected_freed
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.rules.stragglers import late_shares, straggler

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without

_AS_USUAL: Mapping[str, float] = MappingProxyType({})


def decide(
    by_share: Mapping[str, float],
    accounts: Sequence[Account],
    level: str,
    *,
    least: Mapping[str, float] = _AS_USUAL,
    late_ranks_explained: bool = True,
) -> str | NoVerdict:
    """The cause to name, or why none can be named.

    Args:
        by_share: cause to fraction of wall time.
        accounts: of the trainers.
        level: what they rest on.
        least: as for ``first_cause``.
        late_ranks_explained: whether it is known what a rank does for which others wait.
    """
    late = late_shares(accounts)
    cause = first_cause(by_share, late, level, least)
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
    least: Mapping[str, float] = _AS_USUAL,
) -> str | None:
    """The cause that a verdict names; None if what is known does not suffice.

    Args:
        by_share: cause to fraction of wall time.
        late: of that, what ranks waited for in other ones. A rank with more of what is no bottleneck than others holds
            them back as one with a bottleneck would.
        level: what the shares rest on.
        least: cause to the fraction from which it can be the bottleneck, where it takes more than usual
            (``least_shares``). What sound jobs have of such a cause does not count against other causes.
    """
    unknown = by_share.get(UNATTRIBUTED, 0.0)
    known = {cause: share for cause, share in by_share.items() if cause != UNATTRIBUTED}
    on_gpu = level != TRACED and any(cause.startswith("gpu.") for cause in known)
    large = {
        cause: share
        for cause, share in known.items()
        if not CAUSES[cause].healthy and share >= _minimum(cause, least, on_gpu=on_gpu)
    }
    if STARTUP in large:  # so much of it says that the steps which follow are not in what was seen
        return STARTUP
    if large:
        usual = {} if on_gpu else {cause: CAUSES[cause].minimum for cause in least}
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


def _minimum(cause: str, least: Mapping[str, float], *, on_gpu: bool) -> float:
    """The fraction of wall time from which a cause can be the bottleneck.

    Every job that trains on the CPU has some of those of the host; beside a GPU only what leaves that idle counts.
    """
    minimum = CAUSES[cause].minimum
    if on_gpu and cause.startswith("cpu.") and cause != STARTUP:
        return min(minimum, thresholds.MIN_SHARE)
    return max(minimum, least.get(cause, 0.0))


# What is advised to any model that is not compiled.
_FOR_ANY_MODEL = frozenset(("interpreter.compile_model", "interpreter.larger_batch"))


def least_shares(findings: Collection[Finding], level: str) -> Mapping[str, float]:
    """The fraction from which Python overhead can be the bottleneck, where that takes more than usual.

    Where all that could be changed is the calls which the model's own operators take: small models that are sound spend
    up to a quarter of their time on those. And where a change to what operators compute frees more than calling all of
    them takes: that change is to come first. A trace shows what it counts as such.
    """
    calls = next((one for one in findings if one.cause == PYTHON_OVERHEAD), None)
    if level == TRACED or calls is None:
        return _AS_USUAL
    changes = set(_changes(calls))
    computed = [
        fix for one in findings if one.cause == MODEL_COMPUTE for fix in one.fixes if _id_of(fix) not in changes
    ]
    least = max(map(expected_freed, computed), default=0.0)
    if _FOR_ANY_MODEL.issuperset(changes):
        least = max(least, thresholds.MIN_ORDINARY_OVERHEAD)
    return {PYTHON_OVERHEAD: least} if least > CAUSES[PYTHON_OVERHEAD].minimum else _AS_USUAL


def _changes(found: Finding) -> Iterator[str]:
    return map(_id_of, found.fixes)


def _id_of(fix: Fix | Advice) -> str:
    return fix.message.id if isinstance(fix, Advice) else ""


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
