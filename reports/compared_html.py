"""A comparison as one page that opens anywhere: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from perfdoctor.messages import say
from perfdoctor.reports.compared_outline import compared_outline
from perfdoctor.reports.html import style
from perfdoctor.reports.wording import page_words, worded
from perfdoctor.results.comparison import Comparison


def render(comparison: Comparison) -> str:
    """The page, to be written as UTF-8. The same comparison always gives the same text."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_asset)
    )
    return environment.get_template("compared.html").render(
        report=compared_outline(comparison),
        style=style("compared.css"),
        lang=page_words().WORDS["lang"],
        footer=worded(say("compared.footer")),
    )


def _asset(name: str) -> str:
    return files("perfdoctor.reports").joinpath("assets").joinpath(name).read_text("utf-8")
