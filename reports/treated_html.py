"""A treatment as one page: that of the diagnosis, with what was tried before it."""

from __future__ import annotations

from perfdoctor.messages import say
from perfdoctor.reports import html
from perfdoctor.reports.text import sentence
from perfdoctor.reports.treated_outline import TreatedOutline, treated_outline
from perfdoctor.reports.wording import worded
from perfdoctor.results.treatment import Treated


def render(treated: Treated) -> str:
    """The page, to be written as UTF-8. The same treatment always gives the same text."""
    report = treated_outline(treated)
    return html.page("treated.html", treated.diagnosis, treated=report, headings=_headings(treated, report))


def _headings(treated: Treated, report: TreatedOutline) -> dict[str, object]:
    """What the parts of the page are called."""
    columns = say("treated.change"), say("treated.predicted"), say("treated.measured"), say("treated.verdict")
    return {
        "columns": [sentence(worded(name)) for name in columns],
        "permanent": worded(say("treated.permanent")),
        "patch": worded(say("treated.patch")),
        "tried": worded(say("treated.tried")),
        "no_time": worded(say("treated.no_time_for", titles=report.left_out, inside=treated.inside)),
        "not_asked": worded(say("treated.not_asked", titles=report.not_asked)),
        "by_hand": worded(say("treated.by_hand", titles=report.by_hand)),
        "combined": worded(say("treated.combined")),
        "control": worded(say("treated.as_it_is")),
        "cost": worded(say("treated.cost")),
        "diagnosis": worded(say("treated.diagnosis")),
    }
