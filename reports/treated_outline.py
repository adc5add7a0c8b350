"""What a report of a treatment says, ready to be laid out: the console and the page differ in looks only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.outline import Rows
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
from perfdoctor.reports.wording import worded, worded_fix
from perfdoctor.treatment import Control, Outcome, Speedup, Training, Treated, Trial

NOT_RUN = "-"
_TRAINING = {
    Training.IDENTICAL: "the losses are the same to the last bit",
    Training.WITHIN_NOISE: "the losses are the same within their noise",
    Training.DIFFERENT: "the losses are others",
    Training.UNKNOWN: "no losses were seen",
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
    permanent: tuple[tuple[str, str, str], ...]
    patch: str
    control: Rows
    spent: Rows


def treated_outline(treated: Treated) -> TreatedOutline:
    """What a report of this treatment says."""
    tried = [trial for trial in treated.trials if trial.outcome is not Outcome.NOT_TRIED]
    left_out = [trial for trial in treated.trials if trial.outcome is Outcome.NOT_TRIED]
    rows = tuple(map(_row, tried))
    if not tried:  # what is said of all of them is said once
        rows = tuple(replace(_row(trial), remark="") for trial in left_out)
    return TreatedOutline(
        headline=_headline(treated, tried),
        tone="healthy" if treated.best else "unknown",
        summary=_summary(treated, tried),
        rows=rows,
        combined=tuple(map(_row, treated.combined)),
        left_out=tuple(_title(trial) for trial in left_out) if tried else (),
        permanent=tuple(_permanent(worded_fix(one)) for one in treated.best.advice) if treated.best else (),
        patch=clean_lines(treated.patch) if treated.patch else "",
        control=_control_rows(treated.control) if treated.control else (),
        spent=_spent_rows(treated),
    )


def _headline(treated: Treated, tried: list[Trial]) -> str:
    if treated.best and treated.best.measured:
        return f"{factor(treated.best.measured.speedup)} faster, as measured: {lower_first(_title(treated.best))}"
    if not tried:
        return "Nothing was tried"
    if found := _unconfirmed(tried):
        measured = found.measured.speedup if found.measured else 1.0
        return f"{factor(measured)} faster when it was tried, but not confirmed: {lower_first(_title(found))}"
    if all(trial.outcome is not Outcome.UNDECIDED for trial in tried):
        return "Nothing that was tried makes this job faster"
    return "No change is clearly faster"


def _unconfirmed(tried: list[Trial]) -> Trial | None:
    """The first that could be kept and was faster, though not when it was run once more."""
    return next((trial for trial in tried if trial.outcome is Outcome.FASTER and not trial.bound), None)


def _summary(treated: Treated, tried: list[Trial]) -> str:
    best = treated.best
    said = []
    if best and best.measured:
        measured = best.measured
        said.append(
            f"Between {factor(measured.low)} and {factor(measured.high)} with 97% confidence, by "
            f"{measured.runs} runs that were made for this alone and {measured.controls} without it; "
            f"{_TRAINING[best.training or Training.UNKNOWN]}."
        )
    elif not tried and treated.trials:
        said.append(clean(worded(treated.trials[0].detail)))
    elif not tried:
        said.append("Nothing of what can be tried without touching the job's files helps against what takes its time.")
    elif _unconfirmed(tried):
        said.append("Further runs were not clear, or there was no time for them. More minutes help: --minutes.")
    elif any(trial.outcome is Outcome.UNDECIDED for trial in tried):
        said.append("Some intervals are too wide. More minutes help (--minutes), and a machine without neighbours.")
    else:
        said.append("The findings of the diagnosis have changes to the code itself.")
    if treated.interrupted:
        said.append("It was interrupted before all was tried.")
    return " ".join(said)


def _row(trial: Trial) -> Row:
    verdict = "at most" if trial.bound and trial.outcome is Outcome.FASTER else trial.outcome.value
    tone = "good" if trial.outcome is Outcome.FASTER else "open" if trial.outcome in _OPEN else "bad"
    remarks = [clean(worded(trial.detail))] if trial.detail else []
    if trial.training in (Training.DIFFERENT, Training.WITHIN_NOISE) and not trial.bound:
        remarks.append(sentence(_TRAINING[trial.training]) + ".")
    if trial.first_step_s is not None:
        remarks.append(f"The first step comes after {duration(trial.first_step_s)}.")
    if trial.bound:
        remarks.append("Shows what could be gained; nothing to keep.")
    title, code = _title(trial), clean(trial.id)
    return Row(title, code, _predicted(trial), _measured(trial.measured), verdict, " ".join(remarks), tone)


_OPEN = (Outcome.UNDECIDED, Outcome.SAME, Outcome.NOT_TRIED)


def _predicted(trial: Trial) -> str:
    if trial.predicted is not None and not trial.bound:
        return speedup(trial.predicted)
    return NOT_RUN if trial.at_most is None else f"at most {speedup(trial.at_most)}"


# An interval that goes that far says no more than that nothing is known; the JSON has it.
_WIDE = 10


def _measured(measured: Speedup | None) -> str:
    if measured is None:
        return NOT_RUN
    runs = f"{measured.runs} run{'' if measured.runs == 1 else 's'}"
    if measured.low is None or measured.high is None or measured.high > _WIDE * measured.speedup:
        return f"{factor(measured.speedup)} ({runs})"
    return f"{factor(measured.speedup)} ({factor(measured.low)} to {factor(measured.high)}, {runs})"


def _title(trial: Trial) -> str:
    titles = [clean(worded_fix(one).title) for one in trial.advice]
    return " and ".join([titles[0], *map(lower_first, titles[1:])]) if titles else "The job as it is"


def _permanent(fix: Fix) -> tuple[str, str, str]:
    return clean(fix.title), clean(fix.why), clean_lines(fix.change)


def _control_rows(control: Control) -> Rows:
    rows = [
        ("Time per step", f"{duration(control.step_s)} ({control.step_is})"),
        ("Runs without a change", number(control.runs)),
        ("Steps of each run", f"{number(control.steps)}, after {number(control.warmup_steps)} that are left out"),
        ("First step after", duration(control.first_step_s)),
        ("Memory", size(control.memory_bytes)),
    ]
    if control.spread is not None:
        rows.insert(2, ("They differ by", f"{percent(control.spread)} (standard deviation)"))
    if control.gpu_memory_bytes is not None:
        rows.append(("GPU memory", size(control.gpu_memory_bytes)))
    if control.deterministic is not None:
        rows.append(("Losses of these runs", "the same to the last bit" if control.deterministic else "differ"))
    return tuple(rows)


def _spent_rows(treated: Treated) -> Rows:
    spent = treated.spent
    rows = [("Runs of the job", number(spent["runs"])), ("Time", duration(spent["seconds"]))]
    if treated.saved_aside:
        rows.append(("Saves taken aside", ", ".join(map(clean, treated.saved_aside))))
    return tuple(rows)
