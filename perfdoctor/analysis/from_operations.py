"""From a table of operations to a diagnosis: the accounts of its ranks, and what equal ranks would gain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfdoctor.analysis.from_traces import diagnose_ranks
from perfdoctor.causes import GPU_COMPUTE
from perfdoctor.diagnosis import Diagnosis, Evidence, Finding, NotExamined, Verdict
from perfdoctor.messages import Message, say
from perfdoctor.operations.ranks import list_ranks
from perfdoctor.operations.table import OperationTable, build_graph, read_table
from perfdoctor.operations.what_if import WhatIf, ask_what_if
from perfdoctor.rules.gpu import level_ranks

_PROBE = "replay"
_INSIDE = NotExamined(
    "table",
    say("coverage.operations_only"),
    say("coverage.profile_a_rank"),
)


def diagnose_table(path: Path) -> Diagnosis:
    """Makes the diagnosis of the job that a table is of.

    Raises:
        PerfDoctorError: it cannot be read, or is not such a table.
    """
    table = read_table(path)
    graph = build_graph(table)
    found = ask_what_if(table, graph)
    diagnosis = diagnose_ranks(list_ranks(table, graph))
    findings = tuple(_with_replay(one, found, table) for one in diagnosis.findings)
    job = {**diagnosis.job, "tables": [table.source], "what_if": _numbers(found), "steps_left_out": table.left_out}
    return replace(
        diagnosis,
        verdict=_verdict(diagnosis.verdict, findings, found, table),
        findings=findings,
        not_examined=(*diagnosis.not_examined, _INSIDE),
        job=job,
    )


def _numbers(found: WhatIf) -> dict[str, object]:
    return {
        "slowdown": round(found.slowdown, 4),
        "pauses": round(found.pauses, 4),
        "kind": found.kind,
        "culprit": found.culprit,
        "explained_by_worst_rank": round(found.explained["rank"], 4),
        "explained_by_worst_stage": round(found.explained["stage"], 4),
    }


def _verdict(verdict: Verdict, findings: tuple[Finding, ...], found: WhatIf, table: OperationTable) -> Verdict:
    """The replay says better than the account who holds the others back: it knows what a pipeline costs anyway."""
    if verdict.cause is None:
        return verdict
    verdict = replace(verdict, straggler_rank=found.culprit if found.kind == "rank" else None)
    if verdict.cause != GPU_COMPUTE or found.kind == "none":
        return verdict
    return replace(verdict, summary=_summary(found, table), predicted_speedup=found.slowdown)


def _summary(found: WhatIf, table: OperationTable) -> Message:
    if found.kind == "rank":
        return say("verdict.slow_rank", rank=found.culprit, slowdown=found.slowdown)
    if found.kind == "stage":
        return say("verdict.heavy_stage", stage=found.culprit, ranks=_ranks(found, table), slowdown=found.slowdown)
    return say("verdict.changing_ranks", slowdown=found.slowdown, stages=False)


def _ranks(found: WhatIf, table: OperationTable) -> tuple[int, ...]:
    """The ranks at fault; none where they change."""
    if found.kind == "rank" and found.culprit is not None:
        return (found.culprit,)
    return tuple(sorted(number for (_, stage), number in table.ranks.items() if stage == found.culprit))


def _with_replay(one: Finding, found: WhatIf, table: OperationTable) -> Finding:
    """The finding about the model's arithmetic, with what the replay says about it."""
    if one.cause != GPU_COMPUTE:
        return one
    evidence = (
        Evidence("length of a step to that with equal ranks", round(found.slowdown, 4), "times", _PROBE),
        Evidence("length of a step to that without pauses", round(found.pauses, 4), "times", _PROBE),
        Evidence("of the loss, what the worst rank explains", round(found.explained["rank"], 4), "", _PROBE),
        Evidence("of the loss, what the worst stage explains", round(found.explained["stage"], 4), "", _PROBE),
    )
    one = replace(one, evidence=(*one.evidence, *evidence))
    if found.kind == "none":
        return one
    return replace(
        one,
        summary=_summary(found, table),
        fixes=(*one.fixes, *level_ranks(found.kind, found.culprit)),
        predicted_speedup=found.slowdown,
        ranks=_ranks(found, table),
    )
