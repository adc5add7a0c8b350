"""The verdict: which cause comes first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.causes import CAUSES, PYTHON_OVERHEAD, STARTUP, UNATTRIBUTED
from perfdoctor.diagnosis import TRACED, Advice, Finding, NoVerdict, Why
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.rules.stragglers import late_shares, straggler

if TYPE_CHECKING:
    from perfdoctor.attribution.account import Account  # it brings the job, which traces do without


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
