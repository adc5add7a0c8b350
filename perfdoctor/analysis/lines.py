"""Where in the job's own source each cause lies: its lines, functions and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.own_code import by_function
from perfdoctor.metrics.own_loops import CostlyLoop, OwnLoops
from perfdoctor.recording.own_source import SourceLoop
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


def parts_by_function(lines: Amounts[str], total: float) -> tuple[tuple[str, float], ...]:
    """Functions, each with its part of all that the cause takes."""
    return tuple((line, part * lines.total / total) for line, part in by_function(lines))


def parts_by_loop(
    job: JobTimeline, called: Mapping[str, Amounts[str]], own: Mapping[str, Amounts[str]]
) -> Mapping[str, tuple[CostlyLoop, ...]] | None:
    """Loops, each with its part of all that a cause takes; None where no source was read that runs."""
    if job.recording.lacks(SourceLoop) or not any(not line.changed for line in job.source_lines):
        return None
    loops = OwnLoops(job.stacks, job.recording.rows(SourceLoop))
    return {cause: loops.of(lines, own[cause].total) for cause, lines in called.items()}
