"""The command line of `perfdoctor treat`: what it takes, and what it refuses before anything runs."""

from pathlib import Path

import pytest

from perfdoctor.__main__ import main, make_parser


def test_what_stands_after_the_dashes_is_the_job_s() -> None:
    parsed = make_parser().parse_args(["treat", "--minutes", "3", "--", "python", "train.py", "--minutes", "7"])
    assert parsed.job == ["python", "train.py", "--minutes", "7"]
    assert parsed.minutes == 3


def test_what_may_be_given_twice() -> None:
    parsed = make_parser().parse_args(["treat", "--link", "data", "--link", "models/base", "--", "python"])
    assert parsed.link == [Path("data"), Path("models/base")]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--minutes", "0", "--", "true"], ["--minutes", "soon", "--", "true"], ["python", "train.py", "--rate", "3"]],
    ids=["no job", "no time", "no number", "no dashes"],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["treat", *arguments]) == 2
    assert "perfdoctor treat [options] -- COMMAND..." in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_before_the_job_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["treat", "--patch", "missing/best.diff", "--", "touch", str(tmp_path / "ran")]) == 1
    assert "There is no folder missing" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
