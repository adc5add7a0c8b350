"""A comparison as Markdown, for pull requests and job summaries (GitHub's flavour)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfdoctor.comparison import Comparison
from perfdoctor.reports.compared_outline import compared_outline

# What Markdown or HTML would read as more than text; a mention would notify somebody.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~@$])")


def render(comparison: Comparison) -> str:
    """The comparison as Markdown, ending in a line break."""
    report = compared_outline(comparison)
    parts = [f"## {escaped(report.headline)}", escaped(report.summary)]
    parts += [f"> {escaped(warning)}" for warning in report.warnings]
    parts += [f"**{escaped(report.verdict)}**"] if report.verdict else []
    if report.rows:
        cells = [(f"{row.title} ({row.cause})", row.before, row.after, row.change, row.answer) for row in report.rows]
        parts.append(_table(("Where the time goes", "before", "after", "change", report.amounts), cells))
    parts += [escaped(report.promise)] if report.promise else []
    if report.others:
        parts.append(_table(("What else is not the same", "before", "after"), report.others))
    parts.append(_table(("The two runs", "before", "after"), report.runs))
    parts.append(f"perfdoctor {escaped(report.version)}")
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Clean text of one line as Markdown that shows just that."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(map(escaped, line)) + " |" for line in (headings, *rows))
    return "\n".join([head, "|" + "---|" * len(headings), *body])
