"""A comparison for a terminal: the answer in the first line, what it rests on below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfdoctor.reports import console
from perfdoctor.reports.compared_outline import ComparedOutline, compared_outline
from perfdoctor.results.comparison import Comparison

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def render(comparison: Comparison, *, width: int | None, color: bool, encoding: str | None = None) -> str:
    """The comparison as text, ending in a line break; the arguments are those of ``console.render``."""
    return console.drawn(_blocks(compared_outline(comparison)), width=width, color=color, encoding=encoding)


def _blocks(report: ComparedOutline) -> Iterator[RenderableType]:
    from rich.text import Text

    headings = report.headings
    yield Text(report.headline, style=console.TONES[report.tone])
    yield ""
    yield console.indented(report.summary, 2)
    if report.warning:
        yield console.indented(report.warning, 2, "yellow")
    if report.verdict:
        yield console.indented(report.verdict, 2)
    if report.figures:
        yield ""
        yield console.table(report.figures)
    if report.rows:
        yield from console.heading(headings.time_goes)
        yield _causes(report)
    if report.promise:
        yield from console.heading(headings.predicted_gain)
        yield console.indented(report.promise, 2, console.ROW_TONES[report.promise_tone])
    if report.others:
        yield from console.heading(headings.others)
        yield _table(("", headings.before, headings.after), report.others)
    yield from console.heading(headings.runs)
    yield _table(("", headings.before, headings.after), report.runs)


def _causes(report: ComparedOutline) -> Table:
    from rich.text import Text

    names = report.headings
    return _table(
        (names.cause, names.before, names.after, names.change, ""),
        (
            (row.title, row.before, row.after, row.change, Text(row.answer, style=console.ROW_TONES[row.tone]))
            for row in report.rows
        ),
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for name in headings:
        table.add_column(name, overflow="fold", header_style=console.FAINT)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
