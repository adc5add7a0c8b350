"""From profiler traces to a diagnosis: one trace per rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfdoctor.analysis.blocks import traced_blocks
from perfdoctor.analysis.from_case import build, describe_trainer
from perfdoctor.analysis.rank_groups import MANY, describe_crowd
from perfdoctor.attribution.account import Account, find_culprits
from perfdoctor.causes import GPU_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import TRACED, Diagnosis, Evidence, NotExamined, NoVerdict, Verdict, Why
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Message, say
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.activity import Activity
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.confidence import surest
from perfdoctor.rules.interpreter import is_outside_torch
from perfdoctor.rules.stragglers import straggler
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.traces.coverage import missing_for_cause, missing_for_most, missing_of_late, missing_outside
from perfdoctor.traces.kernel_stats import compare_same_kernels, top_named
from perfdoctor.traces.model import Trace
from perfdoctor.traces.rank import Rank, gather_numbers, summarize
from perfdoctor.traces.rank_merge import (
    MergedRanks,
    leave_out_copies,
    measure_job,
    merge_ranks,
    missing_in_job,
    number_ranks,
    order_ranks,
)


def diagnose_traces(traces: Iterable[Trace]) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        traces: of its ranks, at least one. Each is taken only when the one before is done with, so that a generator
            that reads them never holds two.

    Raises:
        PerfDoctorError: they are not of one run.
    """
    return diagnose_ranks([summarize(trace) for trace in traces])


def diagnose_ranks(ranks: Sequence[Rank]) -> Diagnosis:
    """Makes the diagnosis of one job, from what remained of its ranks' traces, or of a table of their operations.

    Raises:
        PerfDoctorError: they are not of one run.
    """
    ranks, copies = leave_out_copies(ranks)
    ranks = order_ranks(ranks)
    merged = merge_ranks(ranks, number_ranks(ranks))
    case = gather_case(ranks, merged)
    silence = next((rank.silence for rank in ranks if rank.silence), "")
    missing = NoVerdict(Why.TRACE, silence) if silence else None
    diagnosis = build(case, merged.accounts, TRACED, missing, late_ranks_explained=False)
    verdict = diagnosis.verdict
    shown = tuple(_rank(rank, trainer) for rank, trainer in zip(ranks, case.trainers, strict=True))
    return replace(
        diagnosis,
        verdict=replace(verdict, confidence=min(verdict.confidence, _most_confidence(ranks, case, verdict))),
        ranks=shown,
        crowd=describe_crowd(shown),
        steps=ranks[0].loop.summary(),
        not_examined=(*copies, *_not_examined(ranks, merged, case, verdict), *diagnosis.not_examined),
        job=_job(ranks, case, merged),
        activity=Activity(watched_s=case.watched_s),
        not_drawn=(say("activity.of_traces"),),
        method=tuple(_method(ranks, case)),
        blocks=traced_blocks(ranks[0].loop.lengths.tolist(), merged.accounts),
    )


def _method(ranks: Sequence[Rank], case: Case) -> Iterator[Message]:
    yield say("method.traced", traces=len(ranks), events=sum(rank.events for rank in ranks))
    recording, shorter = case.number("traced_recording"), case.number("traced_shorter")
    if recording is not None and shorter is not None:
        step = case.number("traced_step_alone")
        yield say("method.without_profiler", recording=recording, shorter=shorter, step_ms=step)


def gather_case(ranks: Sequence[Rank], merged: MergedRanks) -> Case:
    """Everything that rules may read; shares are means over the ranks, which all count alike."""
    accounts = merged.accounts
    together = Amounts.summed(account.causes().fractions() for account in accounts)
    return Case(
        shares=together.fractions(),
        trainers=tuple(
            replace(describe_trainer(account, {"data": rank.loading}), workers=rank.workers)
            for rank, account in zip(ranks, accounts, strict=True)
        ),
        culprits=find_culprits(accounts),
        numbers={
            **gather_numbers(ranks),
            **_slower_kernels(ranks, accounts),
            **measure_job(ranks, merged),
        },
        settings=_settings(ranks),
        lines=top_named(rank.call_sites.lines for rank in ranks),
        kernels=top_named(rank.kernels for rank in ranks),
        operators=top_named(rank.call_sites.operators for rank in ranks),
        watched_s=max(rank.window.length for rank in ranks) / NS_PER_S,
    )


def _slower_kernels(ranks: Sequence[Rank], accounts: Sequence[Account]) -> dict[str, Evidence]:
    """Of a rank that the others wait for because it computes longer."""
    late = straggler(accounts, GPU_COMPUTE)
    index = next((index for index, one in enumerate(accounts) if late is not None and one.rank == late), None)
    return {} if index is None else compare_same_kernels([rank.same_kernels for rank in ranks], index)


def _settings(ranks: Sequence[Rank]) -> dict[str, str | float]:
    first = ranks[0]
    found: dict[str, str | float] = {}
    if first.devices:
        found["gpus"] = float(sum(len(rank.devices) for rank in ranks))
        if name := first.devices[0].partition(": ")[2]:
            found["gpu_name"] = name
        if first.capability is not None:
            found["compute_capability"] = first.capability
    if all(rank.window.steps for rank in ranks):
        # The profiler marks each fetch from a loader, and in whole steps there would be some.
        found["loader"] = "yes" if any(rank.loading for rank in ranks) else "no"
    found |= first.uses
    if first.world is not None:
        found["env.WORLD_SIZE"] = str(first.world)
    return found


def _most_confidence(ranks: Sequence[Rank], case: Case, verdict: Verdict) -> float:
    unseen = verdict.cause == PYTHON_OVERHEAD and is_outside_torch(case)
    most = surest(_seen_steps(ranks))
    return min(most, thresholds.CONFIDENCE_UNSEEN_CODE) if unseen else most


def _not_examined(ranks: Sequence[Rank], merged: MergedRanks, case: Case, verdict: Verdict) -> list[NotExamined]:
    found = [missing for rank in ranks for missing in rank.missing]
    found += missing_in_job(ranks, merged)
    found += missing_for_cause(verdict.cause, loading=any(rank.loading and rank.workers for rank in ranks))
    if verdict.cause == PYTHON_OVERHEAD and is_outside_torch(case):
        numbers = [account.rank for account in merged.accounts]
        where = verdict.straggler_rank
        index = 0 if where is None else numbers.index(where)
        found.append(missing_outside(where, ranks[index].unexplained))
    if verdict.cause is None and verdict.straggler_rank is not None:
        numbered = zip(ranks, merged.accounts, strict=True)
        late = next(rank for rank, account in numbered if account.rank == verdict.straggler_rank)
        found.append(missing_of_late(verdict.straggler_rank, late.unexplained))
    elif verdict.cause is None and not any(rank.silence for rank in ranks):
        found.append(missing_for_most(stacks=any(rank.call_sites.lines for rank in ranks)))
    return list(dict.fromkeys(found))


def _rank(rank: Rank, trainer: Trainer) -> dict[str, Any]:
    return {
        "rank": trainer.rank,
        "host": rank.host_name or None,
        "steps": rank.loop.summary(),
        "pid": rank.pid,
        "workers": None,
        "trace": rank.source,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "waits_for": {str(number): share for number, share in trainer.waited_for.items()},
        "devices": list(rank.devices),
    }


def _devices(ranks: Sequence[Rank]) -> list[str]:
    """Each by its index on its host, or where that is too much to read, each kind."""
    each = sorted({device for rank in ranks for device in rank.devices})
    return each if len(each) <= MANY else sorted({device.partition(": ")[2] or "?" for device in each})


def _seen_steps(ranks: Sequence[Rank]) -> int:
    """How many steps the confidence may rest on: those marked, or else the seconds that the trace lasts."""
    window = ranks[0].window
    return len(window.steps) or max(int(thresholds.FEWEST_STEPS), int(window.length / NS_PER_S))


def _job(ranks: Sequence[Rank], case: Case, merged: MergedRanks) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traces": list(dict.fromkeys(rank.source for rank in ranks))[:MANY],
        "host": ranks[0].host_name or None,
        "devices": _devices(ranks),
        "watched_seconds": round(case.watched_s, 6),
        "events": sum(rank.events for rank in ranks),
        "trainers": len(ranks),
        "world_size": ranks[0].world,
    }
    if len(ranks) > 1:
        errors = [clock.error for clock in merged.clocks.values()]
        found["matched_collectives"] = merged.matched
        found["clock_error_us"] = round(max(errors) / 1000, 3) if errors else None
    return found
