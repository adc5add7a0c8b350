"""Findings as reports show them: what was measured, what to change, what would refute it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Diagnosis, Evidence, Finding, Fix, Text
from perfdoctor.reports.places import Places
from perfdoctor.reports.text import clean, clean_lines, is_prose, percent, quantity, sentence, speedup
from perfdoctor.reports.wording import worded, worded_fixes


@dataclass(frozen=True, slots=True)
class Change:
    """A fix: what to change, why it helps here, and the change: in a sentence or as code, the other one is ""."""

    title: str
    why: str
    told: str
    code: str


@dataclass(frozen=True, slots=True)
class Card:
    """One finding.

    Attributes:
        evidence: rows of what was measured, the value, and the probe that saw it.
        ranks: e.g. ``ranks 0 and 3``; "" for a job of one trainer.
        summary: one sentence; "" where the verdict says it already.
    """

    title: str
    cause: str
    severity: str
    healthy: bool
    share: str
    speedup: str
    ranks: str
    summary: str
    evidence: tuple[tuple[str, str, str], ...]
    changes: tuple[Change, ...]
    refuted_by: str


def texts(diagnosis: Diagnosis) -> Iterator[str]:
    """The texts of a diagnosis in which lines of code may be named."""
    yield worded(diagnosis.verdict.summary)
    for finding in diagnosis.findings:
        yield worded(finding.summary)
        yield from (worded(item.value) for item in finding.evidence if not isinstance(item.value, (int, float)))
        for fix in worded_fixes(finding):
            yield from (fix.title, fix.why)


def card(finding: Finding, places: Places, *, said: Text) -> Card:
    """A finding as it is shown; ``said`` is the verdict's summary, which is not repeated."""
    cause = CAUSES[finding.cause]
    return Card(
        title=sentence(cause.title),
        cause=cause.id,
        severity="healthy" if cause.healthy else clean(finding.severity),
        healthy=cause.healthy,
        share=percent(finding.share),
        speedup="" if cause.healthy else speedup(finding.predicted_speedup),
        ranks=_ranks(finding.ranks),
        summary="" if finding.summary == said else places.shorten(clean(finding.summary)),
        evidence=_evidence(finding.evidence, places),
        changes=tuple(_change(fix, places) for fix in worded_fixes(finding)),
        refuted_by=clean(finding.refuted_by),
    )


def _evidence(items: Iterable[Evidence], places: Places) -> tuple[tuple[str, str, str], ...]:
    """Rows of a table; what has the same name as the row above it is not named again."""
    rows: list[tuple[str, str, str]] = []
    above = None
    for item in items:
        name = sentence(clean(item.name))
        rows.append(("" if name == above else name, places.shorten(quantity(item.value, item.unit)), clean(item.probe)))
        above = name
    return tuple(rows)


def _change(fix: Fix, places: Places) -> Change:
    change = clean_lines(fix.change)
    told, code = (change, "") if is_prose(change) else ("", change)
    pace = f" (up to {speedup(fix.predicted_speedup)})" if fix.predicted_speedup else ""
    return Change(places.shorten(clean(fix.title)) + pace, places.shorten(clean(fix.why)), told, code)


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return ""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
