"""A treatment for a terminal: what was gained in the first line, what was tried below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perfdoctor.messages import say
from perfdoctor.reports import console
from perfdoctor.reports.outline import outline
from perfdoctor.reports.treated_outline import Row, TreatedOutline, treated_outline
from perfdoctor.reports.wording import worded
from perfdoctor.reports.wrapping import wrapped
from perfdoctor.results.treatment import Treated

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def render(treated: Treated, *, width: int | None, color: bool, encoding: str | None = None) -> str:
    """The treatment as text, ending in a line break; the arguments are those of ``console.render``."""
    report = treated_outline(treated)
    diagnosed = outline(treated.diagnosis).headline
    return console.drawn(_blocks(treated, report, diagnosed), width=width, color=color, encoding=encoding)


def _blocks(treated: Treated, report: TreatedOutline, diagnosed: str) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(report.headline, style=console.TONES[report.tone])
    yield ""
    yield console.indented(report.summary, 2)
    if not treated.inside:  # there the whole diagnosis stands above
        yield console.indented(worded(say("treated.diagnosed", headline=diagnosed)), 2)
    if report.rows:
        yield from console.heading(worded(say("treated.tried")))
        yield _table(report.rows)
    if report.combined:
        yield from console.heading(worded(say("treated.combined")))
        yield _table(report.combined)
    if report.left_out:
        yield ""
        yield console.indented(worded(say("treated.no_time_for", titles=report.left_out, inside=treated.inside)), 2)
    if report.not_asked:
        yield ""
        yield console.indented(worded(say("treated.not_asked", titles=report.not_asked)), 2)
    if report.by_hand:
        yield ""
        yield console.indented(worded(say("treated.by_hand", titles=report.by_hand)), 2)
    if report.permanent:
        yield from console.heading(worded(say("treated.permanent")))
    for title, why, change in report.permanent:
        yield console.indented(f"- {title}", 2, "green")
        yield console.indented(why, 4)
        for line in change.split("\n"):
            yield Text(" " * 6 + line, style="cyan")
    for heading, rows in (say("treated.as_it_is"), report.control), (say("treated.cost"), report.spent):
        if rows:
            yield from console.heading(worded(heading))
            yield console.table(rows)


def _table(rows: Iterable[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for name in say("treated.change"), say("treated.predicted"), say("treated.measured"), say("treated.verdict"):
        table.add_column(worded(name), overflow="fold", header_style=console.FAINT)
    for row in rows:
        title = Text.assemble(row.title, (f"\n{row.remark}" if row.remark else "", console.FAINT))
        table.add_row(wrapped(title), row.predicted, row.measured, Text(row.verdict, style=console.ROW_TONES[row.tone]))
    return table
