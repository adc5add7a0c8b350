"""Training jobs on a real asynchronous device, torch's test backend, each with one planted bottleneck and without it.

The job with its bottleneck and the fixed one are measured in the same run; what their steps differ by is the truth.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Mark, ThreadSample
from perfdoctor.timeline.job import JobTimeline
from tests.builders.stand_ins import MS
from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT
from tests.processes.insiding import Run, run_inside

pytestmark = pytest.mark.alone

SCRIPT = "accelerator_training.py"
STEPS = 120
# Neighbours on the machine disturb both measurements and the diagnosis.
BOUND = 0.15
NEIGHBOURS = "cpu.contention"


def train(folder: Path, accelerator: dict[str, str], job: str, observe: int = STEPS, *more: str) -> Run:
    run = run_inside(folder, "--job", job, "--observe", str(observe), *more, script=SCRIPT, **accelerator)
    assert run.status == 0, run.err
    return run


def test_the_timer_tells_when_the_device_comes_to_marks(accelerator: dict[str, str]) -> None:
    command = [sys.executable, str(TARGETS / "device_timing.py")]
    told = subprocess.run(command, env={**ENVIRONMENT, **accelerator}, capture_output=True, text=True, check=True)
    found = {one["name"]: one for one in map(json.loads, told.stdout.splitlines())}
    marks, again = found["marks"], found["again"]
    assert marks["unused"], "a device that nobody has used is not woken"
    assert marks["early"] <= 1
    assert marks["asked"] < 80 * MS, "nobody waits for it"
    begun, ended = marks["at"]
    assert ended - begun >= 80 * MS
    assert 80 * MS <= ended <= marks["drained"] + marks["error"], "on the one clock"
    assert (found["pool"]["skipped"], found["pool"]["marked"]) == (2, 3)
    assert again["ordered"]
    assert again["skipped"] == 0
    assert again["busy"] >= 2 * MS
    assert abs(again["drift"]) < 20 * MS


def shares(run: Run) -> dict[str, float]:
    return {one["cause"]: one["share"] for one in run.told["breakdown"]}


def first_of_its_own(run: Run) -> dict[str, Any]:
    """The first finding; what neighbours on the machine do to the job was not planted."""
    findings: list[dict[str, Any]] = run.told["findings"]
    return next(one for one in findings if one["cause"] != NEIGHBOURS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, accelerator: dict[str, str]) -> Run:
    """The job without a bottleneck, measured and diagnosed; of two runs the one that neighbours disturbed less."""
    runs = [train(tmp_path_factory.mktemp("sound"), accelerator, "") for _ in range(2)]
    return min(runs, key=lambda run: float(run.steps["mean_s"]))


def test_a_device_that_is_busy_is_no_bottleneck(sound: Run) -> None:
    found = shares(sound)
    assert sound.told["verdict"]["level"] == "traced", sound.err
    # A trace of few steps begins with a device that has nothing to do yet.
    assert found.pop("gpu.compute") + found.pop(NEIGHBOURS, 0.0) + found.pop("unattributed", 0.0) >= 0.8, sound.err
    # The main thread waits for autograd's, and for the device.
    assert max(found.values(), default=0.0) < 0.1, sound.err


def test_what_the_device_does_is_timed_in_ordinary_steps(sound: Run) -> None:
    device, alone = sound.steps["device"], sound.steps["serialised"]
    # Six layers of 0.7 ms and 1.4 ms, and while they are not kept apart the device does not wait between them.
    assert device["phases"]["backward"] == pytest.approx(6 * 0.0014, rel=0.4)
    assert alone["count"] == 4
    assert alone["phases"]["forward"]["median_s"] >= 6 * 0.0007
    assert alone["phases"]["backward"]["median_s"] >= 6 * 0.0014
    assert alone["overlap"] > 0.1, "the host is ahead of the device"
    assert not [note for note in sound.told["not_examined"] if note["probe"] == "marks"]


def test_the_backward_pass_runs_in_autograds_thread(tmp_path: Path, accelerator: dict[str, str]) -> None:
    file = tmp_path / "job.perfdoctor"
    run = train(tmp_path, accelerator, "small operators", 30, "--recording", str(file))
    with Recording.open(file) as recording:
        names = {tid: thread.name for tid, thread in recording.threads.items()}
        samples = list(recording.rows(ThreadSample))
        (pid,) = {mark.pid for mark in recording.rows(Mark)}
        steps = JobTimeline(recording).steps[pid]
    main = [one for one in samples if one.tid == pid]
    engine = max((used_s(samples, tid) for tid, name in names.items() if name.startswith("pt_autograd")), default=0.0)
    # Each operator takes both about as long.
    assert engine > 0.3 * used_s(samples, pid)
    within = [one.state for one in main if (part := steps.at(one.time_ns)) is not None and part.phase == "backward"]
    assert within.count("S") > 0.5 * len(within)
    assert run.steps["phases"]["backward"]["share"] > 0.3


def used_s(samples: list[ThreadSample], tid: int) -> float:
    """CPU time of a thread while it was watched."""
    own = [one.run_ns for one in samples if one.tid == tid and one.run_ns is not None]
    return (own[-1] - own[0]) / NS_PER_S


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        ("synchronization", "cpu.synchronization"),
        ("small operators", "cpu.kernel_launch"),
        ("transfer", "gpu.host_transfer"),
        ("input", "cpu.input_preprocessing"),
        ("optimizer", "cpu.kernel_launch"),
        ("checkpoints", "io.checkpoint_write"),
    ],
)
def test_a_planted_bottleneck_is_found_at_what_it_costs(
    job: str, cause: str, tmp_path: Path, accelerator: dict[str, str], sound: Run
) -> None:
    run = train(tmp_path, accelerator, job, 200 if job == "checkpoints" else STEPS)
    finding = first_of_its_own(run)
    truth = 1 - sound.steps["mean_s"] / run.steps["mean_s"]
    assert (finding["cause"], run.told["verdict"]["level"]) == (cause, "traced"), run.err
    # Neighbours take cores from a host at work, and without the bottleneck there would be less for them to take. In the
    # steps that they make long, samples call its launching what it is for the host: dispatch. What a slow host calls
    # while its device waits would hide behind the device's work if nothing drained that.
    found = shares(run)
    cost = finding["share"] + found.get(NEIGHBOURS, 0.0)
    of_host = ("cpu.kernel_launch", "cpu.synchronization")
    cost += found.get("cpu.python_overhead", 0.0) if cause in of_host else 0.0
    assert cost == pytest.approx(truth, abs=BOUND), run.err
    assert sum(shares(run).values()) == pytest.approx(1, abs=0.001)
    _tells_where(job, run.steps)


def _tells_where(job: str, steps: dict[str, Any]) -> None:
    largest = max(steps["phases"], key=lambda name: steps["phases"][name]["mean_s"])
    where = {"input": "data", "optimizer": "optimizer", "checkpoints": "other"}
    assert largest == where.get(job, largest)
