"""Reports of comparisons: the answer first, and safe whatever the runs' texts hold."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from perfdoctor.reports import compared_console, compared_html, compared_json, compared_markdown, html
from perfdoctor.results.comparison import Comparison
from tests.builders import diagnoses
from tests.builders.comparisons import SETTINGS, compared, finding, report, step_times
from tests.builders.diagnoses import ATTACK, TERMINAL_ATTACK
from tests.unit.reports.test_html import LOADING, Page


def faster(**after: object) -> Comparison:
    """A job that has become a quarter faster, as was predicted, with a setting and a warning."""
    before = report(step_times(1, 0.1), findings=[finding(1.25, 1.1, 1.4)])
    job = {"settings": {**SETTINGS, "workers": 6.0}, "host": "other"}
    return compared(before, report(step_times(2, 0.08), job={**job, **after}))


def console(comparison: Comparison) -> str:
    return " ".join(compared_console.render(comparison, width=100, color=False, encoding="utf-8").split())


def test_the_first_line_is_the_answer() -> None:
    text = compared_console.render(faster(), width=100, color=False)
    assert text.startswith("1.24x faster: a step takes 81.3 ms instead of 101 ms\n")


def test_what_else_must_be_known_is_said() -> None:
    text = console(faster())
    assert "with 98% confidence. The noise floor is " in text
    assert "may explain a difference by itself: Host (box before, other after)." in text
    assert 'For "More loader workers" the run before predicted 1.1x to 1.4x' in text
    assert "it came true" in text
    assert "Loader workers 2 6" in text


def test_that_a_step_may_be_other_work_is_said() -> None:
    text = console(faster(command="python train.py --batch-size 2"))
    assert "(box before, other after). The job was not started by the same command: if that makes a step" in text
    assert "same command" not in console(faster())
    larger = report(step_times(1, 0.1), findings=[finding(1.25, 1.1, 1.4, changes_step=True)])
    text = console(compared(larger, report(step_times(2, 0.16))))
    assert "predicted 1.1x to 1.4x in samples per second. It makes a step other work" in text


@pytest.mark.parametrize(
    ("times", "limit", "said"),
    [
        (0.8, 0.05, "No regression: a step takes no longer, and 5% is allowed."),
        (1.0, 0.2, "longer, and 20% is allowed."),
        (1.06, 0.085, "longer, but that is not certain; 8.5% is allowed."),
        (1.06, 0.05, "cannot be determined: it may take 16% longer, 5% is allowed, and less than 8% cannot be"),
        (1.4, 0.05, "Regression: a step takes "),
    ],
)
def test_what_is_said_of_the_limit(times: float, limit: float, said: str) -> None:
    assert said in console(compared(report(step_times(1, 0.1)), report(step_times(2, 0.1 * times)), limit))


def test_a_report_of_an_older_version_is_said_to_have_no_interval() -> None:
    old = {name: value for name, value in report([0.1] * 100).items() if name != "blocks"}
    text = console(compared(old, report([0.05] * 200)))
    assert text.startswith("How sure it is cannot be determined: a step takes 50 ms instead of 100 ms")
    assert "perfdoctor report RECORDING --json FILE.json" in text


def test_of_runs_that_tell_too_little_no_figure_is_shown() -> None:
    few = [0.1, 0.1, 0.4, 0.1, 1.4, 0.2, 0.1, 1.0]
    text = console(compared(report(few), report(few[::-1])))
    assert "Too little was watched to tell" in text
    assert "Noise floor unknown" in text
    assert "too little to tell" in text
    unmarked = [{**report(few), "steps": {}, "blocks": [{**one, "steps": None} for one in report(few)["blocks"][:3]]}]
    told = compared(*unmarked, {**unmarked[0], "breakdown": [{"cause": "cpu.model_compute", "share": 1.0}]})
    assert "points" not in console(told)
    assert "too little to tell" in console(told)


def test_the_json_has_all_of_it() -> None:
    told = json.loads(compared_json.render(faster()))
    assert told["prediction"]["promise"] == "came true"
    assert {one["what"]: one["weight"] for one in told["differences"]} == {
        "host": "explains",
        "settings.workers": "noted",
    }
    assert {one["cause"] for one in told["causes"]} == {"cpu.model_compute", "cpu.input_preprocessing"}
    assert {one["unit"] for one in told["causes"]} == {"s/step"}


def test_the_page_opens_without_anything_else() -> None:
    page = Page(compared_html.render(faster()))
    assert not page.open
    assert page.text.index("1.24x faster") < page.text.index("Where the time goes") < page.text.index("The two runs")
    assert {value for name in LOADING for value in page.values(name)} <= {"data:,"}
    assert any("default-src 'none'" in content for content in page.values("content"))


def test_all_pages_have_one_palette() -> None:
    """Colours are named once, in what all pages have in common."""
    assets = files("perfdoctor.reports").joinpath("assets")
    sheets = {name: assets.joinpath(name).read_text("utf-8") for name in ("base.css", "report.css", "compared.css")}
    hues = {name: set(re.findall(r"#[0-9a-f]{6}\b", sheet)) for name, sheet in sheets.items()}
    assert len(hues["base.css"]) > 20
    assert (hues["report.css"], hues["compared.css"]) == (set(), set())
    for page in (compared_html.render(faster()), html.render(diagnoses.input_bound())):
        assert sheets["base.css"] in page
    used, named = (
        set(re.findall(pattern, sheets["base.css"] + sheets["compared.css"]))
        for pattern in (r"var\((--[\w-]+)", r"(--[\w-]+):")
    )
    assert used <= named


def test_the_page_shows_how_much_each_run_varies() -> None:
    page = Page(compared_html.render(faster()))
    drawn = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert [one["role"] for one in drawn] == ["img", "img"]
    assert drawn[0]["aria-label"].startswith("before: 101 ms in the mean, ")
    places = [float(place.rstrip("%")) for place in page.values("cx")]
    assert len(places) > 20
    assert 0 < min(places) < max(places) < 100


def test_markdown_is_made_of_tables_that_github_reads() -> None:
    text = compared_markdown.render(faster())
    assert text.startswith("## 1.24x faster: ")
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        lines = table.split("\n")
        assert {line.count("|") - line.count("\\|") for line in lines} == {lines[0].count("|")}


def test_nothing_of_a_run_s_becomes_markup_or_steers_a_terminal() -> None:
    attacked = faster(command=ATTACK + TERMINAL_ATTACK, host="|`*_[a](b)@all::error::x\n::warning::y")
    attacked = replace(attacked, after=replace(attacked.after, summary=ATTACK, source=TERMINAL_ATTACK))
    page = Page(compared_html.render(attacked))
    assert not [tag for tag, _ in page.tags if tag in ("script", "img")]
    assert "<script" not in compared_markdown.render(attacked)
    assert "@all" not in compared_markdown.render(attacked).replace("\\@all", "")
    for render in (compared_html.render, compared_markdown.render, compared_markdown.annotation, console):
        assert "\x1b" not in render(attacked)
    assert "\n" not in compared_markdown.annotation(attacked)
    json.loads(compared_json.render(attacked))


def test_a_workflow_is_warned_where_nothing_can_be_told() -> None:
    few = [0.1, 0.1, 0.4, 0.1, 1.4, 0.2, 0.1, 1.0]
    assert compared_markdown.annotation(compared(report(few), report(few[::-1]))).startswith("::warning ")
    assert compared_markdown.annotation(compared(report([0.1] * 150), report([0.1] * 150))).startswith("::notice ")
    noisy = [report(step_times(seed, 0.1, noise=0.3)) for seed in (1, 2)]
    assert compared_markdown.annotation(compared(*noisy, 0.05)).startswith("::warning ")
    assert compared_markdown.annotation(compared(*noisy)).startswith("::notice ")


def test_a_workflow_command_is_escaped() -> None:
    assert compared_markdown.command("error", "a: 50%, b", "1\r\n2") == "::error title=a%3A 50%25%2C b::1%0D%0A2"
