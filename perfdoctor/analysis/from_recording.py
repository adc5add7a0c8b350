"""From a recording to a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfdoctor.analysis.build import build
from perfdoctor.analysis.coverage import not_examined
from perfdoctor.analysis.no_verdict import why_no_verdict
from perfdoctor.analysis.profiled import Profiled, read_profiles
from perfdoctor.analysis.recorded_case import gather_case
from perfdoctor.analysis.same_batch_trial import Trial, judge, read_trial
from perfdoctor.attribution.attribute import attribute
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED, Diagnosis
from perfdoctor.metrics.overlap import summary as overlap_summary
from perfdoctor.metrics.series import chart_series
from perfdoctor.recording.clock import seconds
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessSeen
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.timeline.job import JobTimeline


def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    job = JobTimeline(recording)
    accounts = attribute(job)
    profiled = read_profiles(job.profiles)
    level = _level(job)
    if profiled.covers(accounts):
        level, accounts = TRACED, profiled.join(job, accounts)
    steps = {pid: {**steps.summary(), **overlap_summary(steps)} for pid, steps in job.steps.items()}
    trial = read_trial(job.trials, steps)
    case = gather_case(job, accounts, profiled)
    diagnosis = build(case, accounts, level, why_no_verdict(job, accounts))
    return replace(
        diagnosis,
        verdict=judge(diagnosis.verdict, trial),
        ranks=tuple(_rank(trainer, steps.get(trainer.pid, {})) for trainer in case.trainers),
        steps=_steps(job, steps, profiled, trial),
        not_examined=(*not_examined(job), *profiled.not_examined, *diagnosis.not_examined),
        overhead=_own_cost(recording),
        job=_describe_job(job, case),
        series=chart_series(job),
    )


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
    return {**steps[trainers[0].pid], **{what: summary for what, summary in later.items() if summary}}


def _rank(trainer: Trainer, steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "steps": steps,
        "rank": trainer.rank,
        "pid": trainer.pid,
        "workers": trainer.workers,
        "breakdown": [{"cause": cause, "share": share} for cause, share in trainer.shares.items()],
        "phases": dict(trainer.phases),
        "waits_for": {str(rank): share for rank, share in trainer.waited_for.items()},
    }


def _describe_job(job: JobTimeline, case: Case) -> dict[str, Any]:
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
        "settings": dict(case.settings),
    }


def _own_cost(recording: Recording) -> dict[str, Any]:
    """CPU and memory of perfdoctor while it watched; values are None where the recorder was killed before it could say.

    Returns:
        ``cpu_cores`` (mean cores used, py-spy included), ``memory_bytes`` (peak), ``ticks`` and ``late_ticks``.
    """

    def read(name: str) -> tuple[list[int], list[float]]:
        return recording.series.get(("perfdoctor", name), ([], []))

    def last(name: str) -> float | None:
        values = read(name)[1]
        return values[-1] if values else None

    used = 0.0
    span = 0.0
    for name in ("own_cpu_seconds_total", "helpers_cpu_seconds_total"):
        times, values = read(name)
        if len(values) >= 2:
            used += values[-1] - values[0]
            span = seconds(times[-1] - times[0])
    return {
        "cpu_cores": used / span if span > 0 else None,
        "memory_bytes": last("memory_peak_bytes"),
        "ticks": last("ticks_total"),
        "late_ticks": last("late_ticks_total"),
    }
