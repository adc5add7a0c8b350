"""What a report of a comparison says, ready to be laid out: console, page and Markdown differ in looks only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfdoctor.causes import CAUSES
from perfdoctor.comparison import (
    Answer,
    CauseChange,
    Comparison,
    Difference,
    Interval,
    Pace,
    Prediction,
    Promise,
    Run,
    Weight,
)
from perfdoctor.reports.outline import Rows
from perfdoctor.reports.text import clean, duration, fact, factor, number, percent, sentence, speedup

UNKNOWN = "unknown"
_TONES = {Answer.FASTER: "healthy", Answer.SLOWER: "bottleneck"}
_CAUSE_TONES = {Answer.FASTER: "good", Answer.SLOWER: "bad"}
_CAUSE_ANSWERS = {
    Answer.FASTER: "less",
    Answer.SLOWER: "more",
    Answer.SAME: "no difference can be shown",
    Answer.UNKNOWN: UNKNOWN,
}
_NAMES = {
    "world_size": "Ranks",
    "steps": "How steps are known",
    "settings.on_gpu": "On a GPU",
    "level": "How the time is accounted for",
    "perfdoctor": "perfdoctor",
    "torch": "PyTorch",
    "neighbour_cores": "Cores that others keep busy",
    "watched_seconds": "Seconds watched",
    "settings.workers": "Loader workers",
}
_WHY_FORBIDDEN = {
    "steps": "A profiler takes time of its own in each step.",
    "world_size": "A step of other ranks is other work.",
    "settings.on_gpu": "They did not run on the same kind of processor.",
}


@dataclass(frozen=True, slots=True)
class CauseRow:
    """What one cause costs.

    Attributes:
        before: in words.
        after: likewise.
        change: by how much more, with its interval.
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
class ComparedOutline:
    """A whole report.

    Attributes:
        headline: the answer in one line.
        tone: ``healthy`` where the job became faster, ``bottleneck`` where slower, ``unknown`` otherwise.
        summary: how sure that is.
        warnings: what forbids the comparison, or may explain the difference by itself; a sentence each.
        verdict: what is said of the limit that was given; "" where none was.
        figures: the pace in numbers.
        amounts: what the causes' amounts are.
        rows: the causes.
        promise: what became of the predicted gain; "" where none was predicted.
        promise_tone: ``good``, ``bad`` or ``open``.
        others: what else differs, as name, before and after.
        runs: facts about both runs, as name, before and after.
    """

    version: str
    headline: str
    tone: str
    summary: str
    warnings: tuple[str, ...]
    verdict: str
    figures: Rows
    amounts: str
    rows: tuple[CauseRow, ...]
    promise: str
    promise_tone: str
    others: tuple[tuple[str, str, str], ...]
    runs: tuple[tuple[str, str, str], ...]


def compared_outline(comparison: Comparison) -> ComparedOutline:
    """What a report of this comparison says."""
    pace = comparison.pace
    return ComparedOutline(
        version=clean(comparison.version),
        headline=_headline(comparison),
        tone=_TONES.get(pace.answer, "unknown") if pace else "unknown",
        summary=_how_sure(pace) if pace else _without_pace(comparison),
        warnings=tuple(_warnings(comparison)),
        verdict=_verdict(comparison),
        figures=_figures(pace) if pace else (),
        amounts="time per step" if pace else "share of wall time",
        rows=_rows(comparison),
        promise=_promise(comparison.prediction, pace) if comparison.prediction else "",
        promise_tone=_promise_tone(comparison.prediction),
        others=tuple(_named(one) for one in comparison.differences if one.weight is Weight.NOTED),
        runs=_runs(comparison.before, comparison.after),
    )


def _headline(comparison: Comparison) -> str:
    pace = comparison.pace
    if pace is None:
        paces = "The paces cannot be compared" if comparison.forbidding else "The pace is not known"
        return "; ".join((paces, *_changed_most(comparison)))
    steps = f"a step takes {duration(pace.after)} instead of {duration(pace.before)}"
    if pace.answer is Answer.FASTER:
        return f"{factor(pace.speedup.value)} faster: {steps}"
    if pace.answer is Answer.SLOWER:
        return f"{_longer(pace.speedup.value)} slower: {steps}"
    if pace.answer is Answer.SAME:
        return f"No difference can be shown: a step takes {duration(pace.before)} before, {duration(pace.after)} after"
    return f"How sure it is cannot be told: {steps}"


def _changed_most(comparison: Comparison) -> Iterator[str]:
    """The share that has changed most, beyond chance."""
    changed = [one for one in comparison.causes if one.answer in _CAUSE_TONES]
    if changed:
        most = max(changed, key=lambda one: abs(one.change.value))
        yield f"{_title(most.cause)} takes {percent(most.after)} of the time instead of {percent(most.before)}"


def _title(cause: str) -> str:
    """The words for a cause; its id where another version of perfdoctor knows it."""
    return CAUSES[cause].title if cause in CAUSES else clean(cause)


def _how_sure(pace: Pace) -> str:
    if pace.floor is None or pace.speedup.low is None or pace.speedup.high is None:
        return (
            "One of these reports says nothing of how much the run varies: it was made by an older perfdoctor, or saw "
            "less than two steps. From the recording it can be made anew: perfdoctor report RECORDING --json FILE.json"
        )
    between = (
        f"The speed-up lies between {factor(pace.speedup.low)} and {factor(pace.speedup.high)} with "
        f"{percent(pace.confidence)} confidence."
    )
    smaller = f"The noise floor is {percent(pace.floor)}: less cannot be told from what these runs vary by anyway."
    longer = " Longer runs on a quiet machine may lower it." if pace.answer is Answer.SAME else ""
    return f"{between} {smaller}{longer}"


def _without_pace(comparison: Comparison) -> str:
    if comparison.forbidding:
        found = " ".join(map(_forbidden, comparison.forbidding))
        return f"{found} Only shares of the time are compared."
    unknown = [clean(run.source) for run in (comparison.before, comparison.after) if run.steps is None]
    whose = "either run" if len(unknown) != 1 else unknown[0]
    implied = comparison.implied
    guess = "" if implied is None else f" If the model's own arithmetic takes what it took, it is {_speedup(implied)}."
    return (
        f"No step of {whose} was marked or traced, so that whether the job became faster was not seen. Only shares of "
        "the time are compared: where one falls the others rise, however long a step takes. With diagnose() in both "
        f"runs, or traces of both, the pace is known.{guess}"
    )


def _forbidden(one: Difference) -> str:
    name, before, after = _named(one)
    return f"{name}: {before} before, {after} after. {_WHY_FORBIDDEN[one.what]}"


def _warnings(comparison: Comparison) -> Iterator[str]:
    """What may explain a difference by itself; with a pace that cannot be compared the summary has said why."""
    explaining = [_named(one) for one in comparison.differences if one.weight is Weight.EXPLAINS]
    if explaining:
        listed = "; ".join(f"{name} ({before} before, {after} after)" for name, before, after in explaining)
        yield f"This is not the same in both runs, and may explain a difference by itself: {listed}."


def _named(one: Difference) -> tuple[str, str, str]:
    name = one.what.removeprefix("settings.")
    label = name.removeprefix("env.") if name.startswith("env.") else fact(name, "")[0]
    before, after = (("none" if text is None else clean(text)) for text in (one.before, one.after))
    return clean(_NAMES.get(one.what, label)), before, after


def _verdict(comparison: Comparison) -> str:
    """What is said of the limit."""
    limit, pace = comparison.limit, comparison.pace
    if limit is None:
        return ""
    allowed = f"{number(100 * limit)}% is allowed"
    if comparison.regressed is None or pace is None or pace.speedup.low is None:
        return f"Whether a step takes longer than allowed cannot be told; {allowed}."
    least, most = _longer(pace.speedup.high or 1.0), _longer(pace.speedup.low)
    if comparison.regressed:
        return f"Regression: a step takes {least} to {most} longer, and {allowed}."
    if 1 / pace.speedup.low - 1 > limit:
        return f"No regression is shown: a step may take {most} longer, but that is not sure; {allowed}."
    worst = f"at most {most} longer" if pace.speedup.low < 1 else "no longer"
    return f"No regression: a step takes {worst}, and {allowed}."


def _figures(pace: Pace) -> Rows:
    rows = [("Time per step, before", duration(pace.before)), ("Time per step, after", duration(pace.after))]
    rows += [("Steps per second, before", number(1 / pace.before)), ("Steps per second, after", number(1 / pace.after))]
    rows.append(("Speed-up", _speedup(pace.speedup)))
    rows.append(("Noise floor", UNKNOWN if pace.floor is None else percent(pace.floor)))
    return tuple(rows)


def _speedup(interval: Interval) -> str:
    """A speed-up with its interval."""
    between = interval.low is not None and interval.high is not None
    return factor(interval.value) + (f" ({factor(interval.low)} to {factor(interval.high)})" if between else "")


def _rows(comparison: Comparison) -> tuple[CauseRow, ...]:
    longest = max((max(one.before, one.after) for one in comparison.causes), default=0.0) or 1.0
    return tuple(_row(one, longest, per_step=comparison.pace is not None) for one in comparison.causes)


def _row(one: CauseChange, longest: float, *, per_step: bool) -> CauseRow:
    written = duration if per_step else percent
    return CauseRow(
        cause=clean(one.cause),
        title=sentence(_title(one.cause)),
        before=written(one.before),
        after=written(one.after),
        change=_changed(one, per_step=per_step),
        answer=_CAUSE_ANSWERS[one.answer],
        tone=_CAUSE_TONES.get(one.answer, "open"),
        bars=(100 * one.before / longest, 100 * one.after / longest),
    )


def _changed(one: CauseChange, *, per_step: bool) -> str:
    """By how much more it is, with its interval; shares in percentage points."""
    values = [one.change.value, one.change.low, one.change.high]
    told = [_signed(value, per_step=per_step) for value in values if value is not None]
    between = "" if len(told) < 3 else f" ({told[1]} to {told[2]})"
    return told[0] + between + ("" if per_step else " points")


def _signed(value: float, *, per_step: bool) -> str:
    if not per_step:
        return f"{100 * value:+.1f}"
    return f"{'-' if value < 0 else '+'}{duration(abs(value))}"


def _promise(prediction: Prediction, pace: Pace | None) -> str:
    least, most = speedup(prediction.least), speedup(prediction.most)
    promised = least if least == most else f"{least} to {most}"
    begin = f'For "{clean(prediction.fix)}" the run before predicted {promised}'
    if pace is None:
        return f"{begin}; whether that came true was not seen, since the pace cannot be compared."
    measured = _speedup(pace.speedup)
    return {
        Promise.KEPT: f"{begin}, and {measured} is measured: it came true.",
        Promise.LESS: f"{begin}, and {measured} is measured: less than predicted.",
        Promise.MORE: f"{begin}, and {measured} is measured: more than predicted.",
        Promise.NOT_SEEN: f"{begin}, and no gain is seen: it was not made, or does not help.",
        Promise.UNKNOWN: f"{begin}; {measured} is measured, which is too uncertain to tell.",
    }[prediction.promise]


def _promise_tone(prediction: Prediction | None) -> str:
    if prediction is None:
        return "open"
    return {Promise.KEPT: "good", Promise.MORE: "good", Promise.UNKNOWN: "open"}.get(prediction.promise, "bad")


def _runs(before: Run, after: Run) -> tuple[tuple[str, str, str], ...]:
    """Facts about both runs."""
    return tuple((name, *values) for name, *values in zip(_RUN_FACTS, _run(before), _run(after), strict=True))


_RUN_FACTS = ("File", "Kind", "Watched", "Steps", "How it is known", "First cause", "Verdict")


def _run(run: Run) -> tuple[str, ...]:
    return (
        clean(run.source),
        run.kind,
        duration(run.watched_s),
        UNKNOWN if run.steps is None else number(round(run.steps)),
        clean(run.level),
        "none named" if run.cause is None else clean(run.cause),
        clean(run.summary),
    )


def _longer(gain: float) -> str:
    """By how much longer a step takes: ``12%``; nothing is made of what is shorter."""
    more = 100 * (1 / gain - 1)
    return f"{more:.1f}%" if abs(more) < 10 else f"{more:.0f}%"
