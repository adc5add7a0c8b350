"""Users add frames of their own libraries; a broken file is reported in one sentence and stops nothing."""

import os
import re
from pathlib import Path

import pytest

from perfdoctor import Recording, examine
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge.frames import PHASES, Frame
from perfdoctor.knowledge.user_frames import DETAILS, VARIABLE, user_frames
from perfdoctor.timeline.code_location import location_of
from tests.files import ROOT
from tests.recordings import corpus, packing

MAIN = Frame("/home/me/train.py", "main", 3)
PUT = Frame("/v/lib/python3.11/site-packages/ourstore/client.py", "Client.put", 80)
PAGE = (ROOT / "docs" / "frames.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.partition("```toml\n")[2].partition("```")[0]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Writes the user's file."""
    times = iter(range(10**9, 10**12))

    def written(text: str | bytes) -> Path:
        file = tmp_path / "frames.toml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        now = next(times)  # two versions may be written within one tick of the file system's clock
        os.utime(file, ns=(now, now))
        monkeypatch.setenv(VARIABLE, str(file))
        return file

    return written


def test_the_example_of_the_page_means_what_the_page_says(write) -> None:  # type: ignore[no-untyped-def]
    assert location_of([MAIN, PUT]).phase == "other"
    write(EXAMPLE)
    assert user_frames().problem == ""
    assert location_of([MAIN, PUT, Frame("/usr/lib/python3.11/json/encoder.py", "encode", 9)]).phase == "saving"
    assert location_of([MAIN, Frame("/home/me/myourstore/client.py", "put", 9)]).phase == "other"
    assert location_of([MAIN, Frame(PUT.file, "Client.get", 9)]).phase == "other"
    data = location_of([MAIN, Frame("/v/lib/python3.11/site-packages/ourdata/jpeg.py", "decode", 9)])
    assert (data.phase, data.detail) == ("data", "fetch")
    take = location_of([MAIN, Frame("/srv/ourbus/channel.py", "Channel.take", 9)])
    assert (take.phase, take.waits, take.only_waits) == ("other", True, False)


def test_the_page_names_every_phase_and_detail() -> None:
    named = set(re.findall(r"`([^`\n]+)`", PAGE.replace("```", "")))
    assert set(PHASES) | set(DETAILS) <= named


def test_the_file_in_the_folder_of_settings_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_frames().rows == ()
    assert user_frames().problem == ""
    (tmp_path / "perfdoctor").mkdir()
    (tmp_path / "perfdoctor" / "frames.toml").write_text(EXAMPLE)
    assert location_of([MAIN, PUT]).phase == "saving"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[[frame", "None of the frames in"),
        (b"\xff\xfe\x00", "None of the frames in"),
        ("frame = 3", "its rows are not [[frame]] tables"),
        ("[frames]", "it has frames beside its [[frame]] rows"),
        ("[[frame]]\nphase = 'saving'", "row 1 has no file"),
        ("[[frame]]\nfile = 'a'", "row 1 has neither a phase nor waits = true"),
        ("[[frame]]\nfile = 'a'\nphase = 'savng'", "phase of row 1 is 'savng', and none of data, transfer"),
        ("[[frame]]\nfile = 'a'\nphase = ''", "phase of row 1 is ''"),
        ("[[frame]]\nfile = 'a'\nphase = ['data']", "phase of row 1 is ['data']"),
        ("[[frame]]\nfile = 'a'\nphase = 'data'\ndetail = 'worker'", "detail of row 1 is 'worker'"),
        ("[[frame]]\nfile = 'a('\nphase = 'data'", "file of row 1 is no regular expression"),
        ("[[frame]]\nfile = 'a'\nphase = 'data'\nfunctions = 'put'", "functions of row 1 is no list"),
        ("[[frame]]\nfile = 'a'\nphase = 'data'\nfunctions = ['A.put']", "functions of row 1 is no list"),
        ("[[frame]]\nfile = 'a'\nphase = 'data'\nwaits = 1", "waits of row 1 is neither true nor false"),
        ("[[frame]]\nfile = 'a'\nphase = 'data'\nwhat = 1", "row 1 has what; a row has file, functions"),
    ],
)
def test_a_broken_file_is_reported_in_one_sentence(write, text: str | bytes, mistake: str) -> None:  # type: ignore[no-untyped-def]
    file = write(text)
    found = user_frames()
    assert (found.rows, found.waiting) == ((), ())
    assert mistake in found.problem
    assert str(file) in found.problem
    assert "\n" not in found.problem


def test_a_file_that_is_named_and_missing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    assert "cannot be read: No such file" in user_frames().problem
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert "cannot be read: Is a directory" in user_frames().problem


def diagnosed(tmp_path: Path) -> Diagnosis:
    file = tmp_path / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"element_loops{corpus.SUFFIX}", file)
    recording = Recording.open(file)
    diagnosis = examine(recording)
    recording.close()
    return diagnosis


def test_a_recording_is_diagnosed_by_the_users_frames(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As if the loop that takes the time were a library's that logs."""
    assert diagnosed(tmp_path).verdict.cause == "cpu.python_overhead"
    write("[[frame]]\nfile = 'element_loops/train\\.py'\nfunctions = ['count_by_element']\nphase = 'logging'")
    changed = diagnosed(tmp_path)
    assert changed.verdict.cause == "io.log_write"
    write("[[frame]]\nfile = 'element_loops/train\\.py'\nphase = 'loging'")
    broken = diagnosed(tmp_path)
    assert broken.verdict.cause == "cpu.python_overhead"
    reported = [one for one in broken.not_examined if one.probe == "frames"]
    assert len(reported) == 1
    assert "row 1 is 'loging'" in reported[0].reason
    assert "[[frame]]" in reported[0].enable
