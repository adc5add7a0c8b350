"""The documents name every cause and every number."""

from pathlib import Path

from perfdoctor.causes import CAUSES
from perfdoctor.metrics.names import METRICS

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_cause_is_explained() -> None:
    text = (DOCS / "causes.md").read_text()
    assert [cause for cause in CAUSES if f"**{cause}.**" not in text and f"## {cause}" not in text] == []


def test_every_number_is_in_the_table() -> None:
    lines = (DOCS / "evidence.md").read_text().splitlines()
    rows = [
        f"| `{name}` | {words.replace('{}', '…')} | {unit} | {probe} |"
        for name, (words, unit, probe) in METRICS.items()
    ]
    assert [row for row in rows if row not in lines] == []
    assert sum(line.startswith("| `") for line in lines) == len(rows)
