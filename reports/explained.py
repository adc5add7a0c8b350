"""What a cause means, for a terminal and for docs/causes.md, from the same rows."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from perfdoctor.causes import CAUSES, Cause
from perfdoctor.reports.english.explanations import EXPLAINED
from perfdoctor.reports.text import percent, sentence

if TYPE_CHECKING:
    from rich.console import RenderableType

_PAGE_COLUMNS = 140
_RESOURCES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "communication": "Communication", None: "The rest"}
_EMPHASIS = re.compile(r"\*([^*]+)\*")


def render(cause: str, *, width: int | None, color: bool, encoding: str | None = None) -> str:
    """The explanation of a cause as text, ending in a line break.

    Args:
        cause: its id.
        width: columns; None for those of the terminal.
        color: whether to use terminal colours.
        encoding: what the text will be written in; None for that of standard output.

    Raises:
        KeyError: there is no such cause.
    """
    from rich.text import Text

    from perfdoctor.reports.console import drawn, heading, indented

    row, known = EXPLAINED[cause], CAUSES[cause]
    blocks: list[RenderableType] = [
        Text.assemble((cause, "bold"), f": {known.title}"),
        "",
        indented(_plain(row.means), 2),
    ]
    for title, text in (
        ("Looks like", row.looks_like),
        ("What helps", row.helps),
        ("What would prove it wrong", row.refuted and f"if {row.refuted}"),
        ("When it is named", _when(known)),
    ):
        if text:
            blocks += [*heading(title), indented(sentence(_plain(text)), 2)]
    return drawn(blocks, width=width, color=color, encoding=encoding)


def render_list(*, width: int | None, color: bool, encoding: str | None = None) -> str:
    """All causes with their titles, by resource; the arguments are those of ``render``."""
    from perfdoctor.reports.console import drawn, heading, table

    blocks: list[RenderableType] = []
    for bottleneck, name in _RESOURCES.items():
        rows = tuple((cause.id, cause.title) for cause in CAUSES.values() if cause.bottleneck == bottleneck)
        blocks += [*heading(name), table(rows)]
    return drawn(blocks[1:], width=width, color=color, encoding=encoding)


def paragraph(cause: str) -> str:
    """The explanation of a cause as a paragraph of docs/causes.md."""
    row = EXPLAINED[cause]
    parts = [f"**{cause}.** {row.means}"]
    parts += [f"*Looks like* {row.looks_like}"] if row.looks_like else []
    parts += [f"*Helps:* {row.helps}"] if row.helps else []
    parts += [f"*Refuted* if {row.refuted}"] if row.refuted else []
    return textwrap.fill(" ".join(parts), _PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def page(text: str) -> str:
    """A page with the paragraphs of all causes made anew; whatever else it says stays.

    Raises:
        ValueError: a cause has no paragraph in it, which would begin ``**cause.id.**``.
    """
    for cause in EXPLAINED:
        found = list(re.finditer(rf"^\*\*{re.escape(cause)}\.\*\*.*?(?=\n\n|\n?\Z)", text, re.MULTILINE | re.DOTALL))
        if len(found) != 1:
            raise ValueError(f"There are {len(found)} paragraphs about {cause}, not one.")
        text = text[: found[0].start()] + paragraph(cause) + text[found[0].end() :]
    return text


def _when(cause: Cause) -> str:
    """From what share on it is the bottleneck."""
    if cause.healthy:
        return "A job that spends its time here has no bottleneck."
    if cause.bottleneck is None:
        return ""
    gives_way = " It gives way to a specific cause that costs nearly as much." if cause.generic else ""
    return f"It can be the bottleneck from {percent(cause.minimum)} of the time on.{gives_way}"


def _plain(text: str) -> str:
    """Without the emphasis of Markdown."""
    return _EMPHASIS.sub(r"\1", text)
