"""The page about notebooks: every snippet runs on a recording of the corpus, and prints what stands below it."""

import re
from pathlib import Path

import pytest

from tests.files import ROOT
from tests.recordings import corpus, packing

PAGE = ROOT / "docs" / "notebook.md"
SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_snippet_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packing.unpack(corpus.FOLDER / f"slow_preprocessing_workers{corpus.SUFFIX}", tmp_path / "job.perfdoctor")
    monkeypatch.chdir(tmp_path)
    assert len(SNIPPETS) == 4
    names: dict[str, object] = {}
    for code, shown in SNIPPETS:
        exec(code, names)
        # Versions of pandas differ in how wide they make columns.
        assert capsys.readouterr().out.split() == shown.split(), code
