"""Wraps text in which words are not set apart by blanks: Han may be broken anywhere but at punctuation.

Rich breaks at blanks only, and would leave half of a line empty before a long sentence in Chinese.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

# A character of two columns with what may not begin the next line after it, or what may not end a line before it
# (Requirements for Chinese Text Layout, W3C, 3.1.3, Prohibition Rules for Line Start and Line End); else a word.
_WIDE = "\u2e80-\u9fff\uff00-\uffef"
_OPENING, _CLOSING = "（《「『“‘", "，。、；：！？）》」』”’…%"  # noqa: RUF001
_PIECE = re.compile(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*\s*")


def wrapped(text: Text) -> RenderableType:
    """The text, wrapped by these rules if it has such letters, and by Rich's own otherwise."""
    return _Paragraph(text) if re.search(f"[{_WIDE}]", text.plain) else text


class _Paragraph:
    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by Rich with the width that there is."""
        from rich.text import Text

        lines = "\n".join(lines_of(self._text.plain, options.max_width))
        yield Text(lines, style=self._text.style, overflow="fold")


def lines_of(text: str, width: int) -> list[str]:
    """The text in lines of so many columns; a word that is longer stays whole, in a line of its own."""
    from rich.cells import cell_len

    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]
