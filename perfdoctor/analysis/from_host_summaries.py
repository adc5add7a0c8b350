"""From summaries of many hosts' recordings to one diagnosis: whom the ranks of all hosts wait for, and why.

Of a few hosts ``perfdoctor.analysis.from_hosts`` reads the recordings as a whole, on one clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfdoctor.analysis.coverage import on_hosts
from perfdoctor.analysis.from_case import build
from perfdoctor.analysis.from_recording import describe_rank
from perfdoctor.analysis.host_summary import HostSummary
from perfdoctor.analysis.one_job import each_rank_once
from perfdoctor.analysis.rank_groups import MANY, describe_crowd
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.attribution.many_hosts import charge_late_rank
from perfdoctor.diagnosis import OUTSIDE, Diagnosis, NotExamined, NoVerdict, Why
from perfdoctor.messages import say
from perfdoctor.results.activity import Activity
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.stragglers import late_shares, straggler
from perfdoctor.rules.verdict import first_cause
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.unseen_ranks import missing_ranks

_NAMED = 5  # hosts that a note names


def diagnose_hosts(hosts: Sequence[HostSummary]) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        hosts: what remained of their recordings, at least one.

    Raises:
        NotOneJobError: they are not of one job.
    """
    notes = [*_versions(hosts), *_apart(hosts)]
    silent = [host for host in hosts if not host.accounts]
    notes += map(_silent, silent)
    hosts = [host for host in hosts if host.accounts]
    if not hosts:
        return _nothing(silent, notes)
    hosts, numbers = each_rank_once(hosts)
    accounts = charge_late_rank([account for host in hosts for account in host.accounts])
    level = OUTSIDE if any(host.level == OUTSIDE for host in hosts) else hosts[0].level
    shares = Amounts.summed(account.causes().fractions() for account in accounts).fractions()
    leading = _leading(hosts, accounts, shares, level)
    case = _case(hosts, accounts, shares, leading)
    ranks = tuple(_ranks(hosts, case.trainers))
    missing = NoVerdict(Why.NOT_TRAINING, leading.silence) if all(host.silence for host in hosts) else None
    diagnosis = build(case, accounts, level, missing)
    world = max(len(accounts), *(host.world for host in hosts))
    notes += [*numbers, *missing_ranks(len(accounts), world, _RECORD, (trainer.rank for trainer in case.trainers))]
    if len(hosts) > 1:
        notes += [NotExamined("hosts", say("cluster.no_common_clock"), say("cluster.attach_trace"))]
        notes += [NotExamined("hosts", say("cluster.numbers_of", host=leading.name), say("cluster.report_host"))]
    of_each = on_hosts([(host.name, host.not_examined) for host in hosts])
    return replace(
        diagnosis,
        ranks=ranks,
        crowd=describe_crowd(ranks),
        steps=leading.steps.get(leading.accounts[0].trainer.pid, {}),
        not_examined=(*notes, *of_each, *diagnosis.not_examined),
        job=_job(hosts, case, world),
        activity=Activity(watched_s=case.watched_s),
        not_drawn=(say("cluster.not_drawn"),),
    )


_WATCH = say("coverage.watch_training")
_RECORD = say("hosts.watch_all")


def _silent(host: HostSummary) -> NotExamined:
    return NotExamined("hosts", say("cluster.silent_host", host=host.name, why=host.silence), _WATCH)


def _nothing(hosts: Sequence[HostSummary], notes: Sequence[NotExamined]) -> Diagnosis:
    """Nobody trains on any host."""
    diagnosis = build(hosts[0].case, (), OUTSIDE, NoVerdict(Why.NOT_TRAINING, hosts[0].silence))
    return replace(diagnosis, not_examined=tuple(notes))


def _versions(hosts: Sequence[HostSummary]) -> Iterator[NotExamined]:
    """Hosts that do not run the same."""
    for what, versions in (
        ("perfdoctor", {host.name: host.version for host in hosts if host.version}),
        ("torch", {host.name: host.torch for host in hosts if host.torch}),
    ):
        usual = Counter(versions.values()).most_common(1)
        other = [(name, version) for name, version in versions.items() if version != usual[0][0]]
        if other:
            differing = say(
                "cluster.versions", what=what, usual=usual[0][0], others=tuple(other[:_NAMED]), more=len(other[_NAMED:])
            )
            yield NotExamined("hosts", differing, say("cluster.one_version"))


def _apart(hosts: Sequence[HostSummary]) -> list[NotExamined]:
    """Recordings that by their hosts' clocks were never made at the same time."""
    spans = {host.source: host.span for host in hosts if host.span is not None}
    if len(spans) < 2:
        return []
    late, early = max(spans, key=lambda one: spans[one][0]), min(spans, key=lambda one: spans[one][1])
    seconds = (spans[late][0] - spans[early][1]).total_seconds()
    if seconds <= 0:
        return []
    return [NotExamined("hosts", say("cluster.apart", early=early, late=late, seconds=seconds), say("cluster.at_once"))]


def _leading(
    hosts: Sequence[HostSummary], accounts: Sequence[Account], shares: dict[str, float], level: str
) -> HostSummary:
    """The host whose numbers tell most of the verdict: that with most of its cause, the straggler's if there is one."""
    cause = first_cause(shares, late_shares(accounts), level)
    rank = straggler(accounts, cause)
    if rank is None:
        by_rank = Amounts.summed(account.by_rank() for account in accounts)
        known = {one: amount for (name, one), amount in by_rank.items() if name == cause}
        rank = max(known, key=lambda one: known[one], default=accounts[0].rank)
    return next((host for host in hosts if rank in host.ranks), hosts[0])


def _case(
    hosts: Sequence[HostSummary], accounts: Sequence[Account], shares: dict[str, float], leading: HostSummary
) -> Case:
    """What was measured on the leading host, with the shares of all ranks."""
    seen = [trainer for host in hosts for trainer in _trainers(host)]
    trainers = tuple(_as_merged(trainer, account) for trainer, account in zip(seen, accounts, strict=True))
    return replace(
        leading.case,
        shares=shares,
        trainers=trainers,
        culprits=find_culprits(accounts),
        watched_s=max(host.case.watched_s for host in hosts),
    )


def _trainers(host: HostSummary) -> list[Trainer]:
    """As rules see them, in the order of the accounts."""
    by_pid = {trainer.pid: trainer for trainer in host.case.trainers}
    return [by_pid[account.trainer.pid] for account in host.accounts]


def _as_merged(trainer: Trainer, account: Account) -> Trainer:
    watched = account.seconds or 1.0
    return replace(
        trainer,
        rank=account.rank,
        shares=account.causes().fractions(),
        waited_for={rank: amount / watched for rank, amount in account.waited_for().items()},
    )


def _ranks(hosts: Sequence[HostSummary], trainers: Sequence[Trainer]) -> Iterator[dict[str, Any]]:
    owners = [host for host in hosts for _ in host.accounts]
    for host, trainer in zip(owners, trainers, strict=True):
        yield {
            **describe_rank(trainer, host.steps.get(trainer.pid, {})),
            "host": host.name,
            "recording": host.source,
        }


def _job(hosts: Sequence[HostSummary], case: Case, world: int) -> dict[str, Any]:
    return {
        "recordings": [host.source for host in hosts][:MANY],
        "hosts": [{"name": host.name, "ranks": list(host.ranks)} for host in hosts[:MANY]],
        "started": min(host.started for host in hosts),
        "watched_seconds": round(case.watched_s, 3),
        "trainers": len(case.trainers),
        "world_size": world,
        "settings": dict(case.settings),
    }
