"""Compares two runs of a job: its pace, what its causes cost, and whether the gain came true that was predicted."""

from __future__ import annotations

import math
from typing import NamedTuple

from perfdoctor import __version__
from perfdoctor.causes import CAUSES
from perfdoctor.compare.comparable import differences
from perfdoctor.compare.estimates import Estimate, Ratio, change, difference, estimate_both, estimate_costs, quotient
from perfdoctor.compare.side import Side
from perfdoctor.knowledge import thresholds
from perfdoctor.results.comparison import Answer, CauseChange, Comparison, Interval, Pace, Prediction, Promise, Weight


def compare(before: Side, after: Side, limit: float | None = None) -> Comparison:
    """Compares two runs.

    Args:
        before: the job as it was.
        after: the job as it is.
        limit: a step that takes longer by more than this fraction is a regression; None if nobody asks.
    """
    others = differences(before, after)
    forbidden = any(one.weight is Weight.FORBIDS for one in others)
    known = None if forbidden or before.pace is None or after.pace is None else (before.pace, after.pace)
    paces = None if known is None else estimate_both(*known)
    pace = None if known is None else _pace(*known)
    return Comparison(
        version=__version__,
        before=before.run,
        after=after.run,
        pace=pace,
        implied=_implied(before, after) if pace is None and not forbidden else None,
        causes=_causes(before, after, paces),
        differences=others,
        prediction=_prediction(before, pace),
        limit=limit,
        regressed=_regressed(pace, limit),
    )


def _pace(before: Ratio, after: Ratio) -> Pace:
    confidence = float(thresholds.COMPARED_CONFIDENCE)
    one, other = estimate_both(before, after)
    gain = difference(other.log(), one.log(), confidence)
    floor = None if gain.high is None else max(float(thresholds.NOISE_FLOOR), math.expm1(gain.high - gain.value))
    answer = _answer(gain.value, floor)
    speedup = _if_determined(gain.exp(), answer)
    return Pace(before.value, after.value, (tuple(before.each), tuple(after.each)), speedup, confidence, floor, answer)


def _answer(log_speedup: float, floor: float | None) -> Answer:
    if floor is None:
        return Answer.UNKNOWN
    if abs(log_speedup) <= math.log1p(floor):
        return Answer.SAME if floor <= thresholds.TELLING_FLOOR else Answer.UNKNOWN
    return Answer.FASTER if log_speedup > 0 else Answer.SLOWER


def _if_determined(found: Interval, answer: Answer) -> Interval:
    """An interval, without its ends where they say nothing."""
    return Interval(found.value) if answer is Answer.UNKNOWN else found


def _implied(before: Side, after: Side) -> Interval | None:
    """The speed-up if a step has as much of the model's own arithmetic as before: its share then grows with the pace.

    None where either run has too little of it, or was watched for too little.
    """
    healthy = [cause for cause in CAUSES if CAUSES[cause].healthy]
    shares = before.share(*healthy), after.share(*healthy)
    if min(share.value for share in shares) < thresholds.MIN_SHARE:
        return None
    found = quotient(*estimate_both(*shares), thresholds.COMPARED_CONFIDENCE, most=1.0)
    if found.low is None or found.high is None:
        return None
    floor = max(found.high / found.value, found.value / found.low) - 1
    return None if _answer(math.log(found.value), floor) is Answer.UNKNOWN else found


_Paces = tuple[Estimate, Estimate]


class _Scale(NamedTuple):
    """What costs are a part of.

    Attributes:
        whole: all of the wall time, or a step before.
        most: what a cost can be at most.
    """

    whole: float
    most: float = math.inf


def _causes(before: Side, after: Side, paces: _Paces | None) -> tuple[CauseChange, ...]:
    """What causes cost that matter in either run, the dearest first.

    Where several differences are looked at, one of them is soon found by chance: each is held real only with so much
    more confidence (Dunn 1961).
    """
    names = dict.fromkeys((*before.shares, *after.shares))
    most = {cause: max(side.shares.get(cause, 0.0) for side in (before, after)) for cause in names}
    causes = sorted((cause for cause in most if most[cause] >= thresholds.REPORTED_CAUSE), key=lambda one: -most[one])
    confidence = 1 - (1 - thresholds.COMPARED_CONFIDENCE) / max(1, len(causes))
    scale = _Scale(1.0, 1.0) if paces is None else _Scale(paces[0].value)
    return tuple(_change(cause, _costs(cause, before, after, paces), confidence, scale) for cause in causes)


def _costs(cause: str, before: Side, after: Side, paces: _Paces | None) -> tuple[Estimate, Estimate]:
    """Seconds per step of a cause in both runs, or its shares where the paces are not known."""
    if paces is not None and before.aligned and after.aligned:
        return estimate_costs(before.per_step(cause), after.per_step(cause))
    one, other = estimate_costs(before.share(cause), after.share(cause))
    return (one, other) if paces is None else (one.times(paces[0]), other.times(paces[1]))


def _change(cause: str, costs: tuple[Estimate, Estimate], confidence: float, scale: _Scale) -> CauseChange:
    found = change(*costs, confidence, scale.most)
    answer = _of_change(found, scale.whole)
    return CauseChange(cause, costs[0].value, costs[1].value, _if_determined(found, answer), answer)


def _of_change(found: Interval, whole: float) -> Answer:
    if found.low is None or found.high is None:
        return Answer.UNKNOWN
    if found.high < 0 and found.value <= -thresholds.NOISE_FLOOR * whole:
        return Answer.FASTER
    if found.low > 0 and found.value >= thresholds.NOISE_FLOOR * whole:
        return Answer.SLOWER
    return Answer.SAME if found.high - found.low <= thresholds.TELLING_CHANGE * whole else Answer.UNKNOWN


def _prediction(before: Side, pace: Pace | None) -> Prediction | None:
    """What the first fix against the first cause promised; None where no gain was computed."""
    fix = next((fix for fix in before.finding.get("fixes", ()) if fix.get("predicted_speedup") is not None), None)
    if fix is None:
        return None
    speedup = float(fix["predicted_speedup"])
    least, most = map(float, fix.get("speedup_range") or (speedup, speedup))
    changes_step = bool(fix.get("changes_step", False))
    promise = Promise.UNKNOWN if pace is None or changes_step else _promise(pace, least, most)
    return Prediction(str(before.finding["cause"]), str(fix["title"]), speedup, least, most, promise, changes_step)


def _promise(pace: Pace, least: float, most: float) -> Promise:
    """What became of a predicted range: it came true where it meets the interval of what was measured."""
    low, high = pace.speedup.low, pace.speedup.high
    if low is None or high is None:
        return Promise.UNKNOWN
    meets = low <= most and high >= least
    if pace.answer is Answer.SAME:
        return Promise.UNKNOWN if meets else Promise.NOT_SEEN
    if meets:
        return Promise.KEPT
    return Promise.MORE if low > most else Promise.LESS


def _regressed(pace: Pace | None, limit: float | None) -> bool | None:
    """Whether a step takes longer by more than the limit, wherever in the interval it lies.

    None where that is not known: also where it may, and the noise floor is above the limit, since a step that takes
    so much longer could hardly have been shown to.
    """
    if pace is None or limit is None or pace.floor is None or pace.speedup.low is None or pace.speedup.high is None:
        return None
    allowed = 1 / (1 + limit)
    if pace.answer is Answer.SLOWER and pace.speedup.high < allowed:
        return True
    return None if pace.speedup.low < allowed and pace.floor > limit else False
