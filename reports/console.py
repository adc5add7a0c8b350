"""The diagnosis for a terminal: the verdict in the first line, the proof below it."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.cards import Card
from perfdoctor.reports.language import can_write
from perfdoctor.reports.outline import BarSegment, Outline, RankBar, outline
from perfdoctor.reports.rows import Rows
from perfdoctor.reports.text import lower_first
from perfdoctor.reports.wording import label
from perfdoctor.reports.wrapping import wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_MIN_WIDTH = 40  # narrower, the tables' words break
_MAX_WIDTH = 110  # longer lines are hard to read
_EIGHTHS = "▏▎▍▌▋▊▉█"
_PLAIN = str.maketrans({"µ": "u", "\u00d7": "x", "\u2013": "-", "\u2014": "-", "\u2019": "'", "…": "..."})
TONES = {"bottleneck": "bold red", "healthy": "bold green", "unknown": "bold yellow"}  # of a headline
ROW_TONES = {"good": "green", "bad": "red", "open": "yellow"}
_SEVERITIES = {
    "high": "bold red",
    "medium": "yellow",
    "low": "cyan",
    "no bottleneck": "green",
    "unequal ranks": "yellow",
}
_KINDS = {"bottleneck": "red", "healthy": "green", "rest": "bright_black", "small": "bright_black"}
FAINT = "bright_black"


def render(diagnosis: Diagnosis, *, width: int | None, color: bool, encoding: str | None = None) -> str:
    """The diagnosis as text, ending in a line break.

    Args:
        diagnosis: what was found.
        width: columns; None for those of the terminal, or 80 where there is none.
        color: whether to use terminal colours.
        encoding: what the text will be written in; None for that of standard output. Where it lacks block
            characters the bars are drawn in ASCII, and any other character that it lacks is replaced.
    """
    blocks = can_write(_EIGHTHS, _encoding(encoding))
    report = _blocks(outline(diagnosis), _columns(width) // 3, blocks)
    return drawn(report, width=width, color=color, encoding=encoding)


def drawn(blocks: "Iterable[RenderableType]", *, width: int | None, color: bool, encoding: str | None) -> str:
    """Blocks of a report as text; the other arguments are those of ``render``. A bare Text is never wrapped."""
    from rich.text import Text

    encoding = _encoding(encoding)
    file = StringIO()
    console = _console(file, _columns(width), color)
    for block in blocks:
        console.print(block, soft_wrap=isinstance(block, Text))
    text = "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    if can_write(_EIGHTHS, encoding):
        return text
    return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)


def _encoding(encoding: str | None) -> str:
    return encoding or getattr(sys.stdout, "encoding", None) or "ascii"


def _columns(width: int | None) -> int:
    columns = shutil.get_terminal_size().columns if width is None else width
    return max(_MIN_WIDTH, min(columns, _MAX_WIDTH))


def _console(file: StringIO, columns: int, color: bool) -> "Console":
    """A console that reads no markup, and neither the environment nor the terminal."""
    from rich.console import Console

    return Console(
        file=file,
        width=columns,
        force_terminal=color,
        color_system="standard" if color else None,
        force_jupyter=False,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def _blocks(report: Outline, bar: int, blocks: bool) -> "Iterator[RenderableType]":
    """Everything on the page, top to bottom. A bare Text is never wrapped: it is to be searched or copied."""
    from rich.text import Text

    yield Text(report.headline, style=TONES[report.tone])
    yield ""
    yield indented(report.summary, 2)
    yield ""
    yield table((*report.figures, *report.basis))
    if report.halts:
        yield from _stuck(report)
    if report.breakdown:
        yield from heading(label("time_goes"))
        yield _bars(report.breakdown, bar, blocks)
    if report.ranks:
        yield from heading(label("rank_by_rank"))
        if report.groups and report.straggler:
            yield indented(report.straggler, 2)
        yield _ranks(report.ranks)
    if report.groups:
        yield from heading(label("alike"))
        yield _ranks(report.groups)
    brief = [card for card in report.cards[1:] if card.healthy or card.severity == "low"]
    for place, card in enumerate(report.cards, start=1):
        yield from _title(place, card)
        yield from _in_short(card) if card in brief else _in_full(card)
    if brief:
        yield ""
        yield indented(label("all_in_files"), 2, FAINT)
    yield from heading(label("not_examined"))
    yield from _not_examined(report)
    facts = (label("the_job"), report.job_in_short), *report.steps, (label("diagnosis_cost"), report.overhead)
    for title, rows in facts:
        if rows:
            yield from heading(title)
            yield table(rows)


def _stuck(report: Outline) -> "Iterator[RenderableType]":
    """Of a job that is stuck, who stands where, and what to do."""
    yield from heading(label("who_stands_where"))
    yield table(report.halts)
    yield from heading(label("what_to_do"))
    yield indented(report.next_move, 2, "green")
    yield indented(label("named", name=label("what_refutes"), value=report.refuted_by), 2, FAINT)


def heading(text: str) -> "Iterator[RenderableType]":
    """A line that begins a part of the report."""
    from rich.text import Text

    yield ""
    yield Text(text, style="bold")


def indented(text: str, indent: int, style: str = "") -> "RenderableType":
    """Text that is wrapped, so many columns from the left."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(wrapped(Text(text, style=style, overflow="fold")), (0, 0, 0, indent), expand=False)


def _grid(indent: int) -> "Table":
    """An empty table without lines, its first column empty."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=max(0, indent - 2))
    return grid


def _bars(parts: Iterable[BarSegment], width: int, blocks: bool) -> "RenderableType":
    from rich.text import Text

    grid = _grid(2)
    grid.add_column(width=width)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for part in parts:
        style = _KINDS[part.kind]
        grid.add_row("", Text(_bar(part.share, width, blocks), style=style), part.percent, Text(part.title))
    return grid


def _bar(share: float, width: int, blocks: bool) -> str:
    """A bar as long as the share of the width, at least one mark long."""
    if not blocks:
        return "#" * max(1, round(share * width))
    eighths = max(1, min(round(share * width * 8), width * 8))
    full, part = divmod(eighths, 8)
    return _EIGHTHS[7] * full + (_EIGHTHS[part - 1] if part else "")


def _ranks(ranks: Iterable[RankBar]) -> "RenderableType":
    from rich.text import Text

    grid = _grid(2)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for rank in ranks:
        shares = label("sequence", items=tuple(f"{part.percent} {lower_first(part.title)}" for part in rank.parts))
        late = (label("named", name=label("straggler"), value="") if rank.straggler else "", "bold red")
        shares = label("listed", items=(rank.waits, shares)) if rank.waits else shares
        name = label("aside", text=rank.name, more=rank.detail) if rank.detail else rank.name
        grid.add_row("", Text(name), wrapped(Text.assemble(late, shares)))
    return grid


def _title(place: int, card: Card) -> "Iterator[RenderableType]":
    from rich.text import Text

    facts = [card.cause, label("severity", severity=card.severity), label("of_the_time", share=card.share)]
    facts += [label("if_fixed", gain=card.gain)] if card.gain else []
    facts += [card.ranks] if card.ranks else []
    yield ""
    yield Text.assemble((f"{place}. {card.title}", "bold"))
    yield indented(label("listed", items=tuple(facts)), 3, _SEVERITIES.get(card.severity, ""))
    if card.summary:
        yield indented(card.summary, 3)


def _in_short(card: Card) -> "Iterator[RenderableType]":
    """Of what costs little: what to change, without how."""
    if card.changes:
        yield indented(label("to_change", titles=tuple(lower_first(change.headline) for change in card.changes)), 3)


def _in_full(card: Card) -> "Iterator[RenderableType]":
    from rich.text import Text

    if card.evidence:
        yield indented(label("evidence"), 3, "bold")
        yield _evidence(card)
    if card.changes:
        yield indented(label("what_to_change"), 3, "bold")
    for change in card.changes:
        yield indented(f"- {change.headline}", 5, "green")
        yield indented(change.why, 7)
        if change.prose:
            yield indented(change.prose, 9, "cyan")
        for line in change.code.split("\n") if change.code else ():
            yield Text(" " * 9 + line, style="cyan")
    if card.refuted_by:
        yield indented(label("what_refutes"), 3, "bold")
        yield indented(card.refuted_by, 5)


def _evidence(card: Card) -> "RenderableType":
    from rich.text import Text

    grid = _grid(5)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold", style=FAINT)
    for name, value, probe in card.evidence:
        grid.add_row("", wrapped(Text(name)), wrapped(Text(value)), Text(probe))
    return grid


def _not_examined(report: Outline) -> "Iterator[RenderableType]":
    if not report.not_examined:
        yield indented(label("nothing_left_out"), 2)
    for probe, reason, enable in report.not_examined:
        yield indented(label("named", name=probe, value=reason), 2)
        if enable:
            yield indented(label("to_enable", how=enable), 4, FAINT)


def table(rows: Rows) -> "RenderableType":
    """Names and values, side by side."""
    from rich.text import Text

    grid = _grid(2)
    grid.add_column(overflow="fold", style=FAINT)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row("", Text(name), wrapped(Text(value)))
    return grid
