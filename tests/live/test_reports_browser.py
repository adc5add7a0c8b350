"""The page in a real browser, where its content policy makes an injected script an error on the console."""

import re
import shutil
import subprocess
from functools import lru_cache
from html import escape
from pathlib import Path

import pytest

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.html import render
from tests.builders import diagnoses

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr",
)  # fmt: skip


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@lru_cache(maxsize=1)
def why_no_browser() -> str:
    """Why Chromium cannot be used here; "" if it can."""
    path = chromium()
    if path is None:
        return "no chromium on this machine"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"chromium does not start: {done.stderr.strip()[:200]}"


class Browser:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = chromium()
        assert path is not None
        self.command = [path, *FLAGS, f"--user-data-dir={folder / 'profile'}"]

    def open(self, page: str, *options: str) -> tuple[str, list[str]]:
        """Opens a page and returns what it printed and the messages on its console."""
        file = self.folder / "page.html"
        file.write_text(page, encoding="utf-8")
        done = subprocess.run(
            [*self.command, *options, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    if reason := why_no_browser():
        pytest.skip(reason)
    return Browser(tmp_path)


@pytest.mark.parametrize("make", diagnoses.ALL, ids=lambda make: make.__name__)
def test_the_page_opens_without_a_complaint(browser: Browser, make: type[Diagnosis]) -> None:
    page = render(make())
    dom, console = browser.open(page, "--dump-dom")
    assert console == []
    claims = re.findall('<h1 id="verdict">(.*?)</h1>', page)
    assert len(claims) == 1
    assert re.findall('<h1 id="verdict">(.*?)</h1>', dom.replace("&#39;", "'")) == claims
    assert dom.count("<svg") == page.count("<svg")
    assert dom.count("<script") == 1
    assert dom.count('class="copy"') == page.count("<pre>"), "its own script runs"


def test_a_script_or_an_image_that_slipped_in_would_be_noticed(browser: Browser) -> None:
    page = render(diagnoses.input_bound())
    for attack in (
        "<script>alert(1)</script>",
        '<img src="http://127.0.0.1:9/x.png">',
        "<details open ontoggle='x()'><summary>a</summary></details>",  # a handler is looked at when its event comes
    ):
        broken = page.replace("<main>", f"<main>{attack}")
        assert broken != page
        _, console = browser.open(broken, "--dump-dom")
        assert console, attack


WIDTHS = (320, 390, 1200)
WIDE = (diagnoses.input_bound, diagnoses.straggler, diagnoses.hostile)


@pytest.fixture(scope="module")
def widths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """Of each page at each width, how wide its content and its window are; one start of the browser tells all."""
    if reason := why_no_browser():
        pytest.skip(reason)
    frames = [
        f'<iframe title="{make.__name__}-{width}" style="width: {width}px; height: 900px; border: 0"'
        f' srcdoc="{escape(render(make()))}"></iframe>'
        for make in WIDE
        for width in WIDTHS
    ]
    script = (
        "<script>onload = () => { document.title = [...document.querySelectorAll('iframe')].map(frame => {"
        " const inside = frame.contentDocument.documentElement;"
        " return `${frame.title} needs ${inside.scrollWidth} has ${inside.clientWidth}`; }).join(', '); }</script>"
    )
    dom, _ = Browser(tmp_path_factory.mktemp("widths")).open("".join(frames) + script, "--dump-dom")
    found = re.findall(r"(\S+) needs (\d+) has (\d+)", dom.split("<title>")[1].split("</title>")[0])
    return {name: (int(needed), int(there)) for name, needed, there in found}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", WIDE)
def test_it_never_scrolls_sideways(make: type[Diagnosis], width: int, widths: dict[str, tuple[int, int]]) -> None:
    assert widths[f"{make.__name__}-{width}"] == (width, width)


def test_the_bars_on_the_screen_are_as_long_as_the_shares(browser: Browser) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = browser.folder / "page.png"
    _, console = browser.open(render(diagnoses.input_bound()), f"--screenshot={picture}", "--window-size=1200,1200")
    assert console == []
    style = render(diagnoses.input_bound())
    colors = {}
    for name in ("b0", "ok"):  # the first of the two themes is the light one
        found = re.search(rf"--{name}: #(\w\w)(\w\w)(\w\w)", style)
        assert found is not None
        colors[name] = tuple(int(part, 16) for part in found.groups())
    pixels = image.open(picture).convert("RGB")
    rows = [[pixels.getpixel((x, y)) for x in range(pixels.width // 2)] for y in range(200, 900)]
    longest = {name: max(row.count(color) for row in rows) for name, color in colors.items()}
    assert longest["b0"] / longest["ok"] == pytest.approx(0.62 / 0.27, rel=0.05)
