"""How the job's own code is written and started, for advice to show its changes there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from perfdoctor.diagnosis import Advice, Finding, Fix, OwnCall, OwnCode
from perfdoctor.knowledge.libraries import LOADER_OF_EVALUATION, LOADER_OF_TRAINER, LOADERS, SAME_ARGUMENTS
from perfdoctor.knowledge.versions import missing_parts
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.rules.case import Case
from perfdoctor.timeline.job import JobTimeline

# Nothing in it that a shell would read, and a script or module that can be started again: no notebook's kernel.
_TYPED = re.compile(r"(?=.*(?:\.py|\s-m \S+)(?:\s|$))(?!.*\s-c\s)(?!.*ipykernel)[\w./=:,@%+ -]{1,300}")


def read_own_code(job: JobTimeline, loop: str = "", torch: str = "", *, of_training: bool = True) -> OwnCode:
    """What the recording holds of it.

    Args:
        job: that was watched.
        loop: whose training loop it runs, as ``perfdoctor.rules.case.Case.loop``.
        torch: the version of PyTorch that it runs; "" where that is not known.
        of_training: of loaders with the one that the loop which trains goes over, else with one that it does not.
    """
    made = LOADER_OF_TRAINER if of_training else LOADER_OF_EVALUATION
    has_workers = any(job.processes.workers_of(trainer.pid) for trainer in job.processes.trainers)
    there = [call for call in job.source_calls if has_workers or not _starts_workers(call)]
    calls = tuple(_clear(there, of_training=of_training))
    return OwnCode(calls, _command(job), made if loop == "transformers" else {}, torch, missing_parts(torch))


def in_own_code(findings: Iterable[Finding], job: JobTimeline, case: Case) -> tuple[Finding, ...]:
    """The findings, with advice that shows its changes in the job's own code."""
    torch = case.versions.get("torch", "")
    of_training, of_others = (
        read_own_code(job, case.loop, torch, of_training=of_training) for of_training in (True, False)
    )

    def shown(fix: Fix | Advice) -> Fix | Advice:
        return replace(fix, own=of_others if fix.other_loader else of_training) if isinstance(fix, Advice) else fix

    return tuple(replace(one, fixes=tuple(map(shown, one.fixes))) for one in findings)


def _clear(calls: Iterable[SourceCall], *, of_training: bool) -> Iterator[OwnCall]:
    """Of each kind the one that advice is about, or the only one where that is not known."""
    there = list(dict.fromkeys(calls))
    for names in SAME_ARGUMENTS:
        alike = [call for call in there if call.callee in names]
        others = [call for call in alike if call.is_unused] if names == LOADERS else []
        if names == LOADERS and not of_training:
            found = others
        else:
            found = [call for call in alike if call.used] or ([] if others else alike)
        if len(found) == 1:
            yield OwnCall(found[0].file, found[0].line, found[0].text, names)


def _starts_workers(call: SourceCall) -> bool:
    """Whether it is a loader's that is written with workers: where the job has none, it goes over another loader."""
    return call.callee in LOADERS and bool(re.search(r"\bnum_workers\s*=\s*[1-9]", call.text))


def _command(job: JobTimeline) -> str:
    """By which the job was started, or its only process; of one rank of several it is not known."""
    root = next(iter(job.recording.processes.values()), None)
    if root is None or not _TYPED.fullmatch(root.command):
        return ""
    is_rank = job.processes.world_size > 1 and any(root.pid == trainer.pid for trainer in job.processes.trainers)
    return "" if is_rank else root.command
