"""The job's own source around the lines that cost most, as far as the recording holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfdoctor.recording.own_source import SOURCE_NOT_READ, SourceLine
from perfdoctor.results.activity import Excerpt, ExcerptLine, SourceView
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline

# So many lines are shown in their surroundings, of those that take a hundredth of the time and more.
_PLACES, _LEAST = 6, 0.01
_AROUND = 3  # lines above and below, as diffs show them by default
# Where no more lines than these lie between two stretches, they are one.
_GAP = 4
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+) (?P<function>.*)", re.DOTALL)


class _Place(NamedTuple):
    file: str
    line: int


@dataclass
class _Cost:
    """What goes to a line, by cause."""

    function: str = ""
    causes: Amounts[str] = field(default_factory=Amounts)


def read_source(job: JobTimeline, shares: Mapping[tuple[str, str], float]) -> SourceView:
    """What the recording holds of the source of the lines that cost most.

    Args:
        job: the job.
        shares: fraction of wall time by ``file:line function`` and cause.
    """
    costs = _by_place(shares)
    costly = (place for place, cost in costs.items() if cost.causes.total >= _LEAST)
    hot = sorted(costly, key=lambda place: -costs[place].causes.total)[:_PLACES]
    held = {_Place(row.file, row.line): row for row in job.source_lines}
    excerpts = [_excerpt(rows, costs) for rows in _stretches(held, hot)]
    reasons = {place.file: job.recording.facts.get((f"file:{place.file}", SOURCE_NOT_READ)) for place in hot}
    return SourceView(
        tuple(sorted(excerpts, key=lambda one: -one.share)),
        tuple((file, reason) for file, reason in reasons.items() if reason is not None),
    )


def _by_place(shares: Mapping[tuple[str, str], float]) -> dict[_Place, _Cost]:
    costs: dict[_Place, _Cost] = {}
    for (line, cause), share in shares.items():
        if found := _LINE.fullmatch(line):
            cost = costs.setdefault(_Place(found["file"], int(found["line"])), _Cost(found["function"]))
            cost.causes[cause] += share
    return costs


def _stretches(held: Mapping[_Place, SourceLine], hot: Iterable[_Place]) -> Iterator[list[SourceLine]]:
    """The lines around some lines, those that nearly follow each other together; none where none is held."""
    spans: list[tuple[str, int, int]] = []
    for file, line in sorted(hot):
        if spans and spans[-1][0] == file and line - _AROUND <= spans[-1][2] + _GAP + 1:
            spans[-1] = file, spans[-1][1], line + _AROUND
        else:
            spans.append((file, line - _AROUND, line + _AROUND))
    for file, first, last in spans:
        rows = [held[place] for number in range(first, last + 1) if (place := _Place(file, number)) in held]
        if rows:
            yield rows


def _excerpt(rows: Sequence[SourceLine], costs: Mapping[_Place, _Cost]) -> Excerpt:
    found = [costs.get(_Place(row.file, row.line), _Cost()) for row in rows]
    lines = tuple(
        ExcerptLine(
            row.line, row.text, cost.causes.total, max(cost.causes, key=lambda one: cost.causes[one], default="")
        )
        for row, cost in zip(rows, found, strict=True)
    )
    hottest = max(found, key=lambda cost: cost.causes.total)
    return Excerpt(rows[0].file, hottest.function, bool(rows[0].changed), lines)
