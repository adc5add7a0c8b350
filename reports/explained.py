"""What a cause means, for a terminal and for docs/causes.md, from the same rows."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from perfdoctor.causes import CAUSES, Cause
from perfdoctor.messages import say
from perfdoctor.reports.english.causes import EXPLAINED
from perfdoctor.reports.text import percent, sentence
from perfdoctor.reports.wording import cause_title, explained_cause, explained_words, worded

if TYPE_CHECKING:
    from rich.console import RenderableType

_PAGE_COLUMNS = 140  # as the other pages of docs/ are wrapped
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

    words, row, known = explained_words(), explained_cause(cause), CAUSES[cause]
    blocks: list[RenderableType] = [
        Text.assemble((cause, "bold"), f": {cause_title(cause)}"),
        "",
        indented(_plain(row.means), 2),
    ]
    for title, text in (
        (words.TITLES["looks_like"], row.looks_like),
        (words.TITLES["helps"], row.helps),
        (words.TITLES["refuted"], row.refuted and worded(say("explained.refuted", what=row.refuted))),
        (words.TITLES["named"], _when(known)),
    ):
        if text:
            blocks += [*heading(title), indented(sentence(_plain(text)), 2)]
    return drawn(blocks, width=width, color=color, encoding=encoding)


def render_list(*, width: int | None, color: bool, encoding: str | None = None) -> str:
    """All causes with their titles, by resource; the arguments are those of ``render``."""
    from perfdoctor.reports.console import drawn, heading, table

    blocks: list[RenderableType] = []
    for bottleneck, name in explained_words().RESOURCES.items():
        rows = tuple((cause.id, cause_title(cause.id)) for cause in CAUSES.values() if cause.bottleneck == bottleneck)
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
        return worded(say("explained.healthy"))
    if cause.bottleneck is None:
        return ""
    return worded(say("explained.named", share=percent(cause.minimum), generic=cause.generic))


def _plain(text: str) -> str:
    """Without the emphasis of Markdown."""
    return _EMPHASIS.sub(r"\1", text)
