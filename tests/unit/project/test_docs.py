"""Pictures in the docs: each that is shown is there, small enough to be loaded, and each that is there is shown."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / "docs" / "images"
LARGEST = 100_000
SHOWN = re.compile(r'(?:!\[[^\]]+\]\(|<img src=")([^)"]+\.png)')


def test_pictures_are_there_small_and_shown() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = {(page.parent / name).resolve() for page in pages for name in SHOWN.findall(page.read_text("utf-8"))}
    assert shown == set(PICTURES.glob("*.png"))
    assert {file.name for file in shown} >= {"report.png", "over-time.png", "code.png", "ranks.png", "compared.png"}
    assert [file.name for file in shown if file.stat().st_size > LARGEST] == []
