"""The diagnosis for an agent: a text to read and values to count on, which together fit into its context.

The text is made from the same outline as the other reports, and the values are those of the JSON report, to six
digits: nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from textwrap import indent
from typing import Any

from perfdoctor.diagnosis import Diagnosis, Evidence, Fix
from perfdoctor.reports import compared_json
from perfdoctor.reports.cards import Card, ShownFix
from perfdoctor.reports.compared_outline import ComparedOutline, compared_outline
from perfdoctor.reports.fitting import ROOM, Section, fitted, short, short_lines, shortened, size_of_values, trimmed
from perfdoctor.reports.json import strict
from perfdoctor.reports.outline import SMALL_SHARE, Outline, RankBar, outline
from perfdoctor.reports.text import lower_first, sentence
from perfdoctor.reports.wording import worded, worded_fixes
from perfdoctor.results.comparison import Comparison

# So many of a kind are given as values; the JSON report has them all.
MOST_VALUES = 12
_DIGITS = 6  # significant ones of a number; judgement


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answers.

    Attributes:
        text: to read.
        values: the same in figures and ids, plain values only.
    """

    text: str
    values: dict[str, Any]


# The classes below describe the values. They have no slots: the SDK would take these for defaults.


@dataclass(frozen=True)
class ReportedVerdict:
    """The verdict as the JSON report has it; its summary is in the text."""

    bottleneck: str | None
    cause: str | None
    share: float | None
    confidence: float | None
    predicted_speedup: float | None
    straggler_rank: int | None
    level: str


@dataclass(frozen=True)
class ReportedShare:
    """A cause and the fraction of wall time that goes there."""

    cause: str
    share: float | None


@dataclass(frozen=True)
class ReportedFinding:
    """A finding in short; ``number`` names it to read_finding."""

    number: int
    cause: str
    severity: str
    share: float | None
    predicted_speedup: float | None


@dataclass(frozen=True)
class ReportedStuck:
    """What holds up a job that is stuck, and for how long nothing has moved, at least."""

    kind: str
    rank: int | None
    since_s: float | None
    confidence: float | None


@dataclass(frozen=True)
class ReportedDiagnosis:
    """The values of a diagnosis; ``diagnosis`` names it to other tools, ``stuck`` is null for a job that moves."""

    diagnosis: str
    verdict: ReportedVerdict
    stuck: ReportedStuck | None
    breakdown: list[ReportedShare]
    findings: list[ReportedFinding]
    not_examined: list[str]


@dataclass(frozen=True)
class ReportedEvidence:
    """A measured number, or a text where it is none."""

    name: str
    value: float | str | None
    unit: str
    probe: str


@dataclass(frozen=True)
class ReportedFix:
    """A change to make and the speed-up that it may be expected to bring; null where that cannot be computed.

    Attributes:
        speedup_range: what it brings at least and at most.
    """

    title: str
    predicted_speedup: float | None
    speedup_range: tuple[float | None, ...] | None


@dataclass(frozen=True)
class ReportedProof:
    """The values of one finding, all that it rests on."""

    diagnosis: str
    number: int
    cause: str
    severity: str
    share: float | None
    predicted_speedup: float | None
    ranks: list[int]
    evidence: list[ReportedEvidence]
    fixes: list[ReportedFix]


@dataclass(frozen=True)
class ReportedComparison:
    """The values of a comparison, as its JSON report has them; ``comparable`` is whether the paces may be compared."""

    comparable: bool
    answer: str
    pace: dict[str, Any] | None
    implied_speedup: dict[str, Any] | None
    causes: list[dict[str, Any]]
    prediction: dict[str, Any] | None


def tell(diagnosis: Diagnosis, name: str, next_move: str = "") -> ToolAnswer:
    """The verdict, what it rests on, what to do first, and what else was found.

    Args:
        diagnosis: what was found.
        name: what the agent calls it by.
        next_move: what to do where no bottleneck is named; "" where that is not known.
    """
    values = asdict(
        ReportedDiagnosis(
            diagnosis=name,
            verdict=_verdict(diagnosis),
            stuck=_stuck(diagnosis),
            breakdown=[
                ReportedShare(line.cause, _rounded(line.share))
                for line in diagnosis.breakdown[:MOST_VALUES]
                if not line.share < SMALL_SHARE
            ],
            findings=[
                ReportedFinding(number, one.cause, one.severity, _rounded(one.share), _rounded(one.predicted_speedup))
                for number, one in enumerate(diagnosis.findings[:MOST_VALUES], start=1)
            ],
            not_examined=list(dict.fromkeys(item.probe for item in diagnosis.not_examined))[:MOST_VALUES],
        )
    )
    return answer(_diagnosis(outline(diagnosis), name, next_move), values)


def tell_finding(diagnosis: Diagnosis, name: str, number: int) -> ToolAnswer:
    """One finding whole: its evidence, its changes as they are to be made, and what would refute it.

    Args:
        diagnosis: what was found.
        name: what the agent calls it by.
        number: of the finding, from 1.
    """
    finding = diagnosis.findings[number - 1]
    values = asdict(
        ReportedProof(
            diagnosis=name,
            number=number,
            cause=finding.cause,
            severity=finding.severity,
            share=_rounded(finding.share),
            predicted_speedup=_rounded(finding.predicted_speedup),
            ranks=list(finding.ranks[:MOST_VALUES]),
            evidence=[_evidence(item) for item in finding.evidence[:MOST_VALUES]],
            fixes=[_fix(fix) for fix in worded_fixes(finding)[:MOST_VALUES]],
        )
    )
    return answer(_finding(outline(diagnosis).cards[number - 1], number, worded(finding.summary)), values)


def tell_comparison(comparison: Comparison) -> ToolAnswer:
    """Whether the job became faster, where its time has gone, and what became of the predicted gain."""
    known = strict(compared_json.document(comparison))
    named = {name: known[name] for name in ("answer", "pace", "implied_speedup", "causes", "prediction")}
    values = ReportedComparison(comparable=not comparison.forbidding, **named)
    return answer(_comparison(compared_outline(comparison)), asdict(values))


def answer(sections: Iterable[Section], values: dict[str, Any]) -> ToolAnswer:
    """The text of sections, the most important first, and values, which have half of the room at most."""
    values = trimmed(shortened(values), ROOM // 2)
    return ToolAnswer(fitted(sections, ROOM - size_of_values(values)), values)


def _verdict(diagnosis: Diagnosis) -> ReportedVerdict:
    verdict = diagnosis.verdict
    return ReportedVerdict(
        verdict.bottleneck,
        verdict.cause,
        _rounded(verdict.share),
        _rounded(verdict.confidence),
        _rounded(verdict.predicted_speedup),
        verdict.straggler_rank,
        verdict.level,
    )


def _stuck(diagnosis: Diagnosis) -> ReportedStuck | None:
    stuck = diagnosis.stuck
    if stuck is None:
        return None
    return ReportedStuck(stuck.kind, stuck.rank, _rounded(stuck.since_s), _rounded(stuck.confidence))


def _evidence(item: Evidence) -> ReportedEvidence:
    value = _rounded(item.value) if isinstance(item.value, (int, float)) else worded(item.value)
    return ReportedEvidence(worded(item.name), value, item.unit, item.probe)


def _fix(fix: Fix) -> ReportedFix:
    brings, between = fix.predicted_speedup, fix.speedup_range
    rounded = None if between is None else tuple(map(_rounded, between))
    return ReportedFix(fix.title, None if brings is None else _rounded(brings), rounded)


def _rounded(value: float) -> float | None:
    """A number as JSON can say it, to six digits; whole ones in full."""
    if not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")


def _diagnosis(report: Outline, name: str, next_move: str) -> Iterator[Section]:
    """What is said of a diagnosis, the most important first."""
    known = "; ".join(f"{lower_first(label)}: {value}" for label, value in (*report.figures, *report.basis))
    yield Section("", (report.headline, *short_lines(report.summary, report.straggler, f"{sentence(known)}.")))
    if next_move := report.next_move or next_move:
        yield Section("Next move:", (short(next_move),))
    yield Section("Who stands where:", tuple(f"- {short(who)}: {short(where)}" for who, where in report.halts))
    if report.refuted_by:
        yield Section("It would be wrong if:", short_lines(report.refuted_by))
    rest = f"- […] read_finding {name} 1 has the rest"
    first = report.cards[:1] if report.bottleneck else ()
    for card in first:
        yield Section("Do this first:", _changes(card.changes[:1]), rest)
        yield Section("Evidence:", tuple(_rows(card)), rest)
        yield Section("Other changes:", tuple(f"- {short(change.title)}" for change in card.changes[1:]), rest)
        yield Section("It would be wrong if:", short_lines(card.refuted_by))
    shares = tuple(f"- {part.percent}: {lower_first(part.title)}" for part in report.breakdown)
    yield Section("Where the time goes:", shares)
    yield Section("Rank by rank:", tuple(map(_rank, _straggler_first(report.ranks))))
    others = enumerate(report.cards[len(first) :], start=len(first) + 1)
    yield Section("Other findings:", tuple(_in_short(card, number) for number, card in others))
    yield Section("Not examined:", tuple(f"- {short(_gap(*row))}" for row in report.not_examined))
    more = f"read_finding {name} NUMBER has all evidence and changes of a finding, and " if report.cards else ""
    yield Section("", (f"This diagnosis is {name}: {more}compare takes it by this name.",))


def _finding(card: Card, number: int, summary: str) -> Iterator[Section]:
    facts = [card.cause, card.severity, f"{card.share} of the time"]
    facts += [f"{card.gain} if fixed"] if card.gain else []
    facts += [card.ranks] if card.ranks else []
    yield Section("", (f"{number}. {card.title} ({short('; '.join(facts))})", *short_lines(summary)))
    yield Section("Evidence:", tuple(_rows(card)))
    yield Section("To change:", _changes(card.changes))
    yield Section("It would be wrong if:", short_lines(card.refuted_by))


def _comparison(report: ComparedOutline) -> Iterator[Section]:
    words = report.headings
    yield Section("", short_lines(report.headline, report.summary, report.warning, report.promise))
    yield Section("Pace:", tuple(f"- {name}: {value}" for name, value in report.figures))
    causes = (
        f"- {row.cause}: {row.before}, then {row.after}: {', '.join(filter(None, (row.change, row.answer)))}"
        for row in report.rows
    )
    yield Section(f"{words.time_goes}:", short_lines(*causes))
    for title, rows in (words.others, report.others), (words.runs, report.runs):
        lines = (f"- {name}: {words.before} {before}; {words.after} {after}" for name, before, after in rows)
        yield Section(f"{title}:", short_lines(*lines))


def _rows(card: Card) -> Iterator[str]:
    above = ""
    for name, value, probe in card.evidence:
        above = name or above
        yield f"- {short(above)}: {short(value)} ({short(probe)})"


def _changes(changes: Iterable[ShownFix]) -> tuple[str, ...]:
    """Changes in words, and each as it is to be made: whole, or left out."""
    items = []
    for change in changes:
        items.append("\n".join([f"- {short(change.headline)}", *(f"  {text}" for text in short_lines(change.why))]))
        items.append(indent(change.prose or change.code, "    "))
    return tuple(items)


def _in_short(card: Card, number: int) -> str:
    facts = [f"{card.share} of the time", card.severity]
    facts += [f"{card.gain} if fixed"] if card.gain else []
    return f"- {number}. {card.cause}, {card.title}: {short(', '.join(facts))}"


def _straggler_first(ranks: tuple[RankBar, ...]) -> list[RankBar]:
    return sorted(ranks, key=lambda rank: not rank.straggler)


def _rank(rank: RankBar) -> str:
    shares = ", ".join(f"{part.percent} {lower_first(part.title)}" for part in rank.parts)
    return f"- {rank.name}{' (straggler)' if rank.straggler else ''}: {short(shares)}"


def _gap(probe: str, reason: str, enable: str) -> str:
    return f"{probe}: {reason.rstrip('.')}." + (f" To enable: {enable}" if enable else "")
