"""The job: which processes belong to it, from any of them, while they come and go."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.capture.job import Job, find_root, is_forked
from perfdoctor.probes.readers.process import uses_torch
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import ProcessGone, ProcessSeen, Sample
from tests.processes.attaching import ENVIRONMENT, job, until

pytestmark = pytest.mark.alone

FORKING = """
import os, sys, time
def say(*words): print(*words, flush=True)
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        time.sleep(60); os._exit(0)
    children.append(child)
say("ready", os.getpid(), *children)
sys.stdin.readline()
os.kill(children[0], 9); os.waitpid(children[0], 0)
say("fewer", os.getpid())
sys.stdin.readline()
"""


def look(watched: Job) -> list[Sample]:
    watched._thorough_ns = 0  # a thorough look, now
    return list(watched.refresh(now_ns()))


def seen(samples: list[Sample]) -> dict[int, ProcessSeen]:
    return {sample.pid: sample for sample in samples if isinstance(sample, ProcessSeen)}


def test_forked_processes_belong_to_the_one_that_forked_them() -> None:
    with job(sys.executable, "-c", FORKING) as parent:
        children = {int(word) for word in parent.lines[-1].split()[2:]}
        for pid in (parent.pid, *children):
            watched = Job(pid)
            assert watched.root_pids == (parent.pid,)
            found = seen(look(watched))
            assert found.keys() == {parent.pid, *children}
            assert all(found[child].forked and found[child].parent_pid == parent.pid for child in children)
            assert not found[parent.pid].forked
            assert watched.pids()[0] == parent.pid
            assert set(watched.forked_pids()) == children
            watched.close()


def test_those_that_go_are_missed() -> None:
    with job(sys.executable, "-c", FORKING) as parent:
        gone = int(parent.lines[-1].split()[2])
        watched = Job(parent.pid)
        look(watched)
        assert parent.process.stdin is not None
        parent.process.stdin.write("\n")
        parent.process.stdin.flush()
        parent.wait_for("fewer")
        assert [sample.pid for sample in look(watched) if isinstance(sample, ProcessGone)] == [gone]
        assert gone not in watched.pids()
        assert not watched.ended()
        watched.close()


def test_a_job_that_is_killed_has_ended_even_if_nobody_waits_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        watched = Job(process.pid)
        look(watched)
        assert not watched.ended()
        process.kill()
        assert until(lambda: ") Z" in Path(f"/proc/{process.pid}/stat").read_text())
        look(watched)
        assert watched.ended()
        process.wait()


def test_a_shells_other_children_do_not_lead_to_its_parent() -> None:
    """A program that a shell runs is a job of its own; the shell's job includes it."""
    script = f"{sys.executable} -c 'import os, time; print(\"ready\", os.getpid(), flush=True); time.sleep(60)'; true"
    with job("bash", "-c", script) as shell:
        inner = int(shell.lines[-1].split()[1])
        assert find_root(inner) == inner
        watched = Job(shell.pid)
        assert set(seen(look(watched))) == {shell.pid, inner}
        watched.close()


def test_we_are_not_a_part_of_any_job() -> None:
    watched = Job(os.getppid(), [os.getppid()])
    assert os.getpid() not in seen(look(watched))
    watched.close()


def test_command_and_environment_are_masked_and_always_text() -> None:
    environment = {**ENVIRONMENT, "TORCH_HUB_TOKEN": "tok-998877", "OMP_NUM_THREADS": "3", "HOME_SECRET": "x-secret"}
    code = b"import os, time; print('ready', os.getpid(), flush=True); time.sleep(60)"
    command = [sys.executable.encode(), b"-c", code, b"--password", b"swordfish-1", b"caf\xe9", b"a\nb"]
    with job(*command, env=environment) as process:
        watched = Job(process.pid)
        (process_seen,) = seen(look(watched)).values()
        watched.close()
    assert "swordfish-1" not in process_seen.command
    assert "caf\N{REPLACEMENT CHARACTER} a\nb" in process_seen.command
    process_seen.command.encode()
    kept = json.loads(process_seen.environment)
    assert kept["OMP_NUM_THREADS"] == "3"
    assert "tok-998877" not in process_seen.environment
    assert "x-secret" not in process_seen.environment


def test_start_times_are_on_the_one_clock() -> None:
    before = now_ns()
    with job(sys.executable, "-c", FORKING) as process:
        watched = Job(process.pid)
        started = [sample.started_ns for sample in seen(look(watched)).values()]
        watched.close()
    tick = 20_000_000
    assert all(before - tick <= time <= now_ns() + tick for time in started)


def test_torch_is_seen_once_it_is_loaded() -> None:
    code = "import os\nprint('ready', os.getpid(), flush=True)\ninput()\nimport torch\n"
    code += "print('loaded', os.getpid(), flush=True)\ninput()"
    with job(sys.executable, "-c", code) as process:
        watched = Job(process.pid)
        assert seen(look(watched))[process.pid].uses_torch is False
        assert process.process.stdin is not None
        process.process.stdin.write("\n")
        process.process.stdin.flush()
        process.wait_for("loaded")
        assert uses_torch(process.pid)
        watched.members[process.pid].torch_asked_ns = 0
        again = seen(look(watched))
        assert again[process.pid].uses_torch is True
        assert watched.torch_pids() == (process.pid,)
        watched.close()


def test_a_forked_process_that_runs_another_program_later_is_seen_as_that() -> None:
    """As one is that was met between its fork and its exec: no worker, without torch, with its own command line."""
    code = "import os, torch\nchild = os.fork()\n"
    code += "if child == 0:\n input()\n os.execvp('sleep', ['sleep', '60'])\n"
    code += "print('ready', os.getpid(), child, flush=True)\nos.waitpid(child, 0)"
    with job(sys.executable, "-c", code) as process:
        child = int(process.lines[-1].split()[2])
        watched = Job(process.pid)
        before = seen(look(watched))[child]
        assert (before.forked, before.uses_torch) == (True, True)
        assert process.process.stdin is not None
        process.process.stdin.write("\n")
        process.process.stdin.flush()
        assert until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        after = seen(look(watched))[child]
        assert (after.forked, after.uses_torch) == (False, False)
        assert (after.name, after.command) == ("sleep", "sleep 60")
        assert watched.forked_pids() == ()
        assert watched.torch_pids() == (process.pid,)
        assert look(watched) == []
        watched.close()


def test_nobody_is_the_child_of_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert uses_torch(process.pid) is None
        assert not is_forked(process.pid, os.getpid())
        assert find_root(process.pid) == process.pid
        watched = Job(process.pid)
        assert look(watched) == []
        assert watched.ended()


def test_children_of_other_threads_are_found() -> None:
    code = (
        "import os, subprocess, threading\n"
        "def run():\n    child = subprocess.Popen(['sleep', '60'])\n"
        "    print('ready', os.getpid(), child.pid, flush=True)\n    child.wait()\n"
        "threading.Thread(target=run).start()"
    )
    with job(sys.executable, "-c", code) as process:
        child = int(process.lines[-1].split()[2])
        watched = Job(process.pid)
        look(watched)
        look(watched)
        assert child in watched.pids()
        watched.close()
