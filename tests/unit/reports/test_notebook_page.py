"""A diagnosis in a notebook: the console's report as HTML that holds nothing but text."""

import re
from html.parser import HTMLParser

from perfdoctor.api import Diagnose
from perfdoctor.probes.inside.options import Options
from perfdoctor.reports import console
from tests.builders import diagnoses


class Reader(HTMLParser):
    """The text of a page, and its tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[tuple[str, tuple[str, ...]]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_says_what_the_console_says() -> None:
    for make in diagnoses.ALL:
        shown = console.render(make(), width=100, color=False, encoding="utf-8").splitlines()
        lines = [line.rstrip() for line in Reader(make()._repr_html_()).text.rstrip().splitlines()]
        assert lines == shown, make.__name__


def test_it_is_text_in_colours_and_nothing_else() -> None:
    for make in diagnoses.ALL:
        page = make()._repr_html_()
        assert {tag for tag, _ in Reader(page).tags} <= {"pre", "span"}
        assert {names for _, names in Reader(page).tags} <= {("style",)}
        assert not re.search(r"url\(|@import", page)
        assert len(page) < 100_000


def test_it_is_coloured() -> None:
    assert "color: #d04038" in diagnoses.input_bound()._repr_html_()


def test_a_diagnosis_that_is_not_there_yet_says_so() -> None:
    assert "no diagnosis yet" in Diagnose(Options(report=None))._repr_html_()
