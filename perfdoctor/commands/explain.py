"""Say what a cause means, what looks like it, what helps, and what would prove it wrong.

Without CAUSE it lists all that perfdoctor can name. The same stands in docs/causes.md.
"""

import argparse
import sys
from difflib import get_close_matches

from perfdoctor.causes import CAUSES
from perfdoctor.commands.arguments import add_language_argument
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor explain``."""
    parser.add_argument("cause", nargs="?", metavar="CAUSE", help="its id, io.swap for instance; without it, the list")
    add_language_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the explanation, or the list."""
    from perfdoctor.reports import explained
    from perfdoctor.reports.language import for_stream
    from perfdoctor.reports.outputs import print_text, terminal_style

    cause, style = arguments.cause, terminal_style(sys.stdout)
    if cause is not None:
        require_cause(cause)
    with for_stream(sys.stdout):
        text = explained.render_list(**style) if cause is None else explained.render(cause, **style)
    print_text(text)
    return 0


def require_cause(cause: str) -> None:
    """Makes sure that there is such a cause.

    Raises:
        PerfDoctorError: there is none; the hint names those that may be meant.
    """
    if cause not in CAUSES:
        hint = say("moves.list_causes", near=tuple(nearest(cause)), known=tuple(CAUSES))
        raise PerfDoctorError(f"There is no cause {cause!r}.", hint=hint)


def nearest(word: str) -> list[str]:
    """The causes that a word may stand for: those whose last part it is, or else those that are spelled like it."""
    ends = [cause for cause in CAUSES if cause.partition(".")[2] == word]
    return ends or get_close_matches(word.lower(), CAUSES, n=3)
