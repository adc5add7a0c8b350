"""Jobs that real launchers have started: all ranks are found, with their numbers and world size, nobody else counts as
one, and the slow one is named.
"""

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT, Started, job, perfdoctor, until
from tests.processes.hosts import free_port

LAUNCHED, LIGHTNING = str(TARGETS / "launched.py"), str(TARGETS / "launched_lightning.py")
TWO = ("-np", "2", sys.executable, LAUNCHED, "variables", "{told}", "tcp://127.0.0.1:{port}")
# By the name of what has to be there: how it starts ranks.
COMMANDS = {
    "mpirun.openmpi": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", *TWO, "OMPI_COMM_WORLD_RANK"),
    "mpiexec.hydra": ("mpiexec.hydra", "-launcher", "fork", *TWO, "PMI_RANK"),
    "accelerate": (
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"),
        *("--num_processes", "2", "--mixed_precision", "no", "--dynamo_backend", "no"),
        *("--main_process_port", "{port}", LAUNCHED, "accelerate", "{told}"),
    ),
    "lightning": (sys.executable, LIGHTNING, "{told}", "ddp"),
    "lightning that spawns": (sys.executable, LIGHTNING, "{told}", "ddp_spawn"),
    "deepspeed": (
        *(sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", "{port}"),
        *(LAUNCHED, "deepspeed", "{told}"),
    ),
    "ray": (sys.executable, LAUNCHED, "ray", "{told}"),
    "torch that spawns": (sys.executable, LAUNCHED, "spawning", "{told}", "file://{told}.store"),
}


@contextmanager
def launched(name: str, folder: Path) -> Iterator[tuple[Started, dict[int, int]]]:
    """A job, and which process is which rank once all of them train; skips where the launcher is not installed."""
    needed = name.split()[0]
    if shutil.which(needed) is None and importlib.util.find_spec(needed.partition(".")[0]) is None:
        pytest.skip(f"no {needed} here")
    told = folder / "told"
    words = {"told": told, "port": free_port()}
    variables = {**ENVIRONMENT, "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo", "RAY_TRAIN_V2_ENABLED": "1"}
    command = (word.format(**words) for word in COMMANDS[name])
    with job(*command, ready="", env=variables, stderr=sys.stderr) as launcher:
        yield launcher, ranks_in(told, launcher)


def ranks_in(told: Path, launcher: Started) -> dict[int, int]:
    """Which process is which rank, once both have said so."""
    assert until(
        lambda: (told.exists() and told.read_text().count("\n") == 2) or launcher.process.poll() is not None, 120
    )
    assert launcher.process.poll() is None
    return {int(pid): int(rank) for pid, rank in map(str.split, told.read_text().splitlines())}


def listed(ranks: dict[int, int]) -> list[dict[str, Any]]:
    """The jobs that ``perfdoctor ps`` names of which a rank is part, or a process that has started one."""
    family = {one.pid for pid in ranks for one in (psutil.Process(pid), *psutil.Process(pid).parents())} - {1}
    found = json.loads(perfdoctor("ps", "--json").out)["jobs"]
    return [one for one in found if family.intersection(one["trainers"])]


def is_whole(pid: int, ranks: dict[int, int], folder: Path, duration: int = 3) -> None:
    """Makes sure that the job is found by one of its processes, and the slow rank in it."""
    answer = perfdoctor("attach", pid, "--duration", duration, "--json", folder / "a.json")
    assert answer.status == 0, answer.err
    assert {one["pid"]: one["rank"] for one in answer.told["ranks"]} == ranks
    assert [one["workers"] for one in answer.told["ranks"]] == [1, 1]
    assert answer.told["job"]["world_size"] == 2
    assert not [one for one in answer.told["not_examined"] if one["probe"] == "ranks"]
    verdict = answer.told["verdict"]
    assert (verdict["straggler_rank"], verdict["cause"]) == (1, "cpu.input_preprocessing"), verdict["summary"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_launcher_and_its_ranks(name: str, tmp_path: Path) -> None:
    with launched(name, tmp_path) as (launcher, ranks):
        (one,) = listed(ranks)
        assert dict(zip(one["trainers"], one["numbers"] or (), strict=True)) == ranks
        assert (one["world"], one["workers"]) == (2, 2)
        # Ray goes on starting processes of its own meanwhile.
        is_whole(launcher.pid, ranks, tmp_path, duration=10 if name == "ray" else 3)


@pytest.mark.parametrize("meeting", ["tcp://127.0.0.1:{port}", "file://{told}.store"])
def test_ranks_that_were_started_one_by_one(meeting: str, tmp_path: Path) -> None:
    """Nothing but where they meet says that they are one job."""
    told = tmp_path / "told"
    where = meeting.format(port=free_port(), told=told)
    with ExitStack() as stack:
        for rank in ("1", "0"):
            command = (sys.executable, LAUNCHED, "hand", str(told), where, rank)
            # Each below a shell of its own: they have no parent in common.
            shell = ("sh", "-c", '"$@" & wait', "sh", *command)
            last = stack.enter_context(job(*shell, ready=""))
        ranks = ranks_in(told, last)
        (one,) = listed(ranks)
        assert dict(zip(one["trainers"], one["numbers"] or (), strict=True)) == ranks
        is_whole(next(pid for pid, rank in ranks.items() if rank), ranks, tmp_path)
