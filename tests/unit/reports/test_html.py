import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from perfdoctor.diagnosis import Diagnosis, Series
from perfdoctor.reports.charts import MAX_CHARTS, MAX_LINES, charts, thin_out
from perfdoctor.reports.html import render
from tests.builders import diagnoses

LIMIT_BYTES = 500_000
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href", "formaction"}
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """What a browser would make of a page: tags, attributes and text. Every tag must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(params=diagnoses.ALL, ids=lambda make: make.__name__)
def diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    made: Diagnosis = request.param()
    return made


def long_course(chart: str, name: str, count: int) -> Series:
    """An hour of looks."""
    course = tuple(diagnoses.wave(count, 3600.0, 0.1, 0.9, turns=500))
    return Series(chart, name, "fraction", diagnoses.times(count, 3600.0), course)


def test_the_page_loads_nothing(diagnosis: Diagnosis) -> None:
    text = render(diagnosis)
    page = Page(text)
    loaded = [value for name in LOADING for value in page.values(name)]
    assert loaded
    assert all(value.startswith("#") or value == "data:," for value in loaded)
    assert not [tag for tag, _ in page.tags if tag in {"script", "img", "iframe", "object", "embed", "base"}]
    assert not re.search(r"@import|url\((?!#)", text)


def test_there_is_no_address_in_the_page_but_the_strangers() -> None:
    assert "http" not in render(diagnoses.input_bound()).replace("http-equiv", "")


def test_the_page_is_well_formed_and_its_ids_are_unique(diagnosis: Diagnosis) -> None:
    page = Page(render(diagnosis))
    assert page.open == []
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = {match for value in page.values("clip-path") for match in re.findall(r"url\(#(.*)\)", value)}
    used |= set(page.values("aria-labelledby"))
    assert used <= set(ids)


def test_it_can_be_used_without_seeing_it(diagnosis: Diagnosis) -> None:
    page = Page(render(diagnosis))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    drawings = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert bool(drawings) == bool(diagnosis.ranks or diagnosis.series)
    assert all(attributes["aria-label"].strip() for attributes in drawings)
    assert sum(tag == "svg" for tag, _ in page.tags) == len(page.values("aria-hidden"))


def test_it_says_everything() -> None:
    diagnosis = diagnoses.straggler()
    text = Page(render(diagnosis)).text
    assert "I/O bottleneck: reading from storage" in text
    assert "Rank 1 is the straggler" in text
    for finding in diagnosis.findings:
        expected = [finding.cause, finding.summary, finding.refuted_by]
        expected += [part for fix in finding.fixes for part in (fix.title, fix.why, fix.change)]
        expected += [item.probe for item in finding.evidence]
        assert not [part for part in expected if part not in text]
    assert diagnosis.not_examined[0].enable in text
    assert "3% of one core" in text
    assert str(diagnosis.job["command"]) in text


def test_only_code_is_set_as_code() -> None:
    text = render(diagnoses.input_bound())
    code = re.findall("<pre><code>(.*?)</code></pre>", text, re.DOTALL)
    assert len(code) == 3
    assert "num_workers=7,  # was 2\n)" in code[0]
    assert diagnoses.ADVICE in text
    assert not [part for part in code if diagnoses.ADVICE in part]


def test_a_sound_job_reads_as_good_news() -> None:
    text = Page(render(diagnoses.sound())).text
    assert "No bottleneck found" in text
    assert "if fixed" not in text


def test_the_bar_is_divided_by_the_shares() -> None:
    page = Page(render(diagnoses.input_bound()))
    grown = [float(style.split(":")[1]) for style in page.values("style") if style.startswith("flex-grow")]
    assert grown == [0.62, 0.27, 0.04, 0.033, 0.03, 0.007]
    assert sum(grown) == pytest.approx(1, abs=0.001)


def test_hostile_text_is_text() -> None:
    text = render(diagnoses.hostile())
    text.encode("utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert not [value for name in ("onerror", "onload", "onclick") for value in Page(text).values(name)]
    assert diagnoses.ATTACK in Page(text).text
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_hostile_severity_is_not_a_class() -> None:
    base = diagnoses.input_bound()
    finding = replace(base.findings[0], severity='x" onclick="alert(3)')
    page = Page(render(replace(base, findings=(finding,))))
    assert not page.values("onclick")


def test_the_same_diagnosis_gives_the_same_page(diagnosis: Diagnosis) -> None:
    assert render(diagnosis) == render(diagnosis)


def test_a_page_stays_small() -> None:
    names = [(f"chart {c}", f"line {n}") for c in range(MAX_CHARTS + 1) for n in range(MAX_LINES + 1)]
    series = tuple(long_course(chart, name, count=3600) for chart, name in names)
    page = render(replace(diagnoses.input_bound(), series=series))
    assert page.count("<svg") == MAX_CHARTS
    assert len(page.encode("utf-8")) < LIMIT_BYTES


def test_what_is_not_drawn_is_said() -> None:
    at = diagnoses.times(10, 1.0)
    crowd = [Series("Cores", f"core {n}", "fraction", at, (n / 20,) * 10) for n in range(20)]
    blind = Series("GPU", "busy", "fraction", at, (None,) * 10)
    text = Page(render(replace(diagnoses.input_bound(), series=(*crowd, blind)))).text
    assert "12 smaller ones are not drawn" in text
    assert "core 19" in text
    assert "core 11" not in text
    assert "1 more measurements are not drawn" in text


def test_each_chart_title_is_one_chart_with_its_lines() -> None:
    drawn = charts(diagnoses.input_bound().series)
    assert [chart.title for chart in drawn] == ["Processor time", "Memory of the job", "Reads from storage"]
    assert [line.name for line in drawn[0].lines] == ["trainer", "worker 4250", "worker 4251"]
    assert drawn[0].svg.count("stroke: var(--line-") == 3
    assert "trainer, 20% to 50%" in drawn[0].label
    assert "2 GiB" in drawn[1].svg
    assert re.search(r"<text[^>]*>50%</text>", drawn[0].svg), "text stays text"


def test_a_gap_in_the_values_is_a_gap_in_the_line() -> None:
    at, whole = diagnoses.times(9, 9.0), (1.0, 2.0, 3.0) * 3
    broken = (1.0, 2.0, None, 3.0, 1.0, math.nan, 2.0, 3.0, 1.0)
    for values, pieces in ((whole, 1), (broken, 3)):
        (chart,) = charts([Series("c", "n", "", at, values)])
        (path,) = re.findall(r'd="([^"]*)"[^>]*stroke: var\(--line-0\)', chart.svg)
        assert path.count("M") == pieces


def test_a_value_between_gaps_is_a_dot() -> None:
    (chart,) = charts([Series("c", "n", "", (0.0, 1.0, 2.0, 3.0), (None, 5.0, None, None))])
    assert chart.svg.count("<use ") == 1


def test_constant_zero_and_negative_values_are_drawn() -> None:
    for value in (0.0, -3.0, 1e-12, 1e15):
        for unit in ("", "bytes", "fraction", "s"):
            assert len(charts([Series("c", "n", unit, (0.0, 1.0), (value, value))])) == 1


def test_thinning_keeps_peaks_and_gaps() -> None:
    values: list[float | None] = [0.5] * 10_000
    values[1234], values[4321] = 9.0, -9.0
    values[7000:7500] = [None] * 500
    points = thin_out(range(10_000), values, 200)
    assert len(points) <= 202
    assert (1234, 9.0) in points
    assert (4321, -9.0) in points
    assert [at for at, value in points if value is None]
    assert [at for at, _ in points] == sorted(at for at, _ in points)
