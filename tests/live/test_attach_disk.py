"""Disks that are full or may not be written to, where the recording goes and where the reports go."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.attaching import (
    ENVIRONMENT,
    TRAINING,
    Answer,
    Started,
    filling_up,
    is_watched,
    job,
    mounted,
    needs_root,
    perfdoctor,
    refused,
    until,
)

pytestmark = needs_root


@pytest.fixture(scope="module")
def training() -> Iterator[Started]:
    with job(*TRAINING, "--wait-ms", "0.5") as started:
        yield started


def test_a_disk_that_fills_up_while_recording(training: Started, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=4m") as small:
        recording = small / "a.recording"
        with filling_up(recording):
            answer = perfdoctor("attach", training.pid, "--duration", "20", "--recording", recording)
        refused(answer, "cannot be written any more", "full", f"perfdoctor report {recording}")
        assert until(lambda: not is_watched(training.pid), 1.0), "somebody stayed"
        again = perfdoctor("report", recording, "--json", tmp_path / "a.json")
    assert "Traceback" not in again.err
    assert again.told["job"]["watched_seconds"] > 0


def test_a_disk_that_is_full_from_the_start(training: Started, tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=8k") as full:
        answer = perfdoctor("attach", training.pid, "--duration", "20", "--recording", full / "a.recording")
    refused(answer, "cannot be written", "--recording")


def test_a_full_disk_where_the_report_goes(training: Started, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=16k") as small:
        page, told = small / "a.html", tmp_path / "a.json"
        answer = perfdoctor("attach", training.pid, "--duration", "2.5", "--report", page, "--json", told)
        assert not list(small.iterdir()), "half a report stayed"
    refused(answer, "a.html cannot be written", "No space left", "perfdoctor report")
    assert answer.told, "the other file was not written"
    assert "preparing the input" in answer.out, "the diagnosis was not printed"
    recording = answer.errors[1].split("perfdoctor report ")[1].split()[0]
    assert perfdoctor("report", recording, "--report", tmp_path / "b.html").status == 0
    Path(recording).unlink()


@pytest.mark.parametrize("option", ["--report", "--json", "--recording"])
def test_a_folder_that_may_only_be_read(training: Started, option: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "ro,size=64k") as fixed:
        answer = perfdoctor("attach", training.pid, "--duration", "20", option, fixed / "a")
    refused(answer, "cannot be written", "Choose another place")


def test_no_folder_for_temporary_files(training: Started) -> None:
    """As in a container in which nothing can be written."""
    code = "import sys, tempfile\nfrom perfdoctor.__main__ import main\ntempfile.tempdir = '/proc'\nsys.exit(main())"
    command = [sys.executable, "-c", code, "attach", str(training.pid), "--duration", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    refused(Answer(done.returncode, done.stdout, done.stderr, {}), "temporary file", "--recording FILE")


def test_a_recording_on_a_disk_that_may_only_be_read_can_be_reported(training: Started, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        recording = disk / "a.recording"
        assert perfdoctor("attach", training.pid, "--duration", "2", "--recording", recording).status == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        answer = perfdoctor("report", recording)
    assert answer.status == 0, answer.err
