"""From a recording to a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor import __version__
from perfdoctor.amounts import Amounts
from perfdoctor.between import told_between
from perfdoctor.breakdown.account import account
from perfdoctor.breakdown.ledger import Ledger, find_culprits
from perfdoctor.clock import seconds
from perfdoctor.conclusion import list_shares, name_cause, no_verdict, order_findings
from perfdoctor.diagnosis import INSIDE, OUTSIDE, TRACED, Diagnosis, Finding, NotExamined, Verdict
from perfdoctor.evidence.code_seen import measure_code, read_code_settings
from perfdoctor.evidence.measure import measure
from perfdoctor.evidence.overlap import measure_overlap, summary
from perfdoctor.evidence.own_code import below, below_lines, by_function, outside_torch
from perfdoctor.evidence.series import chart_series
from perfdoctor.evidence.settings import read_settings
from perfdoctor.facts import Facts, Trainer
from perfdoctor.overhead import own_cost
from perfdoctor.profiled import Profiled
from perfdoctor.recording import Recording
from perfdoctor.rules import find
from perfdoctor.samples import Event, ProcessSeen, Unavailable
from perfdoctor.scene.scene import Scene
from perfdoctor.scene.steps import Steps
from perfdoctor.several import told_several
from perfdoctor.silence import why_silent
from perfdoctor.trial import Trial, judge, read_trial
from perfdoctor.verdict import first_cause, late_shares

_SHOWN = 5
# Lines that are known for less than this part of a cause's time do not tell where it is.
_TELLING = 1 / 8


def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    scene = Scene(recording)
    ledgers = account(scene)
    profiled = Profiled(recording)
    level = _level(scene)
    if profiled.covers(ledgers):
        level, ledgers = TRACED, profiled.retell(ledgers)
    steps = {pid: {**steps.summary(), **summary(steps)} for pid, steps in scene.steps.items()}
    trial = read_trial(recording, steps)
    facts = gather_facts(scene, ledgers, profiled)
    findings, broken = find(facts)
    silence = why_silent(scene, ledgers)
    if silence:
        # Where nobody trains there is no step that a cause could cost time.
        findings = []
    cause = first_cause(facts.shares, late_shares(ledgers), level)
    return Diagnosis(
        version=__version__,
        verdict=judge(_verdict(ledgers, facts, findings, cause, silence, level=level), trial),
        breakdown=list_shares(facts.shares),
        findings=order_findings(findings, cause),
        ranks=tuple(_rank(trainer, steps.get(trainer.pid, {})) for trainer in facts.trainers),
        steps=_steps(scene, steps, profiled, trial),
        not_examined=(*_of_steps(scene), *_not_examined(recording), *profiled.not_examined, *broken),
        overhead=own_cost(recording),
        job=_job(scene, facts),
        series=chart_series(recording, [trainer.pid for trainer in scene.roles.trainers]),
    )


def gather_facts(scene: Scene, ledgers: list[Ledger], profiled: Profiled) -> Facts:
    """Everything that rules may read."""
    together = Amounts.summed(ledger.causes() for ledger in ledgers)
    pids = [
        (ledger.trainer.pid, [worker.pid for worker in scene.roles.workers_of(ledger.trainer.pid)])
        for ledger in ledgers
    ]
    trainers = tuple(_trainer(scene, ledger) for ledger in ledgers)
    own = {cause: _telling(ledgers, cause, together[cause]) for cause in together}
    under = below_lines(scene.stacks)
    return Facts(
        shares=together.fractions(),
        trainers=trainers,
        culprits=find_culprits(ledgers),
        numbers={
            **measure(scene.recording, pids),
            **measure_code(ledgers),
            **profiled.numbers(),
            **measure_overlap(_by_rank(scene, trainers)),
        },
        kernels=profiled.kernels(),
        operators=profiled.operators(),
        settings={**read_settings(scene.recording, pids), **read_code_settings(scene)},
        paths={
            cause: _top([ledger.targets.get(cause, Amounts()) for ledger in ledgers]) for cause in together
        },
        lines={cause: by_function(lines) for cause, lines in own.items()},
        below={cause: below(lines, under) for cause, lines in own.items()},
        python_lines={cause: by_function(outside_torch(lines, under)) for cause, lines in own.items()},
        watched_s=seconds(scene.recording.end_ns - scene.recording.start_ns),
    )


def _telling(ledgers: Sequence[Ledger], cause: str, seconds: float) -> Amounts[str]:
    """The source lines of a cause; none where it is mostly elsewhere, in what workers take from the trainer's cores."""
    lines = Amounts.summed(ledger.lines.get(cause, {}) for ledger in ledgers)
    return lines if lines.total >= _TELLING * seconds else Amounts()


def _by_rank(scene: Scene, trainers: Sequence[Trainer]) -> dict[int, Steps]:
    """The steps of those that marked them."""
    return {trainer.rank: scene.steps[trainer.pid] for trainer in trainers if trainer.pid in scene.steps}


def _trainer(scene: Scene, ledger: Ledger) -> Trainer:
    workers = scene.roles.workers_of(ledger.trainer.pid)
    middle = [sum(worker.alive_at(time) for worker in workers) for time in _moments(scene)]
    watched = ledger.seconds or 1.0
    return Trainer(
        rank=ledger.trainer.rank or 0,
        pid=ledger.trainer.pid,
        shares=ledger.causes().fractions(),
        phases=ledger.phases.fractions(),
        blamed={rank: amount / watched for rank, amount in ledger.waited_for().items()},
        worker_pids=tuple(worker.pid for worker in workers),
        workers=sorted(middle)[len(middle) // 2],
    )


def _moments(scene: Scene) -> list[int]:
    start, end = scene.recording.start_ns, scene.recording.end_ns
    return [start + (end - start) * step // 50 for step in range(1, 50)]


def _top(parts: list[Amounts[str]]) -> tuple[tuple[str, float], ...]:
    return tuple(list(Amounts.summed(parts).fractions().items())[:_SHOWN])


def _verdict(
    ledgers: list[Ledger], facts: Facts, findings: list[Finding], cause: str | None, silence: str, *, level: str
) -> Verdict:
    if silence or cause is None:
        return no_verdict(level, silence)
    return name_cause(cause, ledgers, facts, findings, level)


def _level(scene: Scene) -> str:
    """Inside only if every trainer marked its steps: one of them may be whom the others wait for."""
    trainers = scene.roles.trainers
    inside = bool(trainers) and all(trainer.pid in scene.steps and scene.steps[trainer.pid].all for trainer in trainers)
    return INSIDE if inside else OUTSIDE


def _steps(
    scene: Scene, steps: Mapping[int, dict[str, Any]], profiled: Profiled, trial: Trial | None
) -> dict[str, Any]:
    """The steps of the first trainer; each rank's own stand with the ranks."""
    trainers = scene.roles.trainers
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


def _of_steps(scene: Scene) -> list[NotExamined]:
    return [*told_between(scene), *told_several(scene)]


def _not_examined(recording: Recording) -> list[NotExamined]:
    missing = [NotExamined(row.probe, row.reason, row.enable) for row in recording.rows(Unavailable)]
    missing += [
        NotExamined("threads", row.text, "watch longer with --duration, or fewer processes")
        for row in recording.rows(Event)
        if row.kind == "rate lowered"
    ]
    return list(dict.fromkeys(missing))


def _job(scene: Scene, facts: Facts) -> dict[str, Any]:
    seen = scene.recording.table(ProcessSeen)
    root = seen.iloc[0] if len(seen) else None
    events = scene.recording.table(Event)
    stopped = events.loc[events["kind"] == "stopped", "text"]
    return {
        "pid": int(scene.recording.meta.get("asked_pid", 0)),
        "root_pid": None if root is None else int(root["pid"]),
        "command": "" if root is None else str(root["command"]),
        "host": scene.recording.meta.get("host", ""),
        "started": scene.recording.meta.get("started", ""),
        "watched_seconds": round(facts.watched_s, 3),
        "stopped": str(stopped.iloc[-1]) if len(stopped) else "recorder was killed",
        "processes": len(scene.roles.processes),
        "trainers": len(scene.roles.trainers),
        "world_size": scene.roles.world_size,
        "settings": dict(facts.settings),
    }
