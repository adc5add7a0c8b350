"""The interpreter probe against real interpreters: one program per state, for each CPython that this
machine has."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.probes.interpreter import InterpreterProbe
from perfdoctor.recording.schema import InterpreterSample, Unavailable
from tests.processes.interpreters import interpreter
from tests.processes.watching import Watched

pytestmark = pytest.mark.alone

PROGRAM = Path(__file__).parents[1] / "targets" / "interp_busy.py"
VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]


@contextmanager
def running(*command: str) -> Iterator[dict[str, Any]]:
    """Starts a program that prints one JSON line about itself."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def target(python: str, *arguments: str) -> Iterator[dict[str, Any]]:
    with running(python, str(PROGRAM), *arguments) as said:
        yield said


def watch(*pids: int, seconds: float = 1.0) -> list[InterpreterSample]:
    """What the probe sees; fails if it says that it cannot look."""
    probe = InterpreterProbe()
    seen = list(probe.open(Watched(*pids, torch=True)))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen += probe.sample(time.monotonic_ns())
        time.sleep(0.01)
    seen += probe.close()
    assert not [sample for sample in seen if isinstance(sample, Unavailable)]
    samples = [sample for sample in seen if isinstance(sample, InterpreterSample)]
    assert len(samples) >= 10
    return samples


def holders(samples: list[InterpreterSample]) -> Counter[int | None]:
    return Counter(sample.gil_tid for sample in samples)


@pytest.mark.parametrize("version", VERSIONS)
def test_collector_share(version: str) -> None:
    with target(interpreter(version), "collect", "1.0") as said:
        samples = watch(said["pid"], seconds=3.0)
    share = sum(sample.collecting is True for sample in samples) / len(samples)
    assert 0.3 < share < 0.7
    assert None not in {sample.collecting for sample in samples}


@pytest.mark.parametrize("version", VERSIONS)
def test_main_thread_spins_and_never_collects(version: str) -> None:
    with target(interpreter(version), "spin") as said:
        samples = watch(said["pid"])
    assert {sample.collecting for sample in samples} == {False}
    assert holders(samples)[said["main"]] / len(samples) > 0.9


@pytest.mark.parametrize("version", VERSIONS)
def test_another_thread_holds_the_lock(version: str) -> None:
    with target(interpreter(version), "holder") as said:
        samples = watch(said["pid"])
    assert said["thread"] != said["main"]
    assert holders(samples)[said["thread"]] / len(samples) > 0.9


@pytest.mark.parametrize("version", VERSIONS)
def test_sleeping_process_leaves_the_lock_free(version: str) -> None:
    with target(interpreter(version), "idle") as said:
        time.sleep(0.1)
        samples = watch(said["pid"], seconds=0.5)
    assert holders(samples) == {0: len(samples)}


@pytest.mark.parametrize("version", VERSIONS)
def test_forked_child(version: str) -> None:
    with target(interpreter(version), "fork") as said:
        time.sleep(0.1)
        samples = watch(said["parent"], said["child"])
    child = [sample for sample in samples if sample.pid == said["child"]]
    parent = [sample for sample in samples if sample.pid == said["parent"]]
    assert holders(child)[said["child"]] / len(child) > 0.9
    assert holders(parent)[0] / len(parent) > 0.9


@pytest.mark.parametrize("version", ["3.10", "3.12"])
def test_changed_switch_interval(version: str) -> None:
    program = (
        "import json, os, sys\nsys.setswitchinterval(0.02)\n"
        "print(json.dumps({'pid': os.getpid()}), flush=True)\nwhile True: pass"
    )
    with running(interpreter(version), "-c", program) as said:
        samples = watch(said["pid"])
    assert holders(samples)[said["pid"]] / len(samples) > 0.9


def test_process_in_another_pid_namespace() -> None:
    """In a container threads have other ids than out here; ours are wanted."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not make a pid namespace here")
    process = subprocess.Popen([*unshare, sys.executable, str(PROGRAM), "holder"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["pid"] == 1
        pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        samples = watch(pid)
        (thread,) = {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()} - {pid}
    finally:
        process.kill()
        process.communicate()
    assert holders(samples)[thread] / len(samples) > 0.9


def test_program_that_is_not_python_is_said_once_to_be_out_of_reach() -> None:
    process = subprocess.Popen(["sleep", "60"])
    probe = InterpreterProbe()
    try:
        seen = list(probe.open(Watched(process.pid, torch=True)))
        for step in range(1, 20):
            seen += probe.sample(step * 1_000_000_000)
    finally:
        process.kill()
        process.wait()
    assert [type(sample) for sample in seen] == [Unavailable]
    assert isinstance(seen[0], Unavailable)
    assert "_PyRuntime" in seen[0].reason
    assert seen[0].enable


def test_ended_process_yields_nothing_more() -> None:
    probe = InterpreterProbe()
    with target(sys.executable, "idle") as said:
        job = Watched(said["pid"], torch=True)
        assert list(probe.open(job)) == []
        assert len(list(probe.sample(time.monotonic_ns()))) == 1
    for step in range(1, 5):
        assert list(probe.sample(time.monotonic_ns() + step * 1_000_000_000)) == []
    probe.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_other_users_memory_is_named_as_the_reason() -> None:
    program = (
        "import os, sys, time\n"
        "from perfdoctor.probes.interpreter import InterpreterProbe\n"
        "class Job:\n    def torch_pids(self): return (int(sys.argv[1]),)\n    def forked_pids(self): return ()\n"
        "probe = InterpreterProbe()\n"
        "os.setuid(65534)\n"
        "print(list(probe.open(Job())) + list(probe.sample(time.monotonic_ns())))"
    )
    with target(sys.executable, "idle") as said:
        told = subprocess.run(
            [sys.executable, "-c", program, str(said["pid"])], capture_output=True, text=True, check=True
        )
    assert told.stdout.count("Unavailable") == 1
    assert "root" in told.stdout
