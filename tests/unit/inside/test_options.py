"""What users may ask of ``diagnose()``, and what they hear if they ask for something else."""

from pathlib import Path
from typing import Any

import pytest

from perfdoctor.probes.inside.options import Options


class Number:
    """As numpy's are: no ``int``, but a whole number."""

    def __index__(self) -> int:
        return 7


def test_files_are_absolute_and_numbers_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = Options(steps=Number(), report=False, json=Path("a.json"))  # type: ignore[arg-type]
    assert (options.steps, options.report, options.json) == (7, None, str(tmp_path / "a.json"))
    assert Options().report == str(tmp_path / "perfdoctor-report.html")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": 0}, "steps=0 is no number of steps; write a whole number, 1 or more."),
        ({"warmup": -1}, "warmup=-1 is no number of steps; write a whole number, 0 or more."),
        ({"profile": "some"}, "profile='some' is no number of steps; write a whole number, 0 or more."),
        ({"treat": "yes"}, "treat='yes' is unknown; write True, False or 'within noise'."),
        ({"treat_minutes": 0}, "treat_minutes=0 is no number of minutes; write one above 0."),
        ({"json": 7}, "json=7 is no path; write the name of a file, or None for none."),
    ],
)
def test_anything_else_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"is no|is unknown") as refused:
        Options(**wrong)
    assert str(refused.value) == said


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ValueError, match="the current folder is gone: No such file or directory"):
        Options()
    assert Options(report=None).report is None
