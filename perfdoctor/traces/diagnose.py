"""From profiler traces to a diagnosis: one trace per rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from perfdoctor import __version__
from perfdoctor.amounts import Amounts
from perfdoctor.clock import NS_PER_S
from perfdoctor.conclusion import list_shares, name_cause, no_verdict, order_findings
from perfdoctor.diagnosis import Diagnosis, Finding, Verdict
from perfdoctor.facts import Facts, Trainer
from perfdoctor.rules import find
from perfdoctor.traces.account import RankAccount, account_for
from perfdoctor.traces.evidence import measure_traces
from perfdoctor.traces.host import Doing
from perfdoctor.traces.kernel_evidence import top_kernels
from perfdoctor.traces.model import Trace
from perfdoctor.traces.silence import not_in_traces, why_no_verdict
from perfdoctor.verdict import agreement, first_cause

LEVEL = "traced"


def diagnose_traces(traces: Iterable[Trace]) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        traces: of its ranks, at least one.
    """
    accounts = _in_order([account_for(trace) for trace in traces])
    facts = gather_facts(accounts)
    findings, broken = find(facts)
    silence = why_no_verdict(accounts)
    if silence:
        findings = []
    cause = None if silence else first_cause(facts.shares, level=LEVEL)
    return Diagnosis(
        version=__version__,
        verdict=_verdict(accounts, facts, findings, cause, silence),
        breakdown=list_shares(facts.shares),
        findings=order_findings(findings, cause),
        ranks=tuple(_rank(account, trainer) for account, trainer in zip(accounts, facts.trainers, strict=True)),
        steps=_steps(accounts),
        not_examined=(*not_in_traces(accounts, cause), *broken),
        job=_job(accounts, facts),
    )


def gather_facts(accounts: Sequence[RankAccount]) -> Facts:
    """Everything that rules may read; shares are means over the ranks, which all count alike."""
    together = Amounts.summed(account.shares for account in accounts)
    return Facts(
        shares=together.fractions(),
        trainers=tuple(_trainer(account, number) for number, account in enumerate(accounts)),
        culprits={},
        numbers=measure_traces(accounts),
        settings=_settings(accounts),
        kernels=top_kernels(accounts),
        watched_s=max(account.window.length for account in accounts) / NS_PER_S,
    )


def _in_order(accounts: list[RankAccount]) -> list[RankAccount]:
    return sorted(accounts, key=lambda account: (account.trace.rank is None, account.trace.rank or 0))


def _trainer(account: RankAccount, number: int) -> Trainer:
    loading = account.host.doing(account.host.main)[Doing.LOADING]
    names = account.trace.names
    return Trainer(
        rank=number if account.trace.rank is None else account.trace.rank,
        pid=_pid(account) or 0,
        shares=account.shares,
        phases={"data": loading.total / account.window.length} if account.window.length else {},
        blamed={},
        worker_pids=(),
        # Which kind of loader it is stands in its mark; how many workers it has does not.
        workers=1 if any("_MultiProcessingDataLoaderIter" in name for name in names) else 0,
    )


def _pid(account: RankAccount) -> int | None:
    if account.host.main is None:
        return None
    process = account.trace.threads[account.host.main][0]
    return int(process) if process.isdigit() else None


def _settings(accounts: Sequence[RankAccount]) -> dict[str, str | float]:
    first = accounts[0]
    found: dict[str, str | float] = {}
    if first.devices:
        found["gpus"] = float(sum(len(account.devices) for account in accounts))
        properties = first.trace.devices.get(first.devices[0].device)
        if properties is not None and properties.capability is not None:
            found["compute_capability"] = properties.capability
    if first.trace.world is not None:
        found["env.WORLD_SIZE"] = str(first.trace.world)
    return found


def _verdict(
    accounts: Sequence[RankAccount], facts: Facts, findings: list[Finding], cause: str | None, silence: str
) -> Verdict:
    if cause is None:
        return no_verdict(LEVEL, silence)
    slices = [Amounts.summed(parts) for parts in zip(*(account.slices for account in accounts), strict=True)]
    return name_cause(
        cause,
        facts.share(cause),
        findings,
        level=LEVEL,
        confidence=agreement(slices, cause, LEVEL),
        straggler=None,
    )


def _rank(account: RankAccount, trainer: Trainer) -> dict[str, Any]:
    return {
        "rank": trainer.rank,
        "pid": _pid(account),
        "workers": None,
        "trace": account.trace.source,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "devices": [_device_name(account, device.device) for device in account.devices],
    }


def _device_name(account: RankAccount, device: int) -> str:
    properties = account.trace.devices.get(device)
    return f"{device}: {properties.name}" if properties is not None and properties.name else str(device)


def _steps(accounts: Sequence[RankAccount]) -> dict[str, Any]:
    spans = [end - start for account in accounts for start, end in account.window.steps]
    if not spans:
        return {}
    return {"count": len(accounts[0].window.steps), "median_s": float(np.median(spans)) / NS_PER_S}


def _job(accounts: Sequence[RankAccount], facts: Facts) -> dict[str, Any]:
    first = accounts[0].trace
    return {
        "traces": [account.trace.source for account in accounts],
        "host": first.host_name or None,
        "devices": sorted({_device_name(account, one.device) for account in accounts for one in account.devices}),
        "watched_seconds": round(facts.watched_s, 6),
        "events": sum(account.trace.events for account in accounts),
        "trainers": len(accounts),
        "world_size": first.world,
    }
