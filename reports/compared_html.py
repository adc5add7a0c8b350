"""A comparison as one page that opens anywhere: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from perfdoctor.messages import say
from perfdoctor.reports.compared_outline import compared_outline
from perfdoctor.reports.html import filled
from perfdoctor.reports.wording import page_words, worded
from perfdoctor.results.comparison import Comparison


def render(comparison: Comparison) -> str:
    """The page, to be written as UTF-8. The same comparison always gives the same text."""
    return filled(
        "compared.html",
        style="compared.css",
        report=compared_outline(comparison),
        lang=page_words().WORDS["lang"],
        footer=worded(say("compared.footer")),
    )
