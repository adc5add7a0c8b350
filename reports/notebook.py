"""The diagnosis as a notebook shows it: what the console shows, as a small piece of HTML that needs nothing else."""

from __future__ import annotations

from io import StringIO

from perfdoctor.diagnosis import Diagnosis

NOT_YET = "<p>perfdoctor: there is no diagnosis yet.</p>"

_COLUMNS = 100  # fits the cell of a notebook beside its margin
# Colours that can be read on white and on a dark page alike: red, green, yellow, blue, magenta, cyan and grey.
_RED, _GREEN, _YELLOW, _BLUE = (208, 64, 56), (38, 139, 84), (168, 120, 10), (60, 118, 200)
_MAGENTA, _CYAN, _GREY = (168, 84, 168), (20, 134, 160), (124, 124, 124)
_COLOURS = [_GREY, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _GREY]
# Neither ground nor colour of the text: those of the notebook.
_FRAME = '<pre style="font-family: monospace; line-height: 1.3; white-space: pre; overflow-x: auto">{code}</pre>'


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as HTML; whatever it says is escaped."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    from perfdoctor.reports import console

    shown = console.render(diagnosis, width=_COLUMNS, color=True, encoding="utf-8")
    recorder = Console(
        file=StringIO(), width=_COLUMNS, record=True, force_terminal=True, force_jupyter=False, _environ={}
    )
    recorder.print(Text.from_ansi(shown), soft_wrap=True)
    theme = TerminalTheme((255, 255, 255), (0, 0, 0), _COLOURS, _COLOURS)
    return recorder.export_html(theme=theme, code_format=_FRAME, inline_styles=True)
