"""What every command does with paths that cannot be reached, and where it is interrupted."""

from pathlib import Path
from typing import NoReturn

import pytest

from perfdoctor.__main__ import main
from perfdoctor.commands import attach, report

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


def test_an_interrupted_command_says_whether_anything_was_to_be_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> NoReturn:
        raise KeyboardInterrupt

    for command, said in (attach, "Interrupted before anything was recorded."), (report, "Interrupted."):
        monkeypatch.setattr(command, "run", interrupted)
        assert main([command.__name__.rpartition(".")[2], "1"]) == 1
        assert capsys.readouterr().err == f"perfdoctor: {said}\n"
