"""The first screen of the page: the verdict in a sentence, where a second goes, what to do first, what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import BACKWARD_PASSES, Diagnosis
from perfdoctor.reports.cards import ShownFix, finding_title, gain_between
from perfdoctor.reports.outline import Outline
from perfdoctor.reports.palette import Palette
from perfdoctor.reports.text import brief, clean, duration, percent, sentence, size
from perfdoctor.reports.wording import cause_goes, cause_title, label, page_words, worded, worded_fixes

SECOND_MS = 1000  # the waterfall shows where one second goes


@dataclass(frozen=True, slots=True)
class Slice:
    """A row of the waterfall.

    Attributes:
        ms: of one second; those of all rows sum to 1000.
        start: where it begins, in percent of the second.
        width: in percent.
    """

    title: str
    cause: str
    look: str
    ms: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class AdvisedChange:
    """A change, with all findings that it serves.

    Attributes:
        number: from 1, the one to make first.
        serves: titles of findings, and the numbers of their cards from 1.
    """

    number: int
    fix: ShownFix
    serves: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the first change does to one second of today's training.

    Attributes:
        after: what is left of it, in percent: expected, at least and at most.
        gain: how much faster the job becomes, in a sentence.
        becomes: what becomes of a second, with its range, and of a step where one was seen; likewise.
    """

    after: tuple[float, float, float]
    gain: str
    becomes: str


def verdict_sentence(diagnosis: Diagnosis, report: Outline) -> str:
    """The verdict in one sentence."""
    words, verdict = page_words(), diagnosis.verdict
    goes = _goes(diagnosis) if report.tone == "bottleneck" else ""
    if report.tone == "healthy" and report.first is not None:
        place, number = report.first
        gain = report.cards[place].changes[number].gain
        return str(words.WORDS["but_faster"].format(gain=gain))
    if not goes:
        return report.claim
    said = words.WORDS["of_time"].format(share=percent(verdict.share), goes=goes)
    if verdict.straggler_rank is None:
        return str(said)
    return str(words.WORDS["in_rank"].format(sentence=said, rank=verdict.straggler_rank))


def _goes(diagnosis: Diagnosis) -> str:
    """What happens in the time that the verdict's cause takes, after "62 % of the time"; "" if it is no bottleneck."""
    cause = diagnosis.verdict.cause
    if cause is None or CAUSES[cause].healthy:
        return ""
    found = diagnosis.verdict_finding
    if found is None or not found.title:
        return cause_goes(cause)
    return str(page_words().WORDS["goes_into"].format(title=finding_title(found)))


def subject(job: Mapping[str, Any]) -> str:
    """Which job it is about: its command, files by their names, or its traces, its host, and when it was watched."""
    traces = job.get("traces") or ()
    command = job.get("command") or ", ".join(map(str, traces)) if not isinstance(traces, str) else traces
    command = " ".join(word.rpartition("/")[2] if word.startswith("/") else word for word in str(command).split(" "))
    started = str(job.get("started") or "")[:16].replace("T", " ")
    parts = (command, job.get("host"), started)
    return " · ".join(brief(str(part), 110) for part in parts if part)


def waterfall(report: Outline, palette: Palette) -> tuple[Slice, ...]:
    """The breakdown in milliseconds of one second, which sum to it."""
    parts = report.breakdown
    whole = milliseconds([part.share for part in parts])
    found, start = [], 0.0
    for part, ms in zip(parts, whole, strict=True):
        width = ms / SECOND_MS * 100
        look = "more" if part.kind == "small" else palette.of(part.cause)
        found.append(Slice(part.title, part.cause, look, ms, round(start, 1), round(width, 1)))
        start += width
    return tuple(found)


def milliseconds(shares: Sequence[float]) -> list[int]:
    """Shares of one second in whole milliseconds that sum to 1000: those with the largest remainders are rounded up."""
    total = sum(shares)
    if total <= 0:
        return [0 for _ in shares]
    exact = [SECOND_MS * share / total for share in shares]
    whole = [int(amount) for amount in exact]
    by_rest = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in by_rest[: SECOND_MS - sum(whole)]:
        whole[place] += 1
    return whole


def changes_of(diagnosis: Diagnosis, report: Outline) -> tuple[list[AdvisedChange], tuple[tuple[int, ...], ...]]:
    """All changes, each once, those to make first in front; and of each finding the numbers of its changes."""
    told = [worded_fixes(finding) for finding in diagnosis.findings]
    places = [(place, number) for place, fixes in enumerate(told) for number in range(len(fixes))]
    numbers: dict[tuple[str, str], int] = {}
    for place, number in sorted(places, key=lambda at: (at != report.first, at != report.second)):
        fix = told[place][number]
        numbers.setdefault((fix.title, fix.change), len(numbers) + 1)
    by_card = tuple(tuple(numbers[fix.title, fix.change] for fix in fixes) for fixes in told)
    shown: dict[int, ShownFix] = {}
    serves: dict[int, list[tuple[int, str]]] = {}
    for place, number in places:
        change, card = by_card[place][number], report.cards[place]
        shown.setdefault(change, card.changes[number])
        serves.setdefault(change, []).append((place + 1, card.title))
    return [AdvisedChange(change, shown[change], tuple(serves[change])) for change in sorted(shown)], by_card


def prospect_of(fix: ShownFix, steps: Mapping[str, Any]) -> Prospect | None:
    """What a change brings; None where that is not known.

    Args:
        fix: the change.
        steps: what is known of the steps, as in a diagnosis.
    """
    if fix.after is None or not fix.gain:
        return None
    words = page_words().WORDS
    expected, least, most = fix.after
    ranged = duration(least) != duration(most)
    before = steps.get("median_s")
    becomes = words["one_second_becomes"].format(after=duration(expected))
    if ranged:
        becomes = label("aside", text=becomes, more=label("between", least=duration(least), most=duration(most)))
    gains = [becomes]
    if isinstance(before, (int, float)) and before > 0 and steps.get("unit") != BACKWARD_PASSES:
        gains.append(words["a_step"].format(before=duration(before), after=duration(before * expected)))
    return Prospect(
        after=(round(100 * expected, 1), round(100 * least, 1), round(100 * most, 1)),
        gain=label("full_stop", text=sentence(fix.gain)),
        becomes=label("full_stop", text=label("listed", items=tuple(gains))),
    )


def bounds(diagnosis: Diagnosis, first: AdvisedChange | None, prospect: Prospect | None) -> Iterable[str]:
    """What a first change can bring at most where no more is known, and what limits the job after it."""
    words, verdict = page_words().WORDS, diagnosis.verdict
    if first is None:
        return
    if prospect is None and (gain := gain_between(1.0, verdict.predicted_speedup)):
        yield words["up_to"].format(gain=gain)
    if verdict.cause is None or CAUSES[verdict.cause].healthy:
        return  # the model's own arithmetic, still
    others = [line for line in diagnosis.breakdown if line.cause != verdict.cause and line.share > 0]
    largest = max(others, key=lambda line: line.share, default=None)
    if largest is not None:
        yield words["next"].format(title=cause_title(largest.cause), share=percent(largest.share))


def rests_on(diagnosis: Diagnosis, span_s: float) -> Iterable[tuple[str, str, str]]:
    """What the verdict rests on: label, value, and a remark."""
    words, verdict, cost = page_words().WORDS, diagnosis.verdict, diagnosis.overhead
    if verdict.cause is not None:
        yield words["confidence"], percent(verdict.confidence), words["confidence_is"]
    yield words["known"], clean(worded(verdict.level)), ""
    watched = diagnosis.job.get("watched_seconds", span_s)
    if isinstance(watched, (int, float)) and watched > 0:
        yield words["watched"], duration(watched), ""
    cores, memory = cost.get("cpu_cores"), cost.get("memory_bytes")
    if isinstance(cores, (int, float)) and isinstance(memory, (int, float)):
        yield words["watching_cost"], words["cost"].format(cpu=percent(cores), memory=size(memory)), ""
