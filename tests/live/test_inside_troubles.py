"""``with diagnose():`` where things are missing: disk space, folders, memory files, a home; and in a notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.files import TARGETS
from tests.processes.attaching import ENVIRONMENT, filling_up, mounted, needs_root
from tests.processes.insiding import ENOUGH, PATIENCE_S, run_inside

# Goes on with the script that is named, as Python starts it: a module beside it can be imported.
THEN_THE_SCRIPT = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# In a process of its own: the function is missing there as in an old kernel.
WITHOUT_MEMFD = """
import os
def missing(*_): raise OSError(38, "Function not implemented")
os.memfd_create = missing
"""
# A mistake of perfdoctor's own, some looks after the sidecar has begun to watch.
MISTAKEN = """
from perfdoctor.probes.inside.ring import WATCHING, RingWriter
flush, watched = RingWriter.flush, []
def mistaken(ring):
    watched.append(ring.sidecar() == WATCHING)
    if sum(watched) > 5:
        raise RuntimeError("planted")
    flush(ring)
RingWriter.flush = mistaken
"""
# What a notebook's cells do, one after the other, in an interpreter that reads them from a pipe.
CELLS = """
import torch
from perfdoctor import diagnose
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        with diagnose(steps=60, json="told.json", report=None) as doctor:
            model(torch.rand(4096, 64)).sum().backward()
            optimizer.step()
    return doctor

doctor = train(5)
raise ValueError("a cell that fails")
while not doctor.diagnosis and torch.nn.Module.__call__ is not torch.nn.Module._wrapped_call_impl:
    doctor = train(20)

doctor.__class__.__name__
import time
for _ in range(600):
    if doctor.diagnosis: break
    time.sleep(0.1)

print("steps", doctor.diagnosis["steps"]["count"])
"""


LOOP = """
import torch
from perfdoctor import diagnose
for step in range(3):
    with diagnose({}):
        torch.rand(2)
    print("step", step)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("steps='ten'", "steps='ten' is no number of steps; write a whole number, 1 or more."),
        ("json=7", "json=7 is no path; write the name of a file, or None for none."),
    ],
)
def test_wrong_arguments_do_not_end_the_training(arguments: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP.format(arguments)],
        capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["step 0", "step 1", "step 2"]
    assert done.stderr.count("perfdoctor does not watch: ") == 1
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_phase_may_be_named_by_anything(tmp_path: Path) -> None:
    script = LOOP.format("steps=10**6, report=None").replace("import diagnose", "import diagnose, phase").replace(
        "        torch.rand(2)\n",
        "        with phase(3), phase(['a', 'list']), phase('\\udce9'):\n            torch.rand(2)\n",
    )  # fmt: skip
    assert "phase(3)" in script
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["step 0", "step 1", "step 2"]


@pytest.mark.alone  # its verdict counts
def test_report_that_cannot_be_written(tmp_path: Path) -> None:
    run = run_inside(tmp_path, *ENOUGH, "--report", "nowhere/out.html", TMPDIR=str(tmp_path))
    assert run.status == 0, run.err
    assert "preparing the input" in run.err
    assert run.err.count("nowhere/out.html cannot be written: No such file or directory.") == 1
    assert "Traceback" not in run.err
    assert run.steps["count"] == 60
    # It can still be written elsewhere, as the hint says.
    (kept,) = tmp_path.glob("perfdoctor-*.perfdoctor")
    assert f"perfdoctor report {kept}" in run.err


@needs_root
@pytest.mark.alone  # its verdict counts
def test_no_room_on_the_disk_and_no_home(tmp_path: Path) -> None:
    """What is recorded goes elsewhere; the report cannot."""
    with mounted(tmp_path / "full", "size=8k") as full, mounted(tmp_path / "home", "size=8k,ro") as home:
        (full / "filler").write_bytes(bytes(4096))
        run = run_inside(
            tmp_path, *ENOUGH, "--report", str(full / "out.html"), TMPDIR=str(full), HOME=str(home),
        )  # fmt: skip
    assert run.status == 0, run.err
    assert "preparing the input" in run.err
    assert run.err.count("out.html cannot be written: No space left on device.") == 1
    assert "Traceback" not in run.err
    assert run.steps["count"] == 60


@needs_root
def test_a_disk_that_fills_up_while_recording(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=4m") as small, filling_up(small / "a.perfdoctor"):
        run = run_inside(tmp_path, "--item-ms", "1", "--seconds", "6", "--recording", str(small / "a.perfdoctor"))
    assert run.status == 0, run.err
    assert run.err.count("cannot be written any more") == 1
    assert "Traceback" not in run.err
    # What was seen until then is reported.
    assert run.told["job"]["watched_seconds"] > 0


@pytest.mark.alone  # its verdict counts
def test_no_memory_files(tmp_path: Path) -> None:
    launcher = (sys.executable, "-c", WITHOUT_MEMFD + THEN_THE_SCRIPT, str(TARGETS / "inside_training.py"))
    run = run_inside(tmp_path, *ENOUGH, launcher=launcher)
    assert run.status == 0, run.err
    assert run.steps["count"] == 60
    assert run.said["told"] == "cpu.input_preprocessing"


def test_a_mistake_of_its_own_ends_the_looking_and_not_the_training(tmp_path: Path) -> None:
    launcher = (sys.executable, "-c", MISTAKEN + THEN_THE_SCRIPT, str(TARGETS / "inside_training.py"))
    run = run_inside(tmp_path, *ENOUGH, launcher=launcher)
    assert run.status == 0, run.err
    assert run.said["clean"] == "1"
    assert "Traceback" not in run.err
    reasons = [note["reason"] for note in run.told["not_examined"]]
    assert any("a mistake of its own: RuntimeError: planted" in reason for reason in reasons), reasons


def test_interactive_interpreter(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=CELLS,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
    )
    assert "steps 60" in done.stdout, done.stderr
    assert "ValueError: a cell that fails" in done.stderr
    assert json.loads((tmp_path / "told.json").read_text())["steps"]["count"] == 60
