"""Which processes are traced, and what is said where none is."""

import os
from pathlib import Path

import pytest

from perfdoctor.capture import trace_check, trace_job
from perfdoctor.capture.shared_folder import NoRoomError, SharedFolder
from perfdoctor.recording.schema import Unavailable


def test_says_that_nobody_trains() -> None:
    (row,) = trace_job.trace([])
    assert isinstance(row, Unavailable)
    assert "No process that trains" in row.reason


def test_says_how_many_were_left_out() -> None:
    gone = [(1 << 22) - number for number in range(9)]  # above the largest process id
    rows = list(trace_job.trace(gone))
    assert all(isinstance(row, Unavailable) for row in rows)
    assert "first 8" in rows[0].reason
    assert len(rows) == 9


def test_every_reason_is_a_sentence() -> None:
    details = {"old_torch": ["2.0.1."], "watched": ["it is watched by a debugger."]}
    for why in trace_check._INSIDE:
        assert trace_check.refused_inside(why, *details.get(why, [])).reason.endswith(".")
    assert trace_check.refused_inside("unheard of").reason == "The process was not traced: unheard of."


def test_a_shared_folder_goes_with_all_in_it(tmp_path: Path) -> None:
    folder = SharedFolder(os.getpid(), (f"{tmp_path}/missing", str(tmp_path)))
    folder.write("a", "text")
    assert (Path(folder.inner) / "a").read_text() == "text"
    assert os.stat(folder.inner).st_mode & 0o777 == 0o700
    folder.remove()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_says_why_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NoRoomError, match="missing: No such file"):
        SharedFolder(os.getpid(), (f"{tmp_path}/missing",))
