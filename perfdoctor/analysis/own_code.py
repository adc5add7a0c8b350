"""How the job is written and started, as far as that is known: there advice shows its changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from perfdoctor.diagnosis import Advice, Finding, Fix, OwnCall, OwnCode
from perfdoctor.knowledge.own_calls import ALIKE
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.timeline.job import JobTimeline

# Nothing in it that a shell would read, and a script or module that can be started again: no notebook's kernel.
_TYPED = re.compile(r"(?=.*(?:\.py|\s-m \S+)(?:\s|$))(?!.*\s-c\s)(?!.*ipykernel)[\w./=:,@%+ -]{1,300}")


def read_own_code(job: JobTimeline) -> OwnCode:
    """What the recording holds of it."""
    return OwnCode(tuple(_clear(job.source_calls)), _command(job))


def in_own_code(findings: Iterable[Finding], own: OwnCode) -> tuple[Finding, ...]:
    """The findings, with advice that shows its changes in the job's own code."""

    def shown(fix: Fix | Advice) -> Fix | Advice:
        return replace(fix, own=own) if isinstance(fix, Advice) else fix

    return tuple(replace(one, fixes=tuple(map(shown, one.fixes))) for one in findings)


def _clear(calls: Iterable[SourceCall]) -> Iterator[OwnCall]:
    """Of each kind the one that the loop uses, or the only one where that is not known."""
    there = list(dict.fromkeys(calls))
    for names in ALIKE:
        alike = [call for call in there if call.callee in names]
        found = [call for call in alike if call.used] or alike
        if len(found) == 1 and found[0].used != False:  # noqa: E712, SQLite has numbers for both
            yield OwnCall(found[0].file, found[0].line, found[0].text, names)


def _command(job: JobTimeline) -> str:
    """By which the job was started, or its only process; of one rank of several it is not known."""
    root = next(iter(job.recording.processes.values()), None)
    if root is None or not _TYPED.fullmatch(root.command):
        return ""
    is_rank = job.processes.world_size > 1 and any(root.pid == trainer.pid for trainer in job.processes.trainers)
    return "" if is_rank else root.command
