"""Puts a finding together: its share, severity and gain from the breakdown, its evidence from what was measured."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Evidence, Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.wording import percent

# From which share of wall time a cause is reported: the level at which the TensorBoard plugin and XProf speak
# of input, and from which Ascend's advisor calls a problem high.
REPORTED = 0.05
# gpuprof's warning and critical levels for stalls; XProf and TraceML call 20 % high, between the two.
MEDIUM = 0.15
HIGH = 0.30
# Below this a cause is never a verdict (``perfdoctor.rules.verdict.MIN_SHARE``): one piece of advice is enough for it.
_MINOR = 0.10
# A share this close to 1 would predict a speed-up beyond what the measurement can carry.
_SMALLEST_REST = 0.01


def severity(cause: str, share: float) -> str:
    """``high``, ``medium`` or ``low`` by share of wall time; ``none`` for a healthy cause."""
    if CAUSES[cause].healthy:
        return "none"
    if share >= HIGH:
        return "high"
    return "medium" if share >= MEDIUM else "low"


def finding(
    case: Case, cause: str, summary: str, numbers: Sequence[str], fixes: Iterable[Fix], refuted_by: str
) -> Finding:
    """A finding whose share is what the breakdown gave to its cause.

    Args:
        case: what was measured.
        cause: its id.
        summary: one sentence.
        numbers: names of the numbers to show as evidence where they were measured.
        fixes: the one to do first first; those with a predicted pace change places by it.
        refuted_by: the test that would prove the finding wrong.
    """
    share = case.share(cause)
    shown = [
        Evidence(f"wall time spent on {CAUSES[cause].title}", round(share, 4), "of the time", "breakdown")
    ]
    shown += [evidence for name in numbers for evidence in case.evidence(name)]
    ranks = case.culprits.get(cause, ()) if len(case.trainers) > 1 else ()
    if len(set(ranks)) < len(case.trainers):
        shown += [
            trainer.numbers["longer"] for rank in ranks for trainer in case.trainers
            if trainer.rank == rank and "longer" in trainer.numbers
        ]  # fmt: skip
    shown += [
        Evidence("where most of it is", text, "", "stacks") for text in _listed(case.lines.get(cause, ()))
    ]
    shown += [
        Evidence("on what most of it is", text, "", "threads") for text in _listed(case.paths.get(cause, ()))
    ]
    shown += [
        Evidence("operator that most of it is for", text, "", "trace")
        for text in _listed(case.operators.get(cause, ()))
    ]
    shown += [
        Evidence("kernel that takes most of it", text, "", "trace")
        for text in _listed(case.kernels.get(cause, ()))
    ]
    ordered = _by_pace(tuple(fixes))[: 1 if share < _MINOR else None]
    most = 1.0 if CAUSES[cause].healthy else freed(share)
    speedup = min(most, max((fix.predicted_speedup for fix in ordered if fix.predicted_speedup), default=most))
    return Finding(cause, share, severity(cause, share), speedup, summary, tuple(shown), ordered, refuted_by, ranks)


def freed(share: float, left: float = 0.0) -> float:
    """New pace over old pace where a share of the wall time is freed.

    Args:
        share: fraction of the wall time that the fix is about.
        left: fraction of the present wall time that the job takes at least even so, the next bottleneck.
    """
    return 1 / max(1 - share, min(left, 1.0), _SMALLEST_REST)


def _by_pace(fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes with those of a predicted pace in its order; the others keep their places."""
    ranked = iter(sorted((fix for fix in fixes if fix.predicted_speedup), key=_pace, reverse=True))
    return tuple(next(ranked) if fix.predicted_speedup else fix for fix in fixes)


def _pace(fix: Fix) -> float:
    return round(fix.predicted_speedup or 1.0, 1)  # what differs by less is as good: the first stays first


def bounded(found: Finding, pace: float) -> Finding:
    """The finding with its gain limited by the next bottleneck.

    Args:
        found: the finding.
        pace: what the fix leaves of the wall time at least, as a fraction.
    """
    return replace(
        found, predicted_speedup=max(1.0, min(found.predicted_speedup, 1 / max(pace, _SMALLEST_REST)))
    )


def _listed(items: Iterable[tuple[str, float]], most: int = 3) -> list[str]:
    """The first few of ``(what, fraction)`` as text."""
    return [f"{re.sub('^file:', '', what)} ({percent(part)})" for what, part in list(items)[:most]]
