"""What follows the observed steps: a few under torch.profiler, unless the script profiles itself, and a trial.

The trial on a batch in memory measures what the input costs, and leaves the loader's batches as they were.
"""

from pathlib import Path

import pytest

from tests.processes.insiding import run_inside

BUSY = "The script uses torch.profiler itself, so perfdoctor took no trace of its own."


def notes(told: dict) -> list[str]:
    return [note["reason"] for note in told["not_examined"]]


@pytest.mark.parametrize(("arguments", "count"), [((), 5), (("--profile", "2"), 2), (("--profile", "0"), None)])
def test_some_steps_are_profiled(arguments: tuple[str, ...], count: int | None, tmp_path: Path) -> None:
    run = run_inside(tmp_path, *arguments, script="inside_profiled.py", TMPDIR=str(tmp_path))
    assert run.said["enabled"] == "False"
    assert run.steps.get("profiled", {}).get("count") == count
    cost = run.told["overhead"]
    assert cost["report_cpu_s"] > 0
    assert ("trace_held_s" in cost) == (count is not None)
    probes = {one["probe"] for finding in run.told["findings"] for one in finding["evidence"]}
    assert ("trace" in probes) <= (count is not None)
    assert run.told["verdict"]["level"] == "measured inside"
    assert not list(tmp_path.glob("perfdoctor-*")), "the trace is removed when it is taken"


@pytest.mark.parametrize("own", ["always", "late"])
def test_the_scripts_own_profiler_goes_first(own: str, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--own", own, script="inside_profiled.py")
    assert run.status == 0, run.err
    assert int(run.said[own]) > 0
    assert "profiled" not in run.steps
    assert BUSY in notes(run.told)


@pytest.mark.alone
@pytest.mark.parametrize("workers", [0, 1])
def test_slow_input_is_confirmed(workers: int, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--workers", str(workers), "--item-ms", "4", script="inside_trial.py")
    verdict = run.told["verdict"]
    assert (verdict["cause"], verdict["level"]) == ("cpu.input_preprocessing", "confirmed by trial")
    assert "A trial confirms it" in verdict["summary"]
    assert run.steps["trial"]["saved"] > verdict["share"] - 0.2
    assert run.said["lost"] == "0", "every batch of the epoch came once, in order"
    assert int(run.said["repeated"]) == run.steps["trial"]["count"]


@pytest.mark.alone
def test_without_a_loader_there_is_no_trial(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--no-loader", script="inside_trial.py")
    assert "trial" not in run.steps
    assert any("There was no trial" in note["reason"] for note in run.told["not_examined"])
