"""A diagnosis in a notebook: its parts as DataFrames, and the console's report as HTML that holds nothing but text."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import get_args

import pytest

from perfdoctor.api import Diagnose
from perfdoctor.diagnosis import Diagnosis, Part
from perfdoctor.probes.inside.options import Options
from perfdoctor.reports import console
from tests.builders import diagnoses
from tests.builders.diagnoses import ALL, input_bound, straggler
from tests.files import ROOT

PAGE = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")


def documented() -> dict[str, list[str]]:
    rows = [line.strip("|").split(" | ") for line in PAGE.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return {name.split("`")[1]: re.findall(r"`(\w+)`", columns) for name, _, columns in rows}


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("part", get_args(Part))
def test_every_part_has_the_columns_that_are_documented(make: Callable[[], Diagnosis], part: Part) -> None:
    assert list(make().to_frame(part).columns) == documented()[part]


def test_rows_are_what_the_diagnosis_says() -> None:
    diagnosis = input_bound()
    findings, breakdown = diagnosis.to_frame(), diagnosis.to_frame("breakdown")
    assert findings["cause"].tolist() == [finding.cause for finding in diagnosis.findings]
    assert findings["bottleneck"].tolist() == [finding.bottleneck for finding in diagnosis.findings]
    assert breakdown["share"].sum() == pytest.approx(1.0, abs=0.001)
    assert len(diagnosis.to_frame("evidence")) == sum(len(finding.evidence) for finding in diagnosis.findings)
    assert len(diagnosis.to_frame("series")) == sum(len(series.times) for series in diagnosis.series)
    by_rank = straggler().to_frame("ranks").groupby("rank")["share"].sum()
    assert len(by_rank) == len(straggler().ranks)


def test_an_unknown_part_is_refused_with_the_parts_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no 'verdicts' in a diagnosis; there are findings, verdict"):
        input_bound().to_frame("verdicts")  # type: ignore[arg-type]


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
