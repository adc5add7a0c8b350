"""Makes the pictures of reports for the docs from recordings of the corpus, with Chromium.

    python tests/recordings/picture.py [NAME …]

It writes docs/images/NAME.png: pages, or parts of them, as a browser shows them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[2]))
from PIL import Image, ImageChops

from perfdoctor.analysis.from_recording import examine
from perfdoctor.commands.compare import compare_sources
from perfdoctor.commands.run_paths import read_source
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.reports import compared_html, html
from tests.recordings import corpus, packing

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
LARGEST = 100_000
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
_DARK = ("--blink-settings=preferredColorScheme=0",)
_COLORS, _MARGIN = 256, 24


def _report(folder: Path, *names: str) -> str:
    """The page of a recording."""
    with Recording.open(_unpacked(folder, names[0])) as recording:
        return html.render(examine(recording))


def _compared(folder: Path, *names: str) -> str:
    """The page of two of them side by side."""
    before, after = (read_source(_unpacked(folder, name)) for name in names)
    return compared_html.render(compare_sources(before, after))


def _unpacked(folder: Path, name: str) -> Path:
    file = folder / f"{name}.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    return file


class Picture(NamedTuple):
    """A picture to make.

    Attributes:
        recordings: names in the corpus.
        size: of the window, as which the picture begins; what is empty below is cut away.
        only: headings' ids: of the page only the sections with these are shown; "" for all of it.
        page: makes it.
        flags: of the browser.
    """

    recordings: tuple[str, ...]
    size: tuple[int, int]
    only: str = ""
    page: Callable[..., str] = _report
    flags: tuple[str, ...] = ()


PICTURES = {
    "report": Picture(("straggler_disk",), (1280, 1060)),
    "over-time": Picture(("ddp_every_microbatch",), (1100, 1000), only="over-time"),
    "steps": Picture(("sound_from_inside",), (1100, 800), only="step-1"),
    "ranks": Picture(("straggler_disk",), (1100, 600), only="ranks"),
    "code": Picture(("slow_preprocessing_workers",), (1100, 760), only="code"),
    "compared": Picture(("cold_reads", "sound_warm_reads"), (1100, 900), page=_compared),
    "dark-phone": Picture(("frequent_checkpoints",), (500, 1100), flags=_DARK),
}


def main(names: list[str]) -> int:
    """Draws those that are named, or all."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("There is no Chromium here.\nInstall it: apt-get install chromium", file=sys.stderr)
        return 1
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            _draw(browser, name, PICTURES[name], Path(folder))
        print(FOLDER / f"{name}.png")
    return 0


def _draw(browser: str, name: str, picture: Picture, folder: Path) -> None:
    page, shot, target = folder / "page.html", folder / "shot.png", FOLDER / f"{name}.png"
    page.write_text(_with_only(picture.page(folder, *picture.recordings), picture.only), encoding="utf-8")
    options = [*_FLAGS, *picture.flags, f"--window-size={picture.size[0]},{picture.size[1]}"]
    options += [f"--user-data-dir={folder}/profile", f"--screenshot={shot}"]
    subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
    _trimmed(Image.open(shot).convert("RGB")).quantize(_COLORS, Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
    if (held := target.stat().st_size) > LARGEST:
        raise PerfDoctorError(f"{target} has {held} bytes, {LARGEST} are allowed.", hint="Choose a smaller part of it.")


def _with_only(page: str, only: str) -> str:
    """A page that shows one of its sections; the page's policy allows styles."""
    if not only:
        return page
    hidden = f"body > :not(main), main > :not(:has(> #{only})) {{ display: none !important; }}"
    return page.replace("</style>", f"{hidden} main > section {{ margin: 0 !important; }}</style>", 1)


def _trimmed(image: Image.Image) -> Image.Image:
    """The picture without what is empty below."""
    ground = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    box = ImageChops.difference(image, ground).getbbox() or (0, 0, *image.size)
    return image.crop((0, 0, image.width, min(image.height, box[3] + _MARGIN)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
