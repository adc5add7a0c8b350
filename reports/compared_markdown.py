"""A comparison as Markdown, for pull requests and job summaries (GitHub's flavour)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfdoctor.reports.compared_outline import compared_outline
from perfdoctor.results.comparison import Comparison

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
