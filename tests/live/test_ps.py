"""The training jobs of this host, as perfdoctor lists them; others may run beside those that a test has started."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.attaching import (
    AS_NOBODY,
    ENVIRONMENT,
    PERFDOCTOR,
    SILENT,
    TARGETS,
    TRAINING,
    job,
    needs_root,
    perfdoctor,
    until,
)
from tests.processes.insiding import TRAIN

pytestmark = pytest.mark.alone


def jobs(pid: int) -> list[dict[str, Any]]:
    """The jobs that a process trains in, as they are listed."""
    answer = perfdoctor("ps", "--json")
    assert answer.status == 0, answer.err
    return [one for one in json.loads(answer.out)["jobs"] if pid in one["trainers"]]


def listed(pid: int) -> dict[str, Any]:
    """What is said of one job."""
    (one,) = jobs(pid)
    return one


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_a_trainer_with_its_workers(start: str) -> None:
    # Two workers that speak at once may run into each other's lines: nobody listens.
    with job(*TRAINING, "--item-ms", "1", "--workers", "2", "--start", start, ready="") as training:
        assert until(lambda: [one["workers"] for one in jobs(training.pid)] == [2], 60)
        told = listed(training.pid)
    assert told["trainers"] == [training.pid]
    assert told["ranks"] == 1
    assert "job_training.py" in told["command"]
    assert told["cores"] > 0.1
    assert not told["idle"]
    assert told["memory_bytes"] > 50 << 20
    assert told["age_s"] > 0
    assert told["gpus"] == []
    assert told["steps_per_s"] is None


def test_ranks_are_one_job_and_their_launcher_no_rank() -> None:
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with job(*launch, str(TARGETS / "job_ranks.py"), ready="") as launcher:
        ranks = {launcher.wait_for("rank") for _ in range(2)}
        told = listed(min(ranks))
    assert set(told["trainers"]) == ranks
    assert told["ranks"] == 2
    assert told["workers"] == 0


SPAWNING = """
import os, time, torch

def rank(number):
    os.write(1, f"rank {os.getpid()}\\n".encode())  # in one piece: both write at once
    time.sleep(60)

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
"""


def test_ranks_that_a_program_spawns_are_told_by_its_command(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    with job(sys.executable, str(script), ready="") as parent:
        ranks = {parent.wait_for("rank") for _ in range(2)}
        told = listed(min(ranks))
    assert set(told["trainers"]) == ranks
    assert told["command"].endswith("spawning.py")


def test_steps_per_second_are_known_where_they_are_marked(tmp_path: Path) -> None:
    temporary = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    with job(*TRAIN, "--observe", "100000", "--item-ms", "1", ready="", env=temporary) as marked:
        assert until(lambda: any(one["steps_per_s"] for one in jobs(marked.pid)), 60)


def test_what_has_torch_and_does_nothing_is_idle_in_the_table() -> None:
    with job(*SILENT, "sleep") as silent:
        lines = perfdoctor("ps").out.splitlines()
    (line,) = (line for line in lines if line.split()[0] == str(silent.pid))
    assert " idle " in line
    assert "job_silent.py sleep" in line


@needs_root
def test_processes_of_others_are_counted_and_not_guessed_at() -> None:
    with job(*SILENT, "sleep") as theirs:
        answer = perfdoctor("ps", "--json", prefix=AS_NOBODY)
        told = json.loads(answer.out)
    assert not any(theirs.pid in one["trainers"] for one in told["jobs"])
    assert told["not_read"]["processes"] >= 1
    assert "belongs to root" in told["not_read"]["reason"]
    assert told["not_read"]["enable"].endswith("ps")


def test_attach_asks_on_a_terminal_which_job_is_meant(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    told = tmp_path / "a.json"
    with job(*TRAINING, "--item-ms", "1") as first, job(*TRAINING, "--item-ms", "1") as second:
        command = [*PERFDOCTOR, "attach", "--duration", "1", "--json", str(told)]
        with subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, env=ENVIRONMENT, start_new_session=True
        ) as asking:
            os.close(theirs)
            shown = ""
            while "nothing for none:" not in shown:
                shown += os.read(ours, 65536).decode()
            number = re.search(rf"^\s*(\d+)\s+{second.pid}\s", shown, re.MULTILINE)
            assert number is not None, shown
            assert re.search(rf"^\s*\d+\s+{first.pid}\s", shown, re.MULTILINE)
            os.write(ours, f"{number[1]}\n".encode())
            while asking.poll() is None:
                try:
                    shown += os.read(ours, 65536).decode()
                except OSError:  # its end is closed
                    break
            asking.wait()
    os.close(ours)
    assert f"attaching to {second.pid}" in shown
    assert json.loads(told.read_text())["job"]["pid"] == second.pid
