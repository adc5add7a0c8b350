"""What GitHub shows of a step of a workflow: annotations on standard output, and the job's summary.

GitHub's workflow commands (docs.github.com, "Workflow commands for GitHub Actions"): a line of standard output that
begins with ``::`` is one, so that what stands in it is escaped.
"""

from __future__ import annotations

from perfdoctor.reports.compared_outline import compared_outline
from perfdoctor.results.comparison import Answer, Comparison

_WARNED = (Answer.SLOWER, Answer.UNKNOWN)
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotation(comparison: Comparison) -> str:
    """A line that GitHub shows on the run's page: an error only where the job is slower than allowed."""
    report = compared_outline(comparison)
    answer = Answer.UNKNOWN if comparison.pace is None else comparison.pace.answer
    level = "error" if comparison.regressed else "warning" if answer in _WARNED else "notice"
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
