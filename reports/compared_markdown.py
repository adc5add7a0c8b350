"""A comparison for GitHub: as Markdown of its flavour, for pull requests and job summaries, and as an annotation.

GitHub's workflow commands (docs.github.com, "Workflow commands for GitHub Actions"): a line of standard output that
begins with ``::`` is one, so that what stands in it is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfdoctor.reports.compared_outline import compared_outline
from perfdoctor.results.comparison import Answer, Comparison

# What Markdown or HTML would read as more than text; a mention would notify somebody.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~@$])")


def render(comparison: Comparison) -> str:
    """The comparison as Markdown, ending in a line break."""
    report = compared_outline(comparison)
    names = report.headings
    parts = [f"## {escaped(report.headline)}", escaped(report.summary)]
    parts += [f"> {escaped(report.warning)}"] if report.warning else []
    parts += [f"**{escaped(report.verdict)}**"] if report.verdict else []
    if report.rows:
        cells = [(f"{row.title} ({row.cause})", row.before, row.after, row.change, row.answer) for row in report.rows]
        parts.append(_table((names.time_goes, names.before, names.after, names.change, names.answer), cells))
    parts += [escaped(report.promise)] if report.promise else []
    if report.others:
        parts.append(_table((names.others, names.before, names.after), report.others))
    parts.append(_table((names.runs, names.before, names.after), report.runs))
    parts.append(f"perfdoctor {escaped(report.version)}")
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Clean text of one line as Markdown that shows just that."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(map(escaped, line)) + " |" for line in (headings, *rows))
    return "\n".join([head, "|" + "---|" * len(headings), *body])


_WARNED = (Answer.SLOWER, Answer.UNKNOWN)
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotation(comparison: Comparison) -> str:
    """A line that GitHub shows on the run's page: an error only where the job is slower than allowed."""
    report = compared_outline(comparison)
    answer = Answer.UNKNOWN if comparison.pace is None else comparison.pace.answer
    warned = answer in _WARNED or comparison.hidden_by_noise
    level = "error" if comparison.regressed else "warning" if warned else "notice"
    message = f"{report.headline}. {report.verdict or report.summary}"
    return command(level, "perfdoctor compare", message)


def command(level: str, title: str, message: str) -> str:
    """A workflow command.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        title: in its head.
        message: below it; line breaks stay.
    """
    return f"::{level} title={_escaped(title, _PROPERTY)}::{_escaped(message, _DATA)}"


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(letter, letter) for letter in text)
