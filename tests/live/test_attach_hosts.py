"""`attach --job` on each host of a job: which processes are meant, how recordings come together, what can go wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.capture.gathering import take_place
from perfdoctor.probes.readers.environment import environment_of
from tests.files import TARGETS
from tests.processes.attaching import (
    ENVIRONMENT,
    PATIENCE_S,
    TRAINING,
    job,
    mounted,
    perfdoctor,
    refused,
)
from tests.processes.hosts import NEEDS_HOSTS, free_port, on_host
from tests.processes.interpreters import interpreter

pytestmark = NEEDS_HOSTS

SRUN = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0"}


def told(*commands: subprocess.Popen[str]) -> list[str]:
    """What commands have printed, once all are through."""
    return [command.communicate(timeout=PATIENCE_S)[0] for command in commands]


def start(name: str, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        on_host(name, script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    )


def analyzed(folder: Path, told: Path) -> dict[str, Any]:
    answer = perfdoctor("analyze", folder, "--json", told)
    assert answer.told, answer
    return answer.told


TORCHRUN = (
    "torchrun --nnodes 2 --node-rank {number} --nproc-per-node 2 --rdzv-id night-run --master-addr 127.0.0.1 "
    "--master-port {port} {script} > {folder}/{number}.txt 2>&1 &\n"
)


def test_two_nodes_of_torchrun_become_one_job(tmp_path: Path) -> None:
    """perfdoctor is started before there is a rank on either."""
    shared = tmp_path / "shared"
    attach = f"perfdoctor attach --job night-run --wait 200 --duration 5 --gather {shared}"
    launch = {"port": free_port(), "script": TARGETS / "job_ranks.py", "folder": tmp_path}
    hosts = [start(f"node{number}", TORCHRUN.format(number=number, **launch) + attach) for number in range(2)]
    said = told(*hosts)
    names = sorted(path.name for path in shared.iterdir())
    assert len(names) == 2, said
    assert {name[:10] for name in names} == {"rank00000-", "rank00002-"}, said
    assert {name[10:] for name in names} == {"node0.perfdoctor", "node1.perfdoctor"}
    assert sum("ranks 0, 1 of 4" in one and "perfdoctor analyze" in one for one in said) == 1
    assert sum("ranks 2, 3 of 4" in one for one in said) == 1
    take_place(str(shared), "node2", [4])  # of a host that died
    job = analyzed(shared, tmp_path / "a.json")
    assert sorted(rank["rank"] for rank in job["ranks"]) == [0, 1, 2, 3]
    assert {rank["host"] for rank in job["ranks"]} == {"node0", "node1"}
    assert any("rank00004-node2.perfdoctor" in one["reason"] for one in job["not_examined"])
    (shared / names[1]).unlink()
    one_is_missing = perfdoctor("report", shared / names[0], "--json", tmp_path / "b.json").told
    assert any(one["probe"] == "ranks" for one in one_is_missing["not_examined"])


LISTS = "until perfdoctor ps --json > {to} && {python} -c '{check}' {to}; do sleep 0.5; done"
CHECK = 'import json, sys; jobs = json.load(open(sys.argv[1]))["jobs"]; sys.exit([one["ranks"] for one in jobs] != [2])'


@pytest.mark.parametrize("way", ["", "names"])
def test_tasks_of_srun_are_one_job(way: str, tmp_path: Path) -> None:
    """Each is a tree of its own; torch's variables are set by the script itself, or not at all."""
    task = (
        f"export MEETING=tcp://127.0.0.1:{free_port()} SLURM_STEP_NUM_TASKS=2\n"
        "for one in 0 1; do\n"
        f"  SLURM_PROCID=$one SLURM_LOCALID=$one setsid {sys.executable} {TARGETS / 'job_tasks.py'} {way} &\n"
        "done\n"
    )
    list_jobs = LISTS.format(to=tmp_path / "jobs.json", python=sys.executable, check=CHECK)
    command = on_host("node0", task + list_jobs)
    done = subprocess.run(command, env={**ENVIRONMENT, **SRUN}, timeout=PATIENCE_S, capture_output=True, check=False)
    assert done.returncode == 0, done
    (found,) = json.loads((tmp_path / "jobs.json").read_text())["jobs"]
    assert (found["ranks"], found["world"]) == (2, 2)
    assert found["names"][:2] == ["4711.0", "4711"]
    assert len(found["roots"]) == 2


def test_two_jobs_on_one_host_are_named_and_one_is_chosen(tmp_path: Path) -> None:
    train = " ".join(TRAINING)
    script = (
        f"export MASTER_ADDR=127.0.0.1 SLURM_JOB_ID=4711 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0\n"
        f"for one in 0 1; do SLURM_STEP_ID=$one MASTER_PORT=2950$one {train} --item-ms 1 < /dev/null & done\n"
        "unset SLURM_JOB_ID SLURM_PROCID\n"
        "until [ $(perfdoctor ps | wc -l) -eq 3 ]; do sleep 0.5; done\n"
        f"perfdoctor attach --job; echo status $?\n"
        f"perfdoctor attach --job 4711.1 --duration 2 --gather {tmp_path / 'shared'}; echo status $?\n"
    )
    (said,) = told(start("box", script))
    refusal, chosen = said.split("status 1")
    assert "2 training jobs run on this host: 4711." in refusal
    assert all(f"4711.{step}: " in refusal for step in range(2))  # the first one is whichever started first
    assert "perfdoctor attach --job 4711." in refusal
    assert "box, rank 0 of 1: " in chosen
    assert "status 0" in chosen
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["rank00000-box.perfdoctor"]


def test_of_several_tasks_of_a_host_one_watches() -> None:
    second = {**ENVIRONMENT, **SRUN, "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8"}
    answer = perfdoctor("attach", "--job", env=second)
    assert answer.status == 0
    assert answer.err == "perfdoctor: task 0 of this host watches the job; this is task 1.\n"


def test_a_full_shared_folder_leaves_the_recording_here(tmp_path: Path) -> None:
    temporary = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    with mounted(tmp_path / "full", "size=64k") as shared, job(*TRAINING, "--item-ms", "1") as training:
        answer = perfdoctor("attach", training.pid, "--duration", "2", "--gather", shared, env=temporary)
        refused(answer, "could not be copied to", "No space left on device")
        kept = Path(answer.errors[1].rpartition(": ")[2])
        assert [path.stat().st_size for path in shared.iterdir()] == [0]
    assert perfdoctor("report", kept).status == 0


def test_a_folder_that_takes_nothing_is_refused_before_the_watching(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with job(*TRAINING, "--item-ms", "1") as training:
        answer = perfdoctor("attach", training.pid, "--duration", "600", "--gather", tmp_path / "file")
    refused(answer, "Nothing can be written to")


def test_reports_are_left_to_whoever_has_all_recordings() -> None:
    answer = perfdoctor("attach", os.getpid(), "--gather", "/nowhere", "--json", "a.json")
    assert answer.status == 2
    assert "perfdoctor analyze" in answer.err


CHANGES = """
import os, sys
os.environ.update(RANK="5", LONG="x" * 9000)
del os.environ["HOME"]
print("ready 1", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.11", "3.12", "3.13"])
def test_the_environment_is_that_which_a_process_has_now(version: str) -> None:
    variables = {"HOME": "/nowhere", "KEPT": "1", "PATH": "/bin"}
    with job(interpreter(version), "-c", CHANGES, env=variables) as process:
        now = environment_of(process.pid)
    assert now is not None
    assert (now["RANK"], now["KEPT"], len(now["LONG"])) == ("5", "1", 4096 - len("LONG="))
    assert "HOME" not in now
