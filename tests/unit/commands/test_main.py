"""What every command does with paths that cannot be reached."""

from pathlib import Path

import pytest

from perfdoctor.__main__ import main

LONG = "x" * 300


@pytest.mark.parametrize(
    "command",
    [
        ["report", LONG],
        ["analyze", LONG],
        ["export", LONG, "--to", "csv", "out"],
        ["report", "job.perfdoctor", "--json", LONG],
        ["export", "job.perfdoctor", "--to", "perfetto", LONG],
        ["export", "job.perfdoctor", "--to", "parquet", LONG],
    ],
    ids=" ".join,
)
def test_a_name_that_is_too_long_is_one_sentence_and_a_next_move(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"perfdoctor: {LONG[:40]}") or "job.perfdoctor" in first
    assert second.startswith("  ")
