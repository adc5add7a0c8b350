"""A treatment as one page: that of the diagnosis, with what was tried before it."""

from __future__ import annotations

from perfdoctor.reports import html
from perfdoctor.reports.treated_outline import treated_outline
from perfdoctor.treatment import Treated


def render(treated: Treated) -> str:
    """The page, to be written as UTF-8. The same treatment always gives the same text."""
    return html.page("treated.html", treated.diagnosis, treated=treated_outline(treated))
