"""What a report of a treatment says, ready to be laid out: the console and the page differ in layout only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.diagnosis import Advice, Fix
from perfdoctor.messages import Message, Text, say
from perfdoctor.reports.rows import Rows
from perfdoctor.reports.text import (
    clean,
    clean_lines,
    duration,
    factor,
    lower_first,
    number,
    percent,
    sentence,
    size,
    speedup,
)
from perfdoctor.reports.wording import label, worded, worded_fix
from perfdoctor.results.treatment import Control, Outcome, Speedup, Training, Treated, Trial

NOT_RUN = "-"
_TRAINING = {
    Training.IDENTICAL: say("treated.bit_identical"),
    Training.WITHIN_NOISE: say("treated.within_noise"),
    Training.DIFFERENT: say("treated.other_losses"),
    Training.UNKNOWN: say("treated.no_losses"),
    Training.UNTOUCHED: say("treated.untouched"),
    Training.ROUNDED: say("treated.rounded"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One change that was tried.

    Attributes:
        title: what was changed.
        code: the same in short.
        predicted: what the diagnosis predicts for it, or else what an end of its causes would bring.
        measured: the speed-up with its interval.
        verdict: what came of it, in one or two words.
        remark: what else is to be said.
        tone: ``good``, ``bad`` or ``open``.
    """

    title: str
    code: str
    predicted: str
    measured: str
    verdict: str
    remark: str
    tone: str


@dataclass(frozen=True, slots=True)
class TreatedOutline:
    """A whole report.

    Attributes:
        headline: what was gained, in one line.
        tone: ``healthy`` where something was, ``unknown`` otherwise.
        summary: how that was measured, and what follows.
        rows: changes by themselves, the most gain first.
        combined: changes together, each beside the best before it.
        left_out: changes for which there was no time, by their titles.
        not_asked: those that may round differently, and that nobody has asked for.
        by_hand: what the diagnosis advises beside these, each with what it is said to bring.
        permanent: of the best, what each change is and the lines that make it permanent.
        control: facts about the job as it is.
        spent: what the treatment cost.
    """

    headline: str
    tone: str
    summary: str
    rows: tuple[Row, ...]
    combined: tuple[Row, ...]
    left_out: tuple[str, ...]
    not_asked: tuple[str, ...]
    by_hand: tuple[str, ...]
    permanent: tuple[tuple[str, str, str], ...]
    patch: str
    control: Rows
    spent: Rows


def treated_outline(treated: Treated) -> TreatedOutline:
    """What a report of this treatment says."""
    tried = [trial for trial in treated.trials if trial.outcome is not Outcome.NOT_TRIED]
    left_out = [trial for trial in treated.trials if trial.outcome is Outcome.NOT_TRIED]
    inside = treated.inside
    rows = tuple(_row(trial, inside) for trial in tried)
    if not tried:  # what is said of all of them is said once
        rows = tuple(replace(_row(trial, inside), remark="") for trial in left_out)
    return TreatedOutline(
        headline=_headline(treated, tried),
        tone="healthy" if treated.best else "unknown",
        summary=_summary(treated, tried),
        rows=rows,
        combined=tuple(_row(trial, inside) for trial in treated.combined),
        left_out=tuple(_title(trial) for trial in left_out) if tried else (),
        not_asked=tuple(map(_title, treated.not_asked)),
        by_hand=tuple(map(_advised, treated.by_hand)),
        permanent=tuple(_permanent(worded_fix(one)) for one in treated.best.advice) if treated.best else (),
        patch=clean_lines(treated.patch) if treated.patch else "",
        control=_control_rows(treated.control, inside) if treated.control else (),
        spent=_spent_rows(treated),
    )


def _headline(treated: Treated, tried: list[Trial]) -> str:
    if treated.best and treated.best.measured:
        gained, title = factor(treated.best.measured.speedup), lower_first(_title(treated.best))
        return worded(say("treated.faster", factor=gained, title=title))
    if not tried:
        return worded(say("treated.nothing_tried"))
    if found := _unconfirmed(tried):
        measured = found.measured.speedup if found.measured else 1.0
        return worded(say("treated.not_confirmed", factor=factor(measured), title=lower_first(_title(found))))
    if all(trial.outcome is not Outcome.UNDECIDED for trial in tried):
        return worded(say("treated.nothing_helps"))
    return worded(say("treated.nothing_clear"))


def _unconfirmed(tried: list[Trial]) -> Trial | None:
    """The first that could be kept and was faster, though not when it was run once more."""
    return next((trial for trial in tried if trial.outcome is Outcome.FASTER and not trial.bound), None)


def _summary(treated: Treated, tried: list[Trial]) -> str:
    best = treated.best
    said: list[Text] = []
    if best and best.measured:
        said.append(_interval(best.measured, best.training or Training.UNKNOWN, treated.inside))
    elif not tried and treated.trials:
        said.append(treated.trials[0].detail)
    elif not tried:
        said.append(say("treated.nothing_to_try", inside=treated.inside))
    elif _unconfirmed(tried):
        said.append(say("treated.unclear", inside=treated.inside))
    elif any(trial.outcome is Outcome.UNDECIDED for trial in tried):
        said.append(say("treated.too_wide", inside=treated.inside))
    else:
        said.append(say("treated.code_is_next"))
    if treated.interrupted:
        said.append(say("treated.interrupted", inside=treated.inside))
    return label("text", sentences=tuple(map(clean, said)))


def _interval(measured: Speedup, training: Training, inside: bool) -> Message:
    return say(
        "treated.interval",
        low=factor(measured.low),
        high=factor(measured.high),
        runs=measured.runs,
        controls=measured.controls,
        training=_TRAINING[training],
        inside=inside,
    )


def _row(trial: Trial, inside: bool) -> Row:
    at_most = trial.bound and trial.outcome is Outcome.FASTER
    verdict = say("treated.at_most", factor="") if at_most else say("treated.outcome", outcome=trial.outcome.value)
    tone = "good" if trial.outcome is Outcome.FASTER else "open" if trial.outcome in _OPEN else "bad"
    remarks = [trial.detail] if trial.detail else []
    if trial.training in (Training.DIFFERENT, Training.WITHIN_NOISE, Training.ROUNDED) and not trial.bound:
        remarks.append(say("treated.sentence", text=sentence(worded(_TRAINING[trial.training]))))
    if trial.first_step_s is not None:
        remarks.append(say("treated.first_step_after", time=duration(trial.first_step_s)))
    if trial.bound:
        remarks.append(say("treated.nothing_to_keep"))
    remark = label("text", sentences=tuple(map(clean, remarks)))
    return Row(
        title=_title(trial),
        code=clean(trial.id),
        predicted=_predicted(trial),
        measured=_measured(trial.measured, inside),
        verdict=worded(verdict),
        remark=remark,
        tone=tone,
    )


_OPEN = (Outcome.UNDECIDED, Outcome.SAME, Outcome.NOT_TRIED)


def _predicted(trial: Trial) -> str:
    if trial.predicted is not None and not trial.bound:
        return speedup(trial.predicted)
    return NOT_RUN if trial.at_most is None else worded(say("treated.at_most", factor=speedup(trial.at_most)))


# An interval that goes that far says no more than that nothing is known; the JSON has it.
_WIDE = 10


def _measured(measured: Speedup | None, inside: bool) -> str:
    if measured is None:
        return NOT_RUN
    gained, low, high = map(factor, (measured.speedup, measured.low, measured.high))
    if measured.low is None or measured.high is None or measured.high > _WIDE * measured.speedup:
        return worded(say("treated.runs", factor=gained, runs=measured.runs, inside=inside))
    return worded(say("treated.runs_between", factor=gained, low=low, high=high, runs=measured.runs, inside=inside))


def _title(trial: Trial) -> str:
    titles = [clean(worded_fix(one).title) for one in trial.advice]
    if not titles:
        return worded(say("treated.as_it_is"))
    return worded(say("treated.together", titles=(titles[0], *map(lower_first, titles[1:]))))


def _advised(advice: Advice) -> str:
    title = clean(worded_fix(advice).title)
    return f"{title} ({speedup(advice.predicted_speedup)})" if advice.predicted_speedup else title


def _permanent(fix: Fix) -> tuple[str, str, str]:
    return clean(fix.title), clean(fix.why), clean_lines(fix.change)


def _control_rows(control: Control, inside: bool) -> Rows:
    steps = say("treated.after_warmup", steps=number(control.steps), warmup=number(control.warmup_steps))
    rows: list[tuple[Text, Text]] = [
        (say("labels.time_per_step"), say("treated.step_is", time=duration(control.step_s), what=control.step_is)),
        (say("treated.control_runs", inside=inside), number(control.runs)),
        (say("treated.steps_of_run", inside=inside), steps),
    ]
    if not inside:
        rows.append((say("treated.first_step"), duration(control.first_step_s)))
        rows.append((say("treated.memory"), size(control.memory_bytes)))
    if control.spread is not None:
        rows.insert(2, (say("treated.they_differ"), say("treated.deviation", spread=percent(control.spread))))
    if control.gpu_memory_bytes is not None:
        rows.append((say("treated.gpu_memory"), size(control.gpu_memory_bytes)))
    if control.deterministic is not None:
        rows.append((say("treated.losses"), say("treated.deterministic", same=control.deterministic)))
    return _worded(rows)


def _spent_rows(treated: Treated) -> Rows:
    spent = treated.spent
    rows: list[tuple[Text, Text]] = [
        (say("treated.runs_of_job", inside=treated.inside), number(spent["runs"])),
        (say("treated.time"), duration(spent["seconds"])),
    ]
    if treated.saved_aside:
        rows.append((say("treated.saves_aside"), label("sequence", items=tuple(map(clean, treated.saved_aside)))))
    return _worded(rows)


def _worded(rows: list[tuple[Text, Text]]) -> Rows:
    return tuple((worded(name), worded(value)) for name, value in rows)
