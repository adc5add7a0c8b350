"""What can be tried of the advice without a GPU is tried: the code as it is printed, inside a small training script.

The scripts carry out their checks in one start, since importing torch takes longer than most of them.
"""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.advice.printed import advice as printed
from tests.files import ROOT, TARGETS
from tests.processes.attaching import ENVIRONMENT, PATIENCE_S

ALONE, RANKS = TARGETS / "advice_alone.py", TARGETS / "advice_ranks.py"


def checks(script: Path) -> list[str]:
    functions = [node for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [one.name for one in functions if any(ast.unparse(mark) == "check" for mark in one.decorator_list)]


def start(script: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )


def results(*started: "subprocess.Popen[str]") -> dict[str, str]:
    """What the first of them says of its checks, when all have ended."""
    try:
        said = [process.communicate(timeout=PATIENCE_S) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, said, strict=True):
        assert process.returncode == 0, errors
    return dict(json.loads(said[0][0].splitlines()[-1]))


@cache
def alone() -> dict[str, str]:
    return results(start(ALONE))


@cache
def between_ranks() -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return results(*(start(RANKS, str(rank), f"{folder}/meeting") for rank in range(2)))


@pytest.mark.parametrize("name", checks(ALONE))
def test_advice_for_one_process_does_what_it_says(name: str) -> None:
    result = alone()[name]
    if result.startswith("no "):
        pytest.skip(result)
    assert result == ""


@pytest.mark.parametrize("name", checks(RANKS))
def test_advice_for_ranks_does_what_it_says(name: str) -> None:
    assert between_ranks()[name] == ""


def test_one_process_trains_what_was_written_for_ranks(tmp_path: Path) -> None:
    """A script that asks its launcher who it is goes on doing so."""
    (tmp_path / "train.py").write_text(
        "import os, torch\n"
        "torch.distributed.init_process_group('gloo')\n"
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
        "print(torch.distributed.get_world_size(), os.environ.get('OMP_NUM_THREADS'))\n"
        "torch.distributed.destroy_process_group()\n"
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        ["bash", "-c", printed("communication.one_process", own_ranks=False)],
        cwd=tmp_path,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.split() == ["1", "None"], done.stderr
