"""Watching that ends early: the job ends or is killed, or perfdoctor is; nothing is lost and nothing stays behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.recording.own_source import SourceLine
from perfdoctor.recording.reader import Recording
from tests.processes.attaching import (
    ENVIRONMENT,
    SILENT,
    TRAINING,
    Started,
    attached,
    in_call,
    is_a_diagnosis,
    is_watched,
    job,
    perfdoctor,
    until,
    watched_for,
)


@pytest.fixture(scope="module")
def training() -> Iterator[Started]:
    with job(*TRAINING, "--wait-ms", "0.5") as started:
        yield started


def test_a_job_that_ends_by_itself_is_diagnosed(tmp_path: Path) -> None:
    with job(*TRAINING, "--wait-ms", "0.5", "--seconds", "8") as short:
        answer = perfdoctor("attach", short.pid, "--duration", "30", "--json", tmp_path / "a.json", timeout=30)
    assert answer.status == 0, answer.err
    assert answer.told["job"]["stopped"] == "job ended"
    assert answer.told["verdict"]["cause"] == "cpu.input_preprocessing"


# Its interpreter takes seconds to take all that apart, with the collector at work.
EXITING = """
import time, torch
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = [{"number": number, "parts": [number]} for number in range(3_000_000)]
batch = torch.randn(64, 256)
print("ready 0", flush=True)
end = time.monotonic() + 8  # the last stack of training counts for up to 0.4 s: that is to be little of it
while time.monotonic() < end:
    optimizer.zero_grad(); model(batch).mean().backward(); optimizer.step()
"""


def test_an_interpreters_exit_is_no_training(tmp_path: Path) -> None:
    with job(sys.executable, "-c", EXITING) as short:
        answer = perfdoctor("attach", short.pid, "--duration", "30", "--json", tmp_path / "a.json", timeout=40)
    shares = {part["cause"]: part["share"] for part in answer.told["breakdown"]}
    assert answer.told["job"]["stopped"] == "job ended"
    assert shares.get("cpu.garbage_collection", 0.0) < 0.1, shares
    assert any("after it had ended its training" in note["reason"] for note in answer.told["not_examined"])


def test_a_job_that_is_killed_is_diagnosed(tmp_path: Path) -> None:
    kept = ("--recording", tmp_path / "a.recording")
    with job(*TRAINING, "--wait-ms", "0.5") as victim, attached(victim.pid, "--duration", "30", *kept) as watching:
        assert until(lambda: watched_for(kept[1], 2.5))
        os.kill(victim.pid, signal.SIGKILL)
        out, err = watching.communicate(timeout=20)
    assert watching.returncode == 0, err
    assert "preparing the input" in out
    with Recording.open(kept[1]) as recording:
        assert recording.rows(SourceLine), "its files can be read still"


def test_interrupted_while_it_loads_it_says_so_in_one_sentence(training: Started, tmp_path: Path) -> None:
    with attached(training.pid, "--report", tmp_path / "a.html") as watching:
        maps = Path(f"/proc/{watching.pid}/maps")
        until(lambda: "numpy" in maps.read_text())
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert (out, err) == ("", "perfdoctor: Interrupted before anything was recorded.\n")
    assert not list(tmp_path.iterdir())


def test_a_job_that_ends_at_once_is_refused() -> None:
    with job(*SILENT, "sleep", "plain") as brief, attached(brief.pid, "--duration", "30") as watching:
        until(lambda: Path(f"/proc/{watching.pid}/fd").exists() and len(os.listdir(f"/proc/{watching.pid}/fd")) > 8)
        os.kill(brief.pid, signal.SIGKILL)
        _, err = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert "Traceback" not in err
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_seen_before_an_interruption_is_diagnosed(training: Started, number: int, tmp_path: Path) -> None:
    told, kept = tmp_path / "a.json", tmp_path / "a.recording"
    with attached(training.pid, "--duration", "60", "--json", told, "--recording", kept) as watching:
        assert until(lambda: watched_for(kept, 2.5))
        os.killpg(watching.pid, number)
        out, err = watching.communicate(timeout=20)
    assert watching.returncode == 0, err
    assert err == ""
    assert "preparing the input" in out
    assert '"interrupted"' in told.read_text()
    assert not is_watched(training.pid)
    assert training.process.poll() is None


def test_an_interruption_during_the_start_leaves_nothing_behind(training: Started, tmp_path: Path) -> None:
    for delay in (0.05, 0.3, 0.6):
        with attached(training.pid, "--duration", "60", "--recording", tmp_path / f"{delay}") as watching:
            time.sleep(delay)
            os.killpg(watching.pid, signal.SIGTERM)
            _, err = watching.communicate(timeout=20)
        assert "Traceback" not in err
        assert until(lambda: not is_watched(training.pid), 1.0)


def test_a_killed_perfdoctor_leaves_a_recording_and_an_unharmed_job(training: Started, tmp_path: Path) -> None:
    for delay in (0.0, 0.7, 1.5, 2.4):
        recording = tmp_path / f"{delay}.recording"
        with attached(training.pid, "--duration", "60", "--recording", recording) as watching:
            # How long perfdoctor takes to start depends on what else runs on the machine.
            assert until(lambda: recording.exists() and recording.stat().st_size, 20)  # noqa: B023
            time.sleep(delay)
            os.kill(watching.pid, signal.SIGKILL)
            watching.communicate()
        assert until(lambda: not is_watched(training.pid)), "somebody stayed"
        with Recording.open(recording) as left:
            assert left.stacks() or delay < 2
        told = tmp_path / f"{delay}.json"
        answer = perfdoctor("report", recording, "--json", told, "--report", tmp_path / f"{delay}.html")
        assert "Traceback" not in answer.err
        assert answer.status in (0, 1)
        is_a_diagnosis(answer.told)
        assert answer.told["job"]["stopped"] == "recorder was killed"
        assert (tmp_path / f"{delay}.html").stat().st_size > 1000
    assert training.process.poll() is None


def test_a_killed_perfdoctor_without_a_recording_to_keep_is_told_of_later(training: Started, tmp_path: Path) -> None:
    folder = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    with attached(training.pid, "--duration", "60", env=folder) as watching:
        assert until(lambda: any(watched_for(recording, 1) for recording in tmp_path.glob("*.perfdoctor")))
        os.kill(watching.pid, signal.SIGKILL)
        watching.communicate()
    (left,) = tmp_path.glob("*.perfdoctor")
    command = ["script", "-qec", f"{SILENT[0]} -m perfdoctor attach {training.pid} --duration 1", "/dev/null"]
    said = subprocess.run(command, env=folder, capture_output=True, text=True, timeout=60, check=False).stdout
    assert f"an earlier run was killed; what it recorded is kept: perfdoctor report {left}" in " ".join(said.split())
    assert f"To be rid of it: rm {left}" in " ".join(said.split())
    assert list(tmp_path.glob("*.perfdoctor")) == [left]
    assert perfdoctor("report", left).status in (0, 1)
    assert until(lambda: not is_watched(training.pid)), "somebody stayed"


def test_an_ignored_signal_stays_ignored(training: Started) -> None:
    assert until(lambda: not is_watched(training.pid)), "by whoever the test before has started"
    command = f"trap '' HUP; exec {SILENT[0]} -m perfdoctor attach {training.pid} --duration 4"
    with job("bash", "-c", command, ready="") as watching:
        assert until(lambda: is_watched(training.pid))
        os.kill(watching.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert until(lambda: is_watched(training.pid), 2)
        out, _ = watching.process.communicate(timeout=20)
    assert "preparing the input" in out


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_matter(training: Started, tmp_path: Path, closed: str) -> None:
    assert until(lambda: not is_watched(training.pid)), "by whoever the test before has started"
    told = tmp_path / "a.json"
    command = f"{SILENT[0]} -m perfdoctor attach {training.pid} --duration 4 --json {told} {closed}"
    assert subprocess.run(["bash", "-c", command], timeout=60, check=False).returncode == 0
    is_a_diagnosis(json.loads(told.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_later_interruption_says_where_the_recording_is(training: Started, number: int, tmp_path: Path) -> None:
    """Ctrl-C, `timeout` or a closed terminal while the diagnosis is written, here to a pipe that nobody reads."""
    os.mkfifo(tmp_path / "pipe")
    with attached(training.pid, "--duration", "2", "--json", tmp_path / "pipe") as watching:
        assert until(lambda: in_call(watching.pid, "openat"))  # an open for writing waits for a reader
        os.killpg(watching.pid, number)
        _, err = watching.communicate(timeout=20)
    assert watching.returncode == 1
    lines = err.splitlines()
    assert lines[0] == "perfdoctor: Interrupted before the diagnosis was made."
    recording = lines[1].split()[-1]
    assert perfdoctor("report", recording).status == 0
    os.unlink(recording)


def test_a_stopped_job_is_named_so_however_briefly_it_is_watched(training: Started) -> None:
    os.kill(training.pid, signal.SIGSTOP)
    try:
        answer = perfdoctor("attach", training.pid, "--duration", "2")
    finally:
        os.kill(training.pid, signal.SIGCONT)
    assert answer.status == 0
    assert f"process {training.pid} is stopped" in answer.out
    assert f"kill -CONT {training.pid}" in answer.out


def test_perfdoctor_does_not_diagnose_itself(tmp_path: Path) -> None:
    """A shell as PID that has perfdoctor for a child, and a trainer for another."""
    told = tmp_path / "a.json"
    script = (
        f"{' '.join(TRAINING)} --wait-ms 0.5 & sleep 4\n"
        f"{SILENT[0]} -m perfdoctor attach $$ --duration 3 --json {told}; echo done $?; wait"
    )
    with job("bash", "-c", script) as shell:
        assert shell.wait_for("done") == 0
        answer = told.read_text()
    assert '"cpu.input_preprocessing"' in answer
    assert '"trainers": 1' in answer
    assert '"processes": 2' in answer


def test_the_process_group_of_a_shell_gets_ctrl_c(training: Started) -> None:
    with attached(training.pid, "--duration", "60") as watching:
        assert until(lambda: is_watched(training.pid))
        os.killpg(watching.pid, signal.SIGINT)
        try:
            watching.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            pytest.fail("Ctrl-C did not end the watching")
