"""From a recording to a diagnosis, by way of the case that rules read (``recorded_case``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfdoctor.analysis.activity import not_drawn, read_activity
from perfdoctor.analysis.blocks import recorded_blocks
from perfdoctor.analysis.coverage import not_examined, of_stuck, why_no_verdict
from perfdoctor.analysis.from_case import build
from perfdoctor.analysis.method import how_made
from perfdoctor.analysis.own_calls import in_own_code
from perfdoctor.analysis.profiled import account_for
from perfdoctor.analysis.recorded_case import gather_case
from perfdoctor.analysis.same_batch_trial import judge, read_trial
from perfdoctor.analysis.watching_cost import own_cost
from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import TRACED, Diagnosis
from perfdoctor.messages import say
from perfdoctor.metrics.overlap import summary as overlap_summary
from perfdoctor.metrics.series import chart_series
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessSeen
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.look_alikes import with_look_alikes
from perfdoctor.stuck.follow import find_still, surely_stuck
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.unseen_ranks import counted_ranks, missing_ranks


@gc_paused()
def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    return examine_job(JobTimeline(recording))


def examine_job(job: JobTimeline, *, drawn: bool = True) -> Diagnosis:
    """Makes the diagnosis of a recording whose timeline is at hand.

    Args:
        job: what was seen.
        drawn: with what reports draw, and what other runs are compared with; a live view does without.
    """
    level, accounts, profiled = account_for(job)
    steps = step_summaries(job)
    trial = read_trial(job.trials, steps)
    case = gather_case(job, accounts, profiled)
    still = find_still({"": job})
    stuck = surely_stuck(still, {"": job})
    missing = why_no_verdict(job, accounts, still) if stuck is None else of_stuck(stuck)
    diagnosis = build(case, accounts, level, missing)
    unseen = (*not_examined(job, case, traced=level == TRACED), *profiled.not_examined, *diagnosis.not_examined)
    if accounts and stuck is None:
        numbers = job.processes.ranks
        absent = missing_ranks(len(numbers), job.processes.world_size, say("hosts.watch_all"), numbers)
        unseen = (*counted_ranks(len(numbers), numbered=job.processes.numbered), *absent, *unseen)
    ranks = tuple(
        describe_rank(trainer, steps.get(trainer.pid, {}), profiled.steps(trainer.pid)) for trainer in case.trainers
    )
    found = replace(
        diagnosis,
        verdict=judge(diagnosis.verdict, trial),
        findings=in_own_code(with_look_alikes(diagnosis.findings, case, unseen), job, case),
        ranks=ranks,
        steps={**ranks[0]["steps"], **({"trial": trial.as_json()} if trial else {})} if ranks else {},
        not_examined=unseen,
        overhead=own_cost(job.recording),
        job={**describe_job(job, case), **_followed(accounts)},
        stuck=stuck,
    )
    if not drawn:
        return found
    activity = read_activity(job, accounts, diagnosis.verdict.straggler_rank)
    traced_ns = profiled.lengths_ns(accounts[0].trainer.pid) if accounts else ()
    return replace(
        found,
        series=chart_series(job),
        activity=activity,
        not_drawn=tuple(not_drawn(activity)),
        method=tuple(how_made(job, accounts, found.verdict)),
        blocks=recorded_blocks(job, accounts, traced=level == TRACED, traced_ns=traced_ns),
    )


def step_summaries(job: JobTimeline) -> dict[int, dict[str, Any]]:
    """By process, what is known of its steps: as marked, or else as counted."""
    counted = {pid: one.summary() for pid, one in job.counted.items()}
    marked = {pid: {**steps.summary(), **overlap_summary(steps)} for pid, steps in job.steps.items()}
    return {**counted, **{pid: steps for pid, steps in marked.items() if steps}}


def describe_rank(
    trainer: Trainer, steps: Mapping[str, Any], profiled: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A rank as reports have it, with its steps: those that it marked or that were counted, and those profiled."""
    return {
        "steps": {**steps, **({"profiled": profiled} if profiled else {})},
        "rank": trainer.rank,
        "pid": trainer.pid,
        "workers": trainer.workers,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "phases": dict(trainer.phases),
        "waits_for": {str(rank): share for rank, share in trainer.waited_for.items()},
    }


def describe_job(job: JobTimeline, case: Case) -> dict[str, Any]:
    """What was watched, when, and how it is set up."""
    root = next(iter(job.recording.rows(ProcessSeen)), None)
    stopped = [event.text for event in job.recording.rows(Event) if event.kind == "stopped"]
    return {
        "pid": int(job.recording.meta.get("asked_pid", 0)),
        "root_pid": None if root is None else root.pid,
        "command": "" if root is None else root.command,
        "host": job.recording.meta.get("host", ""),
        "started": job.recording.meta.get("started", ""),
        "watched_seconds": round(case.watched_s, 3),
        "stopped": stopped[-1] if stopped else "recorder was killed",
        "processes": len(job.processes.by_pid),
        "trainers": len(job.processes.trainers),
        "world_size": job.processes.world_size,
        **case.versions,
        **_neighbours(case),
        "settings": dict(case.settings),
    }


def _followed(accounts: Sequence[Account]) -> dict[str, int]:
    """How many samples of trainers there are and how many were followed, where these stand for all."""
    seen, followed = sum(account.sampled for account in accounts), sum(len(account.samples) for account in accounts)
    return {"samples": seen, "followed_samples": followed} if followed < seen else {}


def _neighbours(case: Case) -> dict[str, float]:
    """How many cores processes outside the job kept busy, where that is known."""
    cores = case.number("neighbour_cores")
    return {} if cores is None else {"neighbour_cores": round(cores, 3)}
