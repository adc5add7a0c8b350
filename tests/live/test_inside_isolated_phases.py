"""Serialised steps in real jobs of two ranks, and device events on torch's test backend and on a stand-in for it."""

import sys
from pathlib import Path

import pytest

from tests.files import TARGETS
from tests.processes.insiding import Run, run_inside

pytestmark = pytest.mark.alone

# At so many borders of a step the device is drained.
BORDERS = 14
RANKS = (str(TARGETS / "inside_ranks.py"),)
LAUNCHER = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *RANKS)


def serialised(run: Run, rank: int) -> dict:
    return dict(run.told["ranks"][rank]["steps"].get("serialised", {}))


def notes(run: Run) -> list[str]:
    return [note["reason"] for note in run.told["not_examined"] if note["probe"] == "marks"]


def test_ranks_take_the_same_steps_apart_and_losses_stay_the_same(tmp_path: Path) -> None:
    run = run_inside(tmp_path, launcher=LAUNCHER)
    assert run.status == 0, run.err
    assert notes(run) == []
    for rank in (0, 1):
        told = serialised(run, rank)
        assert told["count"] == 4
        assert {"data", "forward", "backward", "gradient sync", "optimizer"} <= told["phases"].keys()
        assert told["sum_s"] == pytest.approx(sum(part["median_s"] for part in told["phases"].values()))
    # What only one rank has does not keep the ranks from meeting.
    assert serialised(run, 0)["phases"]["noting down"]["median_s"] >= 0.002
    assert "noting down" not in serialised(run, 1)["phases"]
    assert "Parts by themselves" in run.err
    plain = run_inside(tmp_path, "--steps", run.said["steps0"], launcher=LAUNCHER, PERFDOCTOR_DISABLE="1")
    assert [plain.said[name] for name in ("rank0", "rank1")] == [run.said[name] for name in ("rank0", "rank1")]


def test_a_stragglers_phase_is_known(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--late-ms", "1", launcher=LAUNCHER)
    assert run.status == 0, run.err
    assert notes(run) == []
    assert serialised(run, 1)["phases"]["data"]["median_s"] >= 0.016
    late = serialised(run, 1)["phases"]["data"]["median_s"]
    assert serialised(run, 0)["phases"]["data"]["median_s"] < late
    assert serialised(run, 0)["phases"]["backward"]["median_s"] < late, "nobody waits for the late rank in there"
    (finding,) = [one for one in run.told["findings"] if one["cause"] == "cpu.input_preprocessing"]
    assert finding["ranks"] == [1]
    (slower,) = [one for one in finding["evidence"] if "takes rank 1 longer" in one["name"]]
    assert slower["value"].startswith("data: ")


@pytest.mark.parametrize(("fate", "status"), [("leaves", "0"), ("dies", "-9")])
def test_a_rank_that_is_gone_is_not_waited_for(fate: str, status: str, tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--fate", fate, launcher=(sys.executable, *RANKS))
    assert run.status == 0, run.err
    assert run.said["second"] == status
    assert run.steps["count"] == 60
    assert serialised(run, 0) == {}
    # Why depends on how far the ranks got: on a busy machine some part before they meet.
    assert any(note.startswith("No step was serialised. ") for note in notes(run)), notes(run)


@pytest.fixture(params=["stand-in", "test backend"])
def device(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and environment of a job on the device."""
    if request.param == "stand-in":
        return (), {}
    return ("--real",), request.getfixturevalue("accelerator")


def test_the_devices_time_is_known_and_what_hides_behind_it(
    tmp_path: Path, device: tuple[tuple[str, ...], dict[str, str]]
) -> None:
    arguments, environment = device
    run = run_inside(tmp_path, *arguments, script="inside_device.py", **environment)
    assert run.status == 0, run.err
    assert notes(run) == []
    on_device, alone = run.steps["device"], run.steps["serialised"]
    assert on_device["phases"]["forward"] == pytest.approx(0.008, rel=0.3)
    assert on_device["phases"]["backward"] == pytest.approx(0.016, rel=0.3)
    assert on_device["median_s"] == pytest.approx(run.steps["median_s"], rel=0.2)
    assert run.steps["phases"]["forward"]["median_s"] < 0.005, "the host only asks for it"
    assert alone["count"] == 4
    # The test backend has a thread for each of many streams, and takes some milliseconds to find them idle.
    drain_s = float(run.said["drain_s"])
    for name, seconds in (("data", 0.012), ("forward", 0.008), ("backward", 0.016)):
        assert 0.5 * seconds <= alone["phases"][name]["median_s"] <= 1.5 * seconds + BORDERS * drain_s
    assert alone["overlap"] >= 1 / 3 - 0.12
    if drain_s < 0.0001:
        assert alone["overlap"] <= 1 / 3 + 0.12
    # Where the device's clock is set and read, and where steps are serialised.
    assert int(run.said["drained"]) <= 8
    assert int(run.said["steps"]) > 60


def test_what_the_script_moves_is_a_phase_where_there_is_a_device(
    tmp_path: Path, device: tuple[tuple[str, ...], dict[str, str]]
) -> None:
    arguments, environment = device
    run = run_inside(tmp_path, "--move", *arguments, script="inside_device.py", **environment)
    assert run.status == 0, run.err
    assert float(run.said["moved"]) > 0.001
    assert run.steps["phases"]["transfer"]["median_s"] == pytest.approx(float(run.said["moved"]), rel=0.3)
    assert serialised(run, 0)["phases"]["transfer"]["median_s"] > 0.0005
    assert sum(one["mean_s"] for one in run.steps["phases"].values()) == pytest.approx(run.steps["mean_s"], rel=0.01)
    assert run.said["clean"] == "1"


def test_a_device_that_breaks_is_no_end_of_the_training(tmp_path: Path) -> None:
    run = run_inside(tmp_path, "--broken-after", "25", script="inside_device.py")
    assert run.status == 0, run.err
    assert any("the device is lost" in note for note in notes(run))
