"""Where in the job's own code each cause lies: its lines, functions and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.by_function import by_function, owner_of
from perfdoctor.metrics.own_loops import CostlyLoop, OwnLoops
from perfdoctor.metrics.own_source import part_after_draws
from perfdoctor.recording.own_source import (
    SourceComprehension,
    SourceDraw,
    SourceLoop,
    SourceReadOut,
    lines_of,
)
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline


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


def only_read_out(job: JobTimeline, functions: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Those of some functions that do nothing but read values out of tensors, as far as their source says it."""
    places = {f"{file}:{number}" for file, number in lines_of(job.recording.rows(SourceReadOut))}
    return tuple(line for line, _ in functions if line.partition(" ")[0] in places)


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
    job: JobTimeline, accounts: Sequence[Account], called: Mapping[str, Amounts[str]], own: Mapping[str, Amounts[str]]
) -> Mapping[str, tuple[CostlyLoop, ...]] | None:
    """Loops, each with its part of all that a cause takes; None where no source was read that runs."""
    if job.recording.lacks(SourceLoop) or not _is_read(job):
        return None
    loops = OwnLoops(job.stacks, job.source_loops, job.recording.rows(SourceComprehension))
    beside = {PYTHON_OVERHEAD: Amounts.summed(account.computed_beside() for account in accounts)}
    return {cause: loops.of(lines, own[cause].total, beside.get(cause)) for cause, lines in called.items()}


def drawn_before(job: JobTimeline, lines: Mapping[str, float]) -> float | None:
    """The part of some lines' time that follows a draw at random; None where no source was read that runs."""
    if job.recording.lacks(SourceDraw) or not _is_read(job):
        return None
    return part_after_draws(job.stacks, job.recording.rows(SourceDraw), lines)


def _is_read(job: JobTimeline) -> bool:
    return any(not line.changed for line in job.source_lines)
