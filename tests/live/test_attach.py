"""Attach to a job that trains, and make the reports again from the recording."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfdoctor.recording.own_source import SourceCall, SourceLine
from perfdoctor.recording.reader import Recording
from tests.processes.attaching import (
    ENVIRONMENT,
    PERFDOCTOR,
    TRAINING,
    Answer,
    Started,
    is_a_diagnosis,
    is_watched,
    job,
    perfdoctor,
)

PASSWORD = "rosebud-1941"
TOKEN = "tok-48151623"
DURATION_S = "4"


@dataclass
class Watched:
    """One job, watched once for all tests of this file."""

    job: Started
    answer: Answer
    folder: Path


@pytest.fixture(scope="module")
def training() -> Iterator[Started]:
    secrets = ["--db-password", PASSWORD, f"--api-token={TOKEN}"]
    environment = {**ENVIRONMENT, "WANDB_API_KEY": TOKEN, "TORCH_HUB_TOKEN": TOKEN}
    note = "<script>alert('x')</script>\n\""
    with job(*TRAINING, "--wait-ms", "0.5", *secrets, "--note", note, env=environment) as started:
        yield started


@pytest.fixture(scope="module")
def watched(training: Started, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("watched")
    answer = perfdoctor(
        "attach", training.pid, "--duration", DURATION_S,
        "--json", folder / "a.json", "--report", folder / "a.html", "--recording", folder / "a.recording",
    )  # fmt: skip
    return Watched(training, answer, folder)


def test_names_the_planted_cause(watched: Watched) -> None:
    assert watched.answer.status == 0, watched.answer.err
    assert watched.answer.told["verdict"]["cause"] == "cpu.input_preprocessing"
    assert "job_training.py" in watched.answer.told["verdict"]["summary"]
    assert "preparing the input" in watched.answer.out


def test_says_nothing_extra_in_a_pipe(watched: Watched) -> None:
    assert watched.answer.err == ""
    assert "\x1b" not in watched.answer.out


def test_json_keeps_the_contract(watched: Watched) -> None:
    is_a_diagnosis(watched.answer.told)
    assert watched.answer.told["job"]["pid"] == watched.job.pid
    assert watched.answer.told["overhead"]["cpu_cores"] > 0


def test_the_job_goes_on(watched: Watched) -> None:
    assert watched.job.process.poll() is None
    assert not is_watched(watched.job.pid)


def test_reports_can_be_made_again_from_the_recording(watched: Watched) -> None:
    folder = watched.folder
    again = perfdoctor("report", folder / "a.recording", "--json", folder / "b.json", "--report", folder / "b.html")
    assert again.status == 0
    assert again.out == watched.answer.out
    for kind in ("json", "html"):
        assert (folder / f"a.{kind}").read_bytes() == (folder / f"b.{kind}").read_bytes()


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN])
def test_no_secret_leaves_the_job(watched: Watched, secret: str) -> None:
    assert len(list(watched.folder.iterdir())) >= 3
    for file in watched.folder.iterdir():
        assert secret.encode() not in file.read_bytes(), file
    assert secret not in watched.answer.out
    assert "***" in watched.answer.told["job"]["command"]


def test_what_the_command_line_says_is_data(watched: Watched) -> None:
    page = (watched.folder / "a.html").read_text()
    assert "alert(" in page
    assert "<script>alert(" not in page
    assert "<script>alert('x')</script>\n\"" in watched.answer.told["job"]["command"]


def test_the_page_has_the_source_around_the_line_that_costs_most(watched: Watched) -> None:
    page = (watched.folder / "a.html").read_text()
    assert '<table class="source">' in page
    assert ">time.sleep(self.options.wait_ms / 1000)</code>" in page
    assert "time.sleep(self.options" not in watched.answer.out


def test_a_change_is_shown_in_the_jobs_own_call(watched: Watched) -> None:
    changes = [fix["change"] for finding in watched.answer.told["findings"] for fix in finding["fixes"]]
    own = re.compile(
        r"# job_training\.py:\d+\nloader = DataLoader\(Digits\(options\), options\.batch, num_workers=\d+, "
    )
    assert any(own.match(change) for change in changes), changes


def test_source_is_left_out_where_it_is_not_wanted(training: Started, tmp_path: Path) -> None:
    kept = tmp_path / "a.recording"
    answer = perfdoctor("attach", training.pid, "--duration", "1.5", "--no-source", "--recording", kept)
    assert answer.status == 0, answer.err
    with Recording.open(kept) as recording:
        assert recording.stacks()
        assert recording.rows(SourceLine) == []
        assert recording.rows(SourceCall) == []


def test_nothing_temporary_stays(training: Started, tmp_path: Path) -> None:
    answer = perfdoctor("attach", training.pid, "--duration", "1.5", env={**ENVIRONMENT, "TMPDIR": str(tmp_path)})
    assert answer.status == 0, answer.err
    assert not list(tmp_path.iterdir())


def test_shows_progress_on_a_terminal(training: Started) -> None:
    main, side = pty.openpty()
    with subprocess.Popen(
        [*PERFDOCTOR, "attach", str(training.pid), "--duration", "2"],
        stdout=subprocess.DEVNULL,
        stderr=side,
        env={**ENVIRONMENT, "TERM": "xterm"},
    ) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                shown += os.read(main, 65536)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0
    os.close(main)
    assert b"watching the job" in shown
    assert shown.count(b"watching the job") >= 2


def test_a_terminal_gets_colours_unless_told_otherwise(watched: Watched) -> None:
    def shown(**environment: str) -> bytes:
        main, side = pty.openpty()
        command = [*PERFDOCTOR, "report", str(watched.folder / "a.recording")]
        with subprocess.Popen(command, stdout=side, env={**ENVIRONMENT, **environment}) as process:
            os.close(side)
            text = b""
            while True:
                try:
                    text += os.read(main, 65536)
                except OSError:
                    break
            assert process.wait() == 0
        os.close(main)
        return text

    assert b"\x1b[" in shown(TERM="xterm")
    assert b"\x1b[" not in shown(TERM="xterm", NO_COLOR="1")


def test_a_reader_that_goes_away_does_not_lose_the_files(training: Started, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    command = f"{' '.join(PERFDOCTOR)} attach {training.pid} --duration 1.5 --json {file} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert "Traceback" not in done.stderr
    assert file.exists()


def test_json_to_standard_output_leaves_the_device_alone(watched: Watched) -> None:
    recording = watched.folder / "a.recording"
    answer = perfdoctor("report", recording, "--json", "/dev/stdout")
    assert answer.status == 0, answer.err
    assert '"schema": 1' in answer.out
    assert os.path.islink("/dev/stdout")
