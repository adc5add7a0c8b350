"""``with diagnose():`` where something dies, forks, or runs in several processes."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes.readers.procfs import is_running
from tests.processes.attaching import ENVIRONMENT, Started, is_a_diagnosis, job, until
from tests.processes.insiding import ENOUGH, PATIENCE_S, SCRIPT, TRAIN, run_inside

FOREVER = ("--item-ms", "1", "--observe", "1000000", "--seconds", str(PATIENCE_S))


def sidecar_of(started: Started) -> psutil.Process:
    """The sidecar of a training process."""
    children = psutil.Process(started.pid).children()
    found = [child for child in children if "perfdoctor.capture.sidecar" in " ".join(child.cmdline())]
    assert len(found) == 1
    return found[0]


def recorded_steps(recording: Path) -> int:
    """How many observed steps have been recorded so far."""
    if not recording.exists():
        return 0
    with closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as db, suppress(sqlite3.OperationalError):
        return int(db.execute("SELECT count(*) FROM Mark WHERE what = 'step'").fetchone()[0])
    return 0  # it is being written


def wait_for_steps(recording: Path, count: int = 60) -> None:
    """Waits until so many observed steps have been recorded."""
    assert until(lambda: recorded_steps(recording) >= count, PATIENCE_S), "no steps were recorded"


@pytest.mark.alone  # its verdict counts
def test_killed_job_is_reported(tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "a.json"), "--recording", str(tmp_path / "a.perfdoctor"))
    with job(*TRAIN, *FOREVER, *files, stderr=subprocess.PIPE, cwd=tmp_path) as started:
        wait_for_steps(tmp_path / "a.perfdoctor")
        sidecar = sidecar_of(started)
        started.process.send_signal(signal.SIGKILL)
        assert started.process.stderr is not None
        said = started.process.stderr.read()  # to the end of the sidecar
        assert until(lambda: not is_running(sidecar.pid)), "the sidecar stayed"
    told = json.loads((tmp_path / "a.json").read_text())
    is_a_diagnosis(told)
    assert told["verdict"]["cause"] == "cpu.input_preprocessing"
    assert told["job"]["stopped"] == "job ended"
    assert told["steps"]["count"] > 30
    assert "preparing the input" in said


def test_killed_sidecar_is_not_noticed(tmp_path: Path) -> None:
    command = (*TRAIN, "--item-ms", "1", "--steps", "250", "--recording", str(tmp_path / "a.perfdoctor"))
    with job(*command, stderr=subprocess.PIPE, cwd=tmp_path) as started:
        wait_for_steps(tmp_path / "a.perfdoctor", 10)
        sidecar_of(started).kill()
        out, err = started.process.communicate(timeout=60)
        assert started.process.returncode == 0
        assert "clean" in out
        assert "there is no report" in err
        assert "Traceback" not in err


def test_forked_child_is_left_alone(tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--way", "fork")
    assert run.said["warned"] == "1"
    assert run.told["steps"]["count"] == 60


def test_loader_worker_is_left_alone(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--way", "worker", "--workers", "1", "--observe", "60", "--item-ms", "1")
    assert run.status == 0, run.err
    assert run.err.count("RuntimeWarning") == 1
    assert run.told["steps"]["count"] == 60


@pytest.mark.alone  # two ranks keep two cores busy
def test_ranks_are_watched_together(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", SCRIPT)
    run = run_inside(
        tmp_path, "--ranks", "--way", "loop", "--steps", "300", "--observe", "100", "--item-ms", "1", launcher=launcher
    )
    assert run.status == 0, run.err
    assert run.told["verdict"]["level"] == "measured inside"
    assert [rank["rank"] for rank in run.told["ranks"]] == [0, 1]
    assert all(rank["steps"]["count"] > 50 for rank in run.told["ranks"])
    assert run.err.count("bottleneck:") >= 1
    assert run.told["verdict"]["cause"] == "cpu.input_preprocessing"


def test_no_room_for_the_ring(tmp_path: Path) -> None:
    """Training goes on where memory cannot be had."""
    script = (
        "import os, torch\nfrom perfdoctor import diagnose\n"
        "def full(*_): raise OSError(28, 'No space left on device')\n"
        "os.posix_fallocate = full\n"
        "for _ in range(3):\n    with diagnose() as doctor: pass\n"
        "print('done', doctor.diagnosis)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path, env=ENVIRONMENT
    )
    assert done.stdout == "done None\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert not list(tmp_path.iterdir())
