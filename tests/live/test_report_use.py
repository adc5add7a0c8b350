"""The page as people use it: with a keyboard, a screen reader, in the dark, on a phone and without scripts.

Playwright drives the Chromium of the machine. axe-core (deque.com/axe) looks for what keeps people out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.reports.html import render
from tests.builders import diagnoses
from tests.live.test_reports_browser import FLAGS, chromium, why_no_browser

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no playwright here")

MAKERS = (diagnoses.input_bound, diagnoses.straggler, diagnoses.undecided, diagnoses.hostile)
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if reason := why_no_browser():
        pytest.skip(reason)
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=[*FLAGS[1:]])
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("pages")
    for make in MAKERS:
        (made / f"{make.__name__}.html").write_text(render(make()), encoding="utf-8")
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nothing_is_asked_of_the_network(browser: Any, folder: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    for make in MAKERS:
        tab = context.new_page()
        tab.goto((folder / f"{make.__name__}.html").as_uri())
        found = axe.Axe().run(tab).response["violations"]
        serious = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in SERIOUS]
        assert serious == [], make.__name__
        tab.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


def test_the_keyboard_reads_all_rows_searches_and_zooms(browser: Any, folder: Path) -> None:
    tab = browser.new_page()
    tab.goto((folder / "input_bound.html").as_uri())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"

    slider = tab.locator(".reader input")
    slider.focus()
    for _ in range(4):
        slider.press("ArrowRight")
    assert "preparing the input on the CPU 80%" in slider.get_attribute("aria-valuetext")
    assert "preparing the input on the CPU 97%" in slider.get_attribute("aria-valuetext")
    readings = tab.locator(".row .now").all_inner_texts()
    assert len([text for text in readings if text]) >= 6
    assert "not seen" in readings, "the second worker had not started"

    assert tab.locator(".flame").count() == 2
    assert tab.locator(".tools input").count() == 1, "one search for all flame graphs"
    search, counts = tab.locator(".tools input"), tab.locator("figcaption [role=status]")
    search.fill("forward")
    assert [text[:4].strip() for text in counts.all_inner_texts()] == ["30%", "0% o"]
    search.fill("__getitem__")
    assert [text[:4].strip() for text in counts.all_inner_texts()] == ["0% o", "62%"]
    assert tab.locator(".flame .t.hit").count() == 1
    search.fill("")
    assert counts.all_inner_texts() == ["", ""]
    main, forward = (tab.locator(".flame").first.locator(".t").nth(place) for place in (0, 1))
    main.focus()
    main.press("ArrowDown")
    assert forward.evaluate("one => one === document.activeElement")
    forward.press("Enter")
    assert forward.evaluate("one => one.style.width") == "100%"
    forward.press("Escape")
    assert forward.evaluate("one => one.style.width") == "30%"
    tab.close()


def test_the_keyboard_goes_from_a_finding_to_its_lines_and_back_without_scripts(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((folder / "input_bound.html").as_uri())
    line = tab.locator("#finding-1 .refs a").first
    line.focus()
    line.press("Enter")
    row = tab.locator("tr:target")
    assert row.get_attribute("id") == "source-1-41"
    tab.keyboard.press("Tab")  # from where the page has jumped to
    tab.keyboard.press("Enter")
    assert tab.locator("article:target").get_attribute("id") == "finding-1"
    context.close()


def test_without_scripts_it_has_every_section_and_number(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    tab = context.new_page()
    tab.goto((folder / "input_bound.html").as_uri())
    assert tab.locator("h2").count() >= 9
    assert tab.locator(".waterfall tfoot").inner_text().split() == ["one", "second", "1000", "ms"]
    assert tab.locator(".t").count() == 3
    assert tab.locator("button, input").count() == 0
    context.close()
