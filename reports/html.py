"""The diagnosis as one page that opens anywhere: nothing loaded from elsewhere, and whole without its script."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.outline import outline
from perfdoctor.reports.page_outline import page_outline
from perfdoctor.reports.text import lower_first
from perfdoctor.reports.wording import label, page_words

if TYPE_CHECKING:
    from markupsafe import Markup


def render(diagnosis: Diagnosis) -> str:
    """The page, to be written as UTF-8. The same diagnosis always gives the same text."""
    return page("report.html", diagnosis)


def page(template: str, diagnosis: Diagnosis, **more: object) -> str:
    """A page made from a template.

    Args:
        template: ``report.html``, or one that extends it.
        diagnosis: what was found.
        more: what else the template needs, by name.
    """
    report, script = outline(diagnosis), _asset("report.js")
    return filled(
        template,
        style="report.css",
        report=report,
        page=page_outline(diagnosis, report),
        words=SimpleNamespace(**page_words().WORDS),
        script=script,
        # The page's policy lets this very script run and no other.
        script_hash=b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii"),
        **more,
    )


def filled(template: str, *, style: str, **values: object) -> str:
    """A template with what it needs; whatever that says is escaped.

    Args:
        template: its file.
        style: the page's style sheet, before which stands what all pages have in common.
        values: by name.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_asset),
    )
    environment.filters["lower_first"] = lower_first
    environment.filters["with_code"] = _with_code
    environment.filters["code_lines"] = _code_lines
    environment.filters["severity"] = lambda severity: label("severity", severity=severity)
    return environment.get_template(template).render(style=_asset("base.css") + _asset(style), **values)


def names_bottleneck(text: str) -> bool:
    """Whether a text is such a page, and names a bottleneck."""
    mark = _Mark()
    if text.startswith("<!doctype html>"):
        mark.feed(text.partition("<style>")[0])
    return mark.found


class _Mark(HTMLParser):
    """Looks for the page's own mark, ``<meta name="perfdoctor-bottleneck" content="io">``."""

    found = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each tag."""
        self.found |= tag == "meta" and ("name", "perfdoctor-bottleneck") in attrs


def _with_code(text: str) -> Markup:
    """A text for a page, with what stands between backticks as code."""
    from markupsafe import Markup

    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them is alone
        return Markup.escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def _code_lines(code: str) -> list[tuple[str, str]]:
    """Lines of code, each with its comment apart."""
    lines = [re.split(r"(?:^|(?<=\s))(?=# )", line, maxsplit=1) for line in code.split("\n")]
    return [(line[0], line[1] if len(line) > 1 else "") for line in lines]


def _asset(name: str) -> str:
    return files("perfdoctor.reports").joinpath("assets").joinpath(name).read_text("utf-8")
