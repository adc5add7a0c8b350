"""Temporary recordings: removed when they have served, kept by name when not, and told of when their run was killed."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from perfdoctor.capture.recording_file import leftovers, recording_file, report_leftovers
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from tests.builders.jobs import write


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def told_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    report_leftovers()
    return terminal.getvalue().splitlines()


def left_by_a_killed_run(folder: Path, name: str, seconds_ago: float) -> Path:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        ended.wait()
    path = folder / f"perfdoctor-{ended.pid}-{name}.perfdoctor"
    path.write_text("recorded")
    changed = path.stat().st_mtime - seconds_ago
    os.utime(path, (changed, changed))
    return path


def fails(error: BaseException, asked: Path | None = None) -> None:
    """A run that has recorded and then ends like this; {} in the hint stands for its recording."""
    with recording_file(asked) as path:
        path.write_text("recorded")
        if isinstance(error, PerfDoctorError):
            error.next_move, error.recording = error.hint.format(path), path
        raise error


def test_what_has_served_is_removed(folder: Path) -> None:
    with recording_file(None) as path:
        path.write_text("recorded")
    assert not list(folder.iterdir())


def test_what_the_user_is_told_of_is_kept_and_not_told_of_again() -> None:
    with pytest.raises(PerfDoctorError) as raised:
        fails(PerfDoctorError("The report cannot be written.", hint="perfdoctor report {} --report FILE.html"))
    kept = Path(raised.value.hint.split()[2])
    assert kept.read_text() == "recorded"
    assert leftovers() == []


def test_an_interruption_names_what_is_kept() -> None:
    with pytest.raises(PerfDoctorError) as raised:
        fails(KeyboardInterrupt())
    assert Path(raised.value.hint.split()[-1]).read_text() == "recorded"


@pytest.mark.parametrize("named", [True, False])
def test_an_interruption_before_anything_was_recorded_names_no_file(folder: Path, *, named: bool) -> None:
    asked = folder / "mine.perfdoctor" if named else None
    with pytest.raises(KeyboardInterrupt), recording_file(asked):
        raise KeyboardInterrupt
    assert not list(folder.iterdir())


def test_a_file_that_the_user_named_keeps_its_name(folder: Path) -> None:
    asked = folder / "mine.perfdoctor"
    with pytest.raises(PerfDoctorError, match="cannot be written"):
        fails(PerfDoctorError("It cannot be written.", hint="perfdoctor report {}"), asked)
    assert asked.read_text() == "recorded"


def test_many_killed_runs_are_told_of_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = folder / f"perfdoctor-{os.getpid()}-running.perfdoctor"
    running.write_text("recorded")
    left = [left_by_a_killed_run(folder, f"left{number}", 200 * number) for number in (3, 1, 2)]
    told, remove = told_on_a_terminal(monkeypatch)
    assert "3 earlier runs were killed" in told
    assert told.endswith(f"perfdoctor report {left[1]}")
    subprocess.run(["sh", "-c", remove.split(": ", 1)[1]], check=True)
    assert list(folder.iterdir()) == [running]


def test_nothing_left_nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told_on_a_terminal(monkeypatch) == []


def test_a_recording_makes_room_for_the_next_one_and_is_kept_beside_it(folder: Path) -> None:
    asked = write(folder / "job.perfdoctor", host="first")
    Path(f"{asked}-journal").write_text("its journal")
    Path(f"{asked}.stacks-7-1-0").write_text("its stacks")
    Path(f"{asked}~").write_text("the one before")
    Path(f"{asked}~.stacks-8-1-0").write_text("stacks of that")
    with recording_file(asked) as path:
        assert path == asked
        assert not path.exists()
        write(path, host="second")
    with Recording.open(asked) as new:
        assert new.meta["host"] == "second"
    assert Path(f"{asked}~-journal").read_text() == "its journal"
    Path(f"{asked}~-journal").unlink()
    assert [file.read_text() for file in folder.glob("*.stacks-*")] == ["its stacks"]
    Path(f"{asked}~.stacks-7-1-0").unlink()
    with Recording.open(f"{asked}~") as old:
        assert old.meta["host"] == "first"


def test_a_link_to_a_recording_stays_a_link(folder: Path) -> None:
    real, link = write(folder / "real.perfdoctor", host="first"), folder / "latest.perfdoctor"
    link.symlink_to(real)
    with recording_file(link) as path:
        write(path, host="second")
    assert link.is_symlink()
    with Recording.open(real) as new:
        assert new.meta["host"] == "second"
    assert (folder / "real.perfdoctor~").exists()


def test_any_other_file_is_left_alone_unless_it_is_forced(folder: Path) -> None:
    precious = folder / "precious"
    precious.write_text("data")
    with pytest.raises(PerfDoctorError, match="is no recording") as caught, recording_file(precious):
        pass
    assert "--force" in caught.value.hint
    assert precious.read_text() == "data"
    with recording_file(precious, force=True) as path:
        write(path)
    assert (folder / "precious~").read_text() == "data"


def test_an_empty_file_is_recorded_into(folder: Path) -> None:
    empty = folder / "empty"
    empty.touch()
    with recording_file(empty) as path:
        write(path)
    assert [file.name for file in folder.iterdir()] == ["empty"]
