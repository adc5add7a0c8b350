"""Tables in docs/ that scripts write: each stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""

from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def fill(document: str, name: str, text: str) -> None:
    """Replaces what stands between the marks.

    Raises:
        ValueError: the document has no such marks.
    """
    path = DOCS / document
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin} with {end}")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")
