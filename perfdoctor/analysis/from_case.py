"""The one way from a case to a diagnosis, however it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfdoctor import __version__
from perfdoctor.attribution.account import Account
from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import CauseShare, Diagnosis, Finding, NoVerdict, Verdict
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.rules import find
from perfdoctor.rules.arithmetic import is_pipeline
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.confidence import agreement, most_confidence, share_ranges, surest
from perfdoctor.rules.gains import freed
from perfdoctor.rules.stragglers import late_shares, straggler
from perfdoctor.rules.stretches import single_stretches
from perfdoctor.rules.verdict import decide, imbalance, least_shares


def build(
    case: Case,
    accounts: Sequence[Account],
    level: str,
    missing: NoVerdict | None = None,
    *,
    late_ranks_explained: bool = True,
) -> Diagnosis:
    """Applies the rules: breakdown, verdict, findings in order, and users' rules that failed as not examined.

    What only those know who measured, ranks, steps, cost, job, series and what else was not examined, they add with
    ``dataclasses.replace``.

    Args:
        case: what rules read.
        accounts: of the trainers, from which the confidence is drawn.
        level: what they rest on: ``OUTSIDE``, ``INSIDE`` or ``TRACED``.
        missing: why no bottleneck can be named, where that is known beforehand: nobody trains, for instance.
        late_ranks_explained: whether it is known what a rank does for which others wait; if not, such a rank may be
            why no bottleneck can be named.
    """
    once, ranges = {**case.once, **single_stretches(accounts)}, share_ranges(accounts)
    ranges |= {cause: (0.0, ranges[cause][1]) for cause in once if cause in ranges}
    case = replace(case, ranges=ranges, once=once, late=late_shares(accounts))
    findings, broken = find(case)
    if missing is not None:
        findings = []  # where nobody trains there is no step that a cause could cost time
    least = least_shares(findings, level)
    first = missing or decide(case.shares, accounts, level, least=least, late_ranks_explained=late_ranks_explained)
    if isinstance(first, NoVerdict):
        verdict = Verdict(None, None, 0.0, 0.0, 1.0, first.straggler_rank, level, first.summary, first)
    else:
        sure = float(min(agreement(accounts, first, level, least), most_confidence(case, first, level)))
        verdict = _verdict(first, case, accounts, findings, level, sure)
    # The verdict's finding comes first, then other bottlenecks, then what is none, each by its share.
    findings.sort(key=lambda found: (found.cause != verdict.cause, CAUSES[found.cause].healthy, -found.share))
    return Diagnosis(__version__, verdict, _breakdown(case), tuple(findings), not_examined=tuple(broken))


def _breakdown(case: Case) -> tuple[CauseShare, ...]:
    """What is not known at all is unattributed."""
    shares = case.shares or {UNATTRIBUTED: 1.0}
    return tuple(CauseShare(cause, share) for cause, share in shares.items() if share > 0)


def describe_trainer(account: Account, phases: Mapping[str, float]) -> Trainer:
    """A trainer as rules see it, without what else was seen of its process: its account in fractions of its time."""
    watched = account.seconds or 1.0
    return Trainer(
        rank=account.rank,
        pid=account.trainer.pid,
        shares=account.causes().fractions(),
        phases=phases,
        waited_for={rank: amount / watched for rank, amount in account.waited_for().items()},
        worker_pids=(),
        workers=0,
    )


def _verdict(
    cause: str, case: Case, accounts: Sequence[Account], findings: Sequence[Finding], level: str, sure: float
) -> Verdict:
    """The verdict that names a cause, as its finding says it."""
    finding = next((finding for finding in findings if finding.cause == cause), None)
    late = straggler(accounts, cause)
    summary = finding.summary if finding else say("verdict.most", cause=say("causes.title", cause=cause))
    promised = 1.0 if finding is None else finding.predicted_speedup
    if CAUSES[cause].healthy:
        # That nothing holds the job back promises nothing, even if a fix would make it faster; but equal ranks would.
        by_turns = late is None and imbalance(case.late) >= thresholds.MIN_UNEQUAL
        promised = freed(sum(case.late.values())) if late is not None or by_turns else 1.0
        if by_turns:
            summary = say("verdict.changing_ranks", slowdown=promised, stages=is_pipeline(case))
    return Verdict(
        CAUSES[cause].bottleneck,
        cause,
        case.share(cause),
        min(sure, surest(1)) if cause in case.once else sure,
        promised,
        late,
        level,
        summary,
    )
