"""What one rank does and the others do not, while they wait for it: found in the accounts, and shown in a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfdoctor.attribution.account import Account
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import Evidence, Finding, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.metrics.by_function import by_function
from perfdoctor.rules.case import Case, DoneAlone
from perfdoctor.rules.gains import with_gain
from perfdoctor.rules.rule import by_gain
from perfdoctor.rules.stragglers import late_rank
from perfdoctor.timeline.amounts import Amounts

# What code does wherever it runs: a read that only takes time on this rank is one that the others do too.
_COMPUTES = (PYTHON_OVERHEAD, MODEL_COMPUTE)


def find_done_alone(accounts: Sequence[Account]) -> DoneAlone | None:
    """What the late rank does alone; None where no rank is, or what it does alone is not why.

    What the others wait at is mostly the code that all of them run, at which the late one comes later: what made it
    late lies before that, in lines that only this rank is ever at. The model is the same on all ranks: where one is
    at it for longer, its batches are larger.
    """
    rank = late_rank(accounts, thresholds.MIN_SHARE)
    seen = [one for one in accounts if one.seconds]
    late = next((one for one in seen if one.rank == rank), None)
    others = [one for one in seen if one is not late]
    if rank is None or late is None or not others:
        return None
    theirs, passes = [_by_line(one) for one in others], late.in_passes()
    alone = Amounts(
        {
            line: part
            for line, part in _by_line(late).items()
            if line not in passes and max(one.get(line, 0.0) for one in theirs) <= thresholds.HARDLY_DONE * part
        }
    )
    waited = sum(one.waited_for()[rank] / one.seconds for one in others) / len(others)
    if alone.total < max(thresholds.MIN_SHARE, thresholds.MOSTLY * waited):
        return None
    lines = [(line, part) for line, part in by_function(alone) if part >= thresholds.NAMED_FUNCTION]
    if not lines:
        return None
    return DoneAlone(rank, tuple((line, part * alone.total) for line, part in lines), alone.total, waited)


def _by_line(account: Account) -> Mapping[str, float]:
    """Fractions of the trainer's wall time by lines of the job's own, as far as they compute something."""
    lines = Amounts.summed(account.lines.get(cause, {}) for cause in _COMPUTES)
    return {line: amount / account.seconds for line, amount in lines.items()}


def with_done_alone(found: Finding, case: Case) -> Finding:
    """The same finding with that, where code of the job's own is its cause."""
    alone = case.done_alone
    if alone is None or found.cause != PYTHON_OVERHEAD:
        return found
    shown = tuple(
        Evidence(say("finding.done_alone", rank=alone.rank), say("finding.part", what=line, part=part), "", "stacks")
        for line, part in alone.lines
    )
    advice = advise(
        "interpreter.done_alone",
        rank=alone.rank,
        lines=tuple(line for line, _ in alone.lines),
        share=alone.share,
        waited=alone.waited,
    )
    fixes = by_gain((with_gain(advice, case, found.cause), *found.fixes))
    return replace(found, evidence=(*found.evidence, *shown), fixes=fixes)
