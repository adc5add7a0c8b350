"""What a report of a comparison says, ready to be laid out: console, page and Markdown differ in layout only."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.diagnosis import BACKWARD_PASSES
from perfdoctor.messages import Message, Text, say
from perfdoctor.reports.rows import Rows, setting_name
from perfdoctor.reports.text import clean, duration, fact, factor, number, percent, sentence, shown_cause, speedup
from perfdoctor.reports.wording import label, worded
from perfdoctor.results.comparison import (
    Answer,
    CauseChange,
    ComparedRun,
    Comparison,
    Difference,
    Interval,
    Pace,
    Prediction,
    Promise,
    Weight,
)

_TONES = {Answer.FASTER: "healthy", Answer.SLOWER: "bottleneck"}
_CAUSE_TONES = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
_PROMISE_TONES = {Promise.KEPT: "good", Promise.MORE: "good", Promise.UNKNOWN: "open"}

Beside = tuple[tuple[str, str, str], ...]
"""Rows of name, before and after."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """What one cause costs.

    Attributes:
        before: in words.
        after: likewise.
        change: by how much more, with its interval; "" where too little was watched to tell.
        answer: in some words.
        tone: ``good``, ``bad`` or ``open``.
        bars: lengths of two bars for before and after, 0 to 100.
    """

    cause: str
    title: str
    before: str
    after: str
    change: str
    answer: str
    tone: str
    bars: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Dots:
    """How the pace of one run varies, to be drawn: places on a line, 0 to 100.

    Attributes:
        name: of the run.
        places: of its stretches.
        mean: of the whole run.
        label: all of it in words.
    """

    name: str
    places: tuple[float, ...]
    mean: float
    label: str


@dataclass(frozen=True, slots=True)
class Headings:
    """Of the parts of a report, and of the columns of its tables."""

    dots: str
    time_goes: str
    predicted_gain: str
    others: str
    runs: str
    cause: str
    before: str
    after: str
    change: str
    answer: str


@dataclass(frozen=True, slots=True)
class ComparedOutline:
    """A whole report.

    Attributes:
        headline: the answer in one line.
        tone: ``healthy`` where the job became faster, ``bottleneck`` where slower, ``unknown`` otherwise.
        summary: how sure that is, or why it is not known.
        warning: what may explain a difference by itself; "" if nothing.
        verdict: what is said of the limit that was given; "" where none was.
        figures: the pace in numbers.
        dots: how it varies in each run; none where that is not known.
        rows: the causes.
        promise: what became of the predicted gain; "" where none was predicted.
        promise_tone: ``good``, ``bad`` or ``open``.
        others: what else differs.
        runs: facts about both runs.
    """

    version: str
    headline: str
    tone: str
    summary: str
    warning: str
    verdict: str
    figures: Rows
    dots: tuple[Dots, ...]
    rows: tuple[CauseRow, ...]
    promise: str
    promise_tone: str
    others: Beside
    runs: Beside
    headings: Headings


def compared_outline(comparison: Comparison) -> ComparedOutline:
    """What a report of this comparison says."""
    pace, predicted = comparison.pace, comparison.prediction
    return ComparedOutline(
        version=clean(comparison.version),
        headline=clean(_headline(comparison)),
        tone=_TONES.get(pace.answer, "unknown") if pace else "unknown",
        summary=clean(_how_sure(pace, comparison.before.step_is) if pace else _without_pace(comparison)),
        warning=_warning(comparison),
        verdict=clean(_verdict(comparison)) if comparison.limit is not None else "",
        figures=_figures(pace) if pace else (),
        dots=_dots(pace) if pace and pace.floor is not None else (),
        rows=_rows(comparison),
        promise=clean(_promise(predicted, pace)) if predicted else "",
        promise_tone=_PROMISE_TONES.get(predicted.promise, "bad") if predicted else "open",
        others=tuple(_named(one) for one in comparison.differences if one.weight is Weight.NOTED),
        runs=_runs(comparison.before, comparison.after),
        headings=_headings(per_step=pace is not None),
    )


def _headings(*, per_step: bool) -> Headings:
    return Headings(
        dots=worded(say("compared.dots")),
        time_goes=worded(say("compared.time_goes", per_step=per_step)),
        predicted_gain=worded(say("compared.predicted_gain")),
        others=worded(say("compared.others")),
        runs=worded(say("compared.runs")),
        cause=worded(say("compared.cause")),
        before=worded(say("compared.before")),
        after=worded(say("compared.after")),
        change=worded(say("compared.change")),
        answer=worded(say("compared.answer")),
    )


def _headline(comparison: Comparison) -> Message:
    pace = comparison.pace
    if pace is None:
        said = say("compared.not_comparable") if comparison.forbidding else say("compared.unknown_pace")
        return _with_share(said, comparison)
    before, after = duration(pace.before), duration(pace.after)
    if pace.answer is Answer.FASTER:
        return say("compared.faster", factor=factor(pace.speedup.value), before=before, after=after)
    if pace.answer is Answer.SLOWER:
        return say("compared.slower", longer=_longer(pace.speedup.value), before=before, after=after)
    if pace.answer is Answer.SAME:
        return say("compared.same", before=before, after=after)
    return say("compared.unsure", before=before, after=after)


def _with_share(said: Message, comparison: Comparison) -> Message:
    """A sentence, and the share that has changed most, where one has beyond chance."""
    changed = [one for one in comparison.causes if one.answer in _CAUSE_TONES]
    if not changed:
        return said
    most = max(changed, key=lambda one: abs(one.change.value))
    shares = percent(most.before), percent(most.after)
    return say("compared.and_share", said=said, cause=shown_cause(most.cause), before=shares[0], after=shares[1])


def _how_sure(pace: Pace, step_is: str) -> Message:
    if pace.floor is None:
        return say("compared.no_interval")
    if pace.answer is Answer.UNKNOWN:
        return say("compared.too_little")
    return say(
        "compared.interval",
        low=factor(pace.speedup.low),
        high=factor(pace.speedup.high),
        confidence=percent(pace.confidence),
        floor=percent(pace.floor),
        longer=pace.answer is Answer.SAME,
        passes=step_is == BACKWARD_PASSES,
    )


def _without_pace(comparison: Comparison) -> Message:
    if comparison.forbidding:
        return say("compared.only_shares", forbidden=tuple(map(_forbidden, comparison.forbidding)))
    unknown = [clean(run.source) for run in (comparison.before, comparison.after) if run.steps is None]
    implied = None if comparison.implied is None else _speedup(comparison.implied)
    return say("compared.no_steps", source=unknown[0] if len(unknown) == 1 else None, implied=implied)


def _forbidden(one: Difference) -> Message:
    name, before, after = _named(one)
    return say("compared.forbidden", what=one.what, name=name, before=before, after=after)


def _warning(comparison: Comparison) -> str:
    """What may explain a difference by itself; what forbids the comparison stands in the summary."""
    explaining = tuple(_named(one) for one in comparison.differences if one.weight is Weight.EXPLAINS)
    warnings = [say("compared.explaining", differences=explaining)] if explaining else []
    warnings += [say("compared.other_work")] if comparison.may_be_other_work else []
    return clean(say("compared.warnings", said=tuple(warnings))) if warnings else ""


def _named(one: Difference) -> tuple[str, str, str]:
    name = one.what.removeprefix("settings.")
    shown = setting_name(name) if name != one.what else fact(name, "")[0]
    before, after = (clean(_value(one.what, text)) for text in (one.before, one.after))
    return clean(say("compared.name", what=one.what, label=shown)), before, after


def _value(what: str, text: str | None) -> Text:
    if text is None:
        return say("compared.nothing")
    return say("compared.step_is", what=text) if what == "steps" else text


def _verdict(comparison: Comparison) -> Message:
    """What is said of the limit."""
    limit, pace = comparison.limit or 0.0, comparison.pace
    allowed = f"{number(100 * limit)}%"
    if pace is None or pace.floor is None or pace.speedup.low is None or pace.speedup.high is None:
        return say("compared.cannot_tell", allowed=allowed)
    if comparison.regressed is None:
        floor, most = percent(pace.floor), _longer(pace.speedup.low)
        return say("compared.hidden_by_noise", most=most, floor=floor, allowed=allowed)
    least, most = _longer(pace.speedup.high), _longer(pace.speedup.low)
    if comparison.regressed:
        return say("compared.regression", least=least, most=most, allowed=allowed)
    if 1 / pace.speedup.low - 1 > limit:
        return say("compared.unsure_regression", most=most, allowed=allowed)
    return say("compared.no_regression", most=most if pace.speedup.low < 1 else None, allowed=allowed)


def _figures(pace: Pace) -> Rows:
    unknown = worded(say("compared.unknown"))
    floor = None if pace.answer is Answer.UNKNOWN else pace.floor
    return (
        (worded(say("compared.time_before")), duration(pace.before)),
        (worded(say("compared.time_after")), duration(pace.after)),
        (worded(say("compared.pace_before")), number(1 / pace.before)),
        (worded(say("compared.pace_after")), number(1 / pace.after)),
        (worded(say("compared.speedup")), _speedup(pace.speedup)),
        (worded(say("compared.noise_floor")), unknown if floor is None else percent(floor)),
    )


def _dots(pace: Pace) -> tuple[Dots, ...]:
    """Both runs on one line, with some room at its ends."""
    low, high = (bound(bound(batches) for batches in pace.batches) for bound in (min, max))
    room = (high - low) or high
    begin, length = low - 0.05 * room, 1.1 * room

    def place(seconds: float) -> float:
        return 100 * (seconds - begin) / length

    def dots(name: str, mean: float, batches: tuple[float, ...]) -> Dots:
        ends = duration(min(batches)), duration(max(batches))
        label = say("compared.dots_in_words", name=name, mean=duration(mean), least=ends[0], most=ends[1])
        return Dots(name, tuple(map(place, batches)), place(mean), worded(label))

    before, after = worded(say("compared.before")), worded(say("compared.after"))
    return dots(before, pace.before, pace.batches[0]), dots(after, pace.after, pace.batches[1])


def _speedup(interval: Interval) -> str:
    """A speed-up with its interval."""
    low, high = (None if end is None else factor(end) for end in (interval.low, interval.high))
    return _between(factor(interval.value), low, high)


def _between(value: str, low: str | None, high: str | None) -> str:
    return value if low is None or high is None else worded(say("compared.between", value=value, low=low, high=high))


def _rows(comparison: Comparison) -> tuple[CauseRow, ...]:
    longest = max((max(one.before, one.after) for one in comparison.causes), default=0.0) or 1.0
    return tuple(_row(one, longest, per_step=comparison.pace is not None) for one in comparison.causes)


def _row(one: CauseChange, longest: float, *, per_step: bool) -> CauseRow:
    written = duration if per_step else percent
    return CauseRow(
        cause=clean(one.cause),
        title=sentence(shown_cause(one.cause)),
        before=written(one.before),
        after=written(one.after),
        change="" if one.answer is Answer.UNKNOWN else _changed(one.change, per_step=per_step),
        answer=worded(say("compared.costs", answer=one.answer.value)),
        tone=_CAUSE_TONES.get(one.answer, "open"),
        bars=(100 * one.before / longest, 100 * one.after / longest),
    )


def _changed(change: Interval, *, per_step: bool) -> str:
    """By how much more it is, with its interval; shares in percentage points."""
    ends = (None if end is None else _signed(end, per_step=per_step) for end in (change.low, change.high))
    change_s = _between(_signed(change.value, per_step=per_step), *ends)
    return change_s if per_step else worded(say("compared.points", change=change_s))


def _signed(value: float, *, per_step: bool) -> str:
    if not per_step:
        return f"{100 * value:+.1f}"
    return f"{'-' if value < 0 else '+'}{duration(abs(value))}"


def _promise(prediction: Prediction, pace: Pace | None) -> Message:
    least, most = speedup(prediction.least), speedup(prediction.most)
    predicted = least if least == most else worded(say("compared.from_to", low=least, high=most))
    fix = clean(prediction.fix)
    if pace is None:
        return say("compared.promise_unseen", fix=fix, predicted=predicted)
    if prediction.changes_step:
        return say("compared.promise_in_samples", fix=fix, predicted=predicted)
    measured, outcome = _speedup(pace.speedup), prediction.promise.value
    return say("compared.promise", fix=fix, predicted=predicted, measured=measured, outcome=outcome)


def _runs(before: ComparedRun, after: ComparedRun) -> Beside:
    """Facts about both runs."""
    both = zip(_run(before), _run(after), strict=True)
    return tuple((name, one, other) for (name, one), (_, other) in both)


def _run(run: ComparedRun) -> Rows:
    unknown = worded(say("compared.unknown"))
    return (
        (worded(say("compared.file")), clean(run.source)),
        (worded(say("compared.kind")), worded(run.kind)),
        (worded(say("compared.watched")), duration(run.watched_s)),
        (worded(say("compared.steps")), unknown if run.steps is None else _steps(run.steps, run.step_is)),
        (worded(say("compared.level")), clean(worded(run.level))),
        (worded(say("compared.first_cause")), clean(run.cause or say("compared.no_cause"))),
        (worded(say("compared.verdict")), clean(run.summary)),
    )


def _steps(count: float, step_is: str) -> str:
    known = [worded(say("compared.step_is", what=step_is))] if step_is else []
    return label("listed", items=(number(round(count)), *known))


def _longer(gain: float) -> str:
    """By how much longer a step takes, ``12%``."""
    more = 100 * (1 / gain - 1)
    return f"{more:.1f}%" if abs(more) < 10 else f"{more:.0f}%"
