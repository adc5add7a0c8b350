"""What every diagnosis ends in, however it was measured: verdict, breakdown, findings in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import CauseShare, Finding, Verdict, say
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.verdict import confidence, straggler

_TOO_LITTLE = "Too much of the time could not be attributed to name a cause."


def order_findings(findings: Iterable[Finding], cause: str | None) -> tuple[Finding, ...]:
    """The verdict's finding comes first, then what is ill, then what is healthy, each by its share."""
    return tuple(sorted(findings, key=lambda found: (found.cause != cause, CAUSES[found.cause].healthy, -found.share)))


def list_shares(by_share: Mapping[str, float]) -> tuple[CauseShare, ...]:
    """The breakdown; what is not known at all is unattributed."""
    if not by_share:
        return (CauseShare(UNATTRIBUTED, 1.0),)
    return tuple(CauseShare(cause, share) for cause, share in by_share.items() if share > 0)


def no_verdict(level: str, why: str = "") -> Verdict:
    """No cause is named, and why."""
    return Verdict(None, None, 0.0, 0.0, 1.0, None, level, why or _TOO_LITTLE)


def describe_trainer(account: Account, phases: Mapping[str, float]) -> Trainer:
    """A trainer as rules see it, without what else was seen of its process: its account in fractions of its time."""
    watched = account.seconds or 1.0
    return Trainer(
        rank=account.trainer.rank or 0,
        pid=account.trainer.pid,
        shares=account.causes().fractions(),
        phases=phases,
        blamed={rank: amount / watched for rank, amount in account.waited_for().items()},
        worker_pids=(),
        workers=0,
    )


def name_cause(
    cause: str, accounts: Sequence[Account], case: Case, findings: Iterable[Finding], level: str
) -> Verdict:
    """The verdict that names a cause, in the words of its finding."""
    finding = next((finding for finding in findings if finding.cause == cause), None)
    return Verdict(
        CAUSES[cause].bottleneck,
        cause,
        case.share(cause),
        confidence(accounts, cause, level),
        finding.predicted_speedup if finding else 1.0,
        straggler(accounts, cause),
        level,
        finding.summary if finding else say("verdict.most", cause=CAUSES[cause].title),
    )
