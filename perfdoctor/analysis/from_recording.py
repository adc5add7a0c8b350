"""From a recording to a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfdoctor import __version__
from perfdoctor.analysis.build import list_shares, name_cause, no_verdict, order_findings
from perfdoctor.analysis.no_verdict import why_silent
from perfdoctor.analysis.own_cost import own_cost
from perfdoctor.analysis.profiled import Profiled, read_profiles
from perfdoctor.analysis.recorded_case import gather_facts
from perfdoctor.analysis.same_batch_trial import Trial, judge, read_trial
from perfdoctor.analysis.step_notes import step_notes
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import (
    INSIDE,
    OUTSIDE,
    TRACED,
    WATCH_LONGER,
    WITHOUT_STACKS,
    Diagnosis,
    Finding,
    NotExamined,
    Verdict,
)
from perfdoctor.knowledge.user_frames import HINT, user_frames
from perfdoctor.metrics.overlap import summary
from perfdoctor.metrics.series import chart_series
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessSeen, Unavailable
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.verdict import first_cause, late_shares
from perfdoctor.timeline.job import JobTimeline

_NO_STACKS = NotExamined("stacks", "the watching ended before any stacks were kept", WATCH_LONGER)


def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    job = JobTimeline(recording)
    accounts = attribute(job)
    profiled = read_profiles(recording)
    level = _level(job)
    if profiled.covers(accounts):
        level, accounts = TRACED, profiled.retell(accounts)
    steps = {pid: {**steps.summary(), **summary(steps)} for pid, steps in job.steps.items()}
    trial = read_trial(recording, steps)
    facts = gather_facts(job, accounts, profiled)
    findings, broken = find(facts)
    silence = why_silent(job, accounts)
    if silence:
        # Where nobody trains there is no step that a cause could cost time.
        findings = []
    cause = first_cause(facts.shares, late_shares(accounts), level)
    return Diagnosis(
        version=__version__,
        verdict=judge(_verdict(accounts, facts, findings, cause, silence, level=level), trial),
        breakdown=list_shares(facts.shares),
        findings=order_findings(findings, cause),
        ranks=tuple(_rank(trainer, steps.get(trainer.pid, {})) for trainer in facts.trainers),
        steps=_steps(job, steps, profiled, trial),
        not_examined=(*step_notes(job), *_not_examined(job), *profiled.not_examined, *broken),
        overhead=own_cost(recording),
        job=_job_facts(job, facts),
        series=chart_series(job),
    )


def _verdict(
    accounts: list[Account], facts: Case, findings: list[Finding], cause: str | None, silence: str, *, level: str
) -> Verdict:
    if silence or cause is None:
        return no_verdict(level, silence)
    return name_cause(cause, accounts, facts, findings, level)


def _level(job: JobTimeline) -> str:
    """Inside only if every trainer marked its steps: one of them may be whom the others wait for."""
    trainers = job.processes.trainers
    inside = bool(trainers) and all(trainer.pid in job.steps and job.steps[trainer.pid].all for trainer in trainers)
    return INSIDE if inside else OUTSIDE


def _steps(
    job: JobTimeline, steps: Mapping[int, dict[str, Any]], profiled: Profiled, trial: Trial | None
) -> dict[str, Any]:
    """The steps of the first trainer; each rank's own stand with the ranks."""
    trainers = job.processes.trainers
    if not trainers or trainers[0].pid not in steps:
        return {}
    later = {"profiled": profiled.summary(), "trial": trial.as_json() if trial else {}}
    return {**steps[trainers[0].pid], **{what: told for what, told in later.items() if told}}


def _rank(trainer: Trainer, steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "steps": steps,
        "rank": trainer.rank,
        "pid": trainer.pid,
        "workers": trainer.workers,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "phases": dict(trainer.phases),
        "waits_for": {str(rank): share for rank, share in trainer.blamed.items()},
    }


def _not_examined(job: JobTimeline) -> list[NotExamined]:
    missing = [NotExamined(row.probe, row.reason, row.enable) for row in job.recording.rows(Unavailable)]
    missing += [
        NotExamined("threads", row.text, WATCH_LONGER)
        for row in job.recording.rows(Event)
        if row.kind == "rate lowered"
    ]
    if not all(job.locator.is_known(trainer.pid) for trainer in job.processes.trainers):
        reasons = [one for one in missing if one.probe == "stacks"] or [_NO_STACKS]
        costly = [replace(one, reason=f"{str(one.reason).rstrip('.')}. {WITHOUT_STACKS}") for one in reasons]
        missing = [one for one in missing if one.probe != "stacks"] + costly
    if problem := user_frames().problem:
        missing.append(NotExamined("frames", problem, HINT))
    return list(dict.fromkeys(missing))


def _job_facts(job: JobTimeline, facts: Case) -> dict[str, Any]:
    root = next(iter(job.recording.rows(ProcessSeen)), None)
    stopped = [event.text for event in job.recording.rows(Event) if event.kind == "stopped"]
    return {
        "pid": int(job.recording.meta.get("asked_pid", 0)),
        "root_pid": None if root is None else root.pid,
        "command": "" if root is None else root.command,
        "host": job.recording.meta.get("host", ""),
        "started": job.recording.meta.get("started", ""),
        "watched_seconds": round(facts.watched_s, 3),
        "stopped": stopped[-1] if stopped else "recorder was killed",
        "processes": len(job.processes.by_pid),
        "trainers": len(job.processes.trainers),
        "world_size": job.processes.world_size,
        "settings": dict(facts.settings),
    }
