"""A few steps under torch.profiler follow the observed ones, unless the script profiles itself."""

import sys
from pathlib import Path

import pytest

from tests.files import TARGETS
from tests.processes.insiding import run_inside

TRAIN = (sys.executable, str(TARGETS / "inside_profiled.py"))
BUSY = "The script uses torch.profiler itself, so perfdoctor took no trace of its own."


def notes(told: dict) -> list[str]:
    return [note["reason"] for note in told["not_examined"]]


@pytest.mark.parametrize(("arguments", "count"), [((), 5), (("--profile", "2"), 2), (("--profile", "0"), None)])
def test_some_steps_are_profiled(arguments: tuple[str, ...], count: int | None, tmp_path: Path) -> None:
    run = run_inside(tmp_path, *arguments, launcher=TRAIN, TMPDIR=str(tmp_path))
    assert run.said["enabled"] == "False"
    assert run.steps.get("profiled", {}).get("count") == count
    probes = {one["probe"] for finding in run.told["findings"] for one in finding["evidence"]}
    assert ("trace" in probes) <= (count is not None)
    assert run.told["verdict"]["level"] == "measured inside"
    assert not list(tmp_path.glob("perfdoctor-*")), "the trace is removed when it is taken"


@pytest.mark.parametrize("own", ["always", "late"])
def test_the_scripts_own_profiler_goes_first(own: str, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--own", own, launcher=TRAIN)
    assert run.status == 0, run.err
    assert int(run.said[own]) > 0
    assert "profiled" not in run.steps
    assert BUSY in notes(run.told)
