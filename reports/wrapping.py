"""Wraps text in which words are not set apart by blanks: Han may be broken anywhere but at punctuation.

Rich breaks at blanks only, and would leave half of a line empty before a long sentence in Chinese.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement
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

        lines = self._text.divide(line_ends(self._text.plain, options.max_width))
        for line in lines:
            line.rstrip()
        yield Text("\n", style=self._text.style, overflow="fold").join(lines)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Called by Rich for a cell: the width of the longest piece, and of the whole."""
        from rich.cells import cell_len
        from rich.measure import Measurement

        pieces = [cell_len(piece.rstrip()) for piece in _PIECE.findall(self._text.plain)]
        return Measurement(max(pieces, default=0), cell_len(self._text.plain)).with_maximum(options.max_width)


def line_ends(text: str, width: int) -> list[int]:
    """Where to break a text into lines of so many columns; a word that is longer stays whole, in a line of its own."""
    from rich.cells import cell_len

    ends, line = [], ""
    for match in _PIECE.finditer(text):
        piece = match[0]
        if line and cell_len(line + piece.rstrip()) > width:
            ends.append(match.start())
            line = ""
        line += piece
    return ends


def lines_of(text: str, width: int) -> list[str]:
    """A text in lines of so many columns."""
    ends = [0, *line_ends(text, width), len(text)]
    return [text[begin:end].rstrip() for begin, end in pairwise(ends)]


def fitted(text: str, width: int, *, left: bool = True) -> str:
    """A text in so many columns of a terminal, of which a Han letter takes two; cut where it is too long.

    Args:
        text: one line.
        width: columns.
        left: it begins at the left; otherwise it ends at the right.
    """
    from rich.cells import cell_len, set_cell_size

    if left:
        return set_cell_size(text, width)
    while cell_len(text) > width:
        text = text[1:]
    return " " * (width - cell_len(text)) + text
