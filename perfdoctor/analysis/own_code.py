"""The job's own code: where in it each cause lies, and how it is written and started, where advice shows changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfdoctor.attribution.account import Account
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import Advice, Finding, Fix, OwnCall, OwnCode
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.libraries import LOADER_OF_EVALUATION, LOADER_OF_TRAINER, LOADERS, SAME_ARGUMENTS
from perfdoctor.metrics.own_code import by_function, owner_of
from perfdoctor.metrics.own_loops import CostlyLoop, OwnLoops
from perfdoctor.metrics.own_source import part_after_draws
from perfdoctor.recording.own_source import SourceCall, SourceDraw, SourceLoop
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline

# Nothing in it that a shell would read, and a script or module that can be started again: no notebook's kernel.
_TYPED = re.compile(r"(?=.*(?:\.py|\s-m \S+)(?:\s|$))(?!.*\s-c\s)(?!.*ipykernel)[\w./=:,@%+ -]{1,300}")


def read_own_code(job: JobTimeline, loop: str = "", *, of_training: bool = True) -> OwnCode:
    """What the recording holds of it.

    Args:
        job: that was watched.
        loop: whose training loop it runs, as ``perfdoctor.rules.case.Case.loop``.
        of_training: of loaders with the one that the loop which trains goes over, else with one that it does not.
    """
    made = LOADER_OF_TRAINER if of_training else LOADER_OF_EVALUATION
    calls = tuple(_clear(job.source_calls, of_training=of_training))
    return OwnCode(calls, _command(job), made if loop == "transformers" else {})


def in_own_code(findings: Iterable[Finding], job: JobTimeline, loop: str) -> tuple[Finding, ...]:
    """The findings, with advice that shows its changes in the job's own code; the loop as in ``read_own_code``."""
    of_training, of_others = (read_own_code(job, loop, of_training=of_training) for of_training in (True, False))

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


def _command(job: JobTimeline) -> str:
    """By which the job was started, or its only process; of one rank of several it is not known."""
    root = next(iter(job.recording.processes.values()), None)
    if root is None or not _TYPED.fullmatch(root.command):
        return ""
    is_rank = job.processes.world_size > 1 and any(root.pid == trainer.pid for trainer in job.processes.trainers)
    return "" if is_rank else root.command


def located(accounts: Sequence[Account], cause: str, seconds: float) -> Amounts[str]:
    """The source lines of a cause; none where it is mostly elsewhere, in what workers take from the trainer's cores."""
    lines = Amounts.summed(account.lines.get(cause, {}) for account in accounts)
    return lines if lines.total >= thresholds.LINES_KNOWN * seconds else Amounts()


def called_by_job(accounts: Sequence[Account], cause: str, lines: Amounts[str]) -> Amounts[str]:
    """The lines of a cause without what the optimizer's step calls."""
    updates = Amounts.summed(account.of_updates(cause) for account in accounts)
    return Amounts({line: amount - updates[line] for line, amount in lines.items() if amount > updates[line]})


def done_afterwards(accounts: Sequence[Account]) -> tuple[tuple[str, float], ...]:
    """Functions that compute with tensors below the model's passes, each with its fraction of the wall time.

    That is metrics, copies of weights and the like. What calls it counts as well, where there is arithmetic at all.
    """
    computed, called = (
        Amounts.summed(account.afterwards.get(cause, {}) for account in accounts)
        for cause in (MODEL_COMPUTE, PYTHON_OVERHEAD)
    )
    seconds = sum(account.seconds for account in accounts)
    lines = Amounts.summed([computed, {line: called[line] for line in computed}])
    return parts_by_function(lines, seconds) if seconds else ()


def outside_torch(accounts: Sequence[Account]) -> tuple[tuple[str, float], ...]:
    """Functions that run Python or call libraries other than torch, each with its fraction of the wall time.

    What was taken for arithmetic there counts too: short as they are, their samples are mixed with those of the code
    before and after them.
    """
    found = Amounts.summed(
        {
            line: amount
            for line, amount in account.lines.get(cause, {}).items()
            if owner_of(line) in account.outside_torch
        }
        for account in accounts
        for cause in (MODEL_COMPUTE, PYTHON_OVERHEAD)
    )
    seconds = sum(account.seconds for account in accounts)
    return parts_by_function(found, seconds) if seconds else ()


def parts_by_function(lines: Amounts[str], total: float) -> tuple[tuple[str, float], ...]:
    """Functions, each with its part of all that the cause takes."""
    return tuple((line, part * lines.total / total) for line, part in by_function(lines))


def parts_by_loop(
    job: JobTimeline, called: Mapping[str, Amounts[str]], own: Mapping[str, Amounts[str]]
) -> Mapping[str, tuple[CostlyLoop, ...]] | None:
    """Loops, each with its part of all that a cause takes; None where no source was read that runs."""
    if job.recording.lacks(SourceLoop) or not _is_read(job):
        return None
    loops = OwnLoops(job.stacks, job.source_loops)
    return {cause: loops.of(lines, own[cause].total) for cause, lines in called.items()}


def drawn_before(job: JobTimeline, lines: Mapping[str, float]) -> float | None:
    """The part of some lines' time that follows a draw at random; None where no source was read that runs."""
    if job.recording.lacks(SourceDraw) or not _is_read(job):
        return None
    return part_after_draws(job.stacks, job.recording.rows(SourceDraw), lines)


def _is_read(job: JobTimeline) -> bool:
    return any(not line.changed for line in job.source_lines)
