"""Lines of Python in running interpreters of all versions that are here: through gdb, and through sys.remote_exec."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.probes.inside import main_thread_call
from perfdoctor.probes.readers import gdb, remote_exec
from tests.processes.attaching import Started, job, until
from tests.processes.interpreters import interpreter

LOOP = """
import os, sys, time
print("ready", os.getpid(), flush=True)
while True:
    time.sleep(0.01)
"""


@contextmanager
def looping(version: str) -> Iterator[Started]:
    with job(interpreter(version), "-c", LOOP) as started:
        yield started


def anonymous_pages(pid: int) -> int:
    return sum(line.split()[-1] == "0" for line in Path(f"/proc/{pid}/maps").read_text().splitlines())


@pytest.fixture
def failing_gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gdb that says what version 13 does on a processor with larger registers than it knows."""
    program = tmp_path / "gdb"
    program.write_text('#!/bin/sh\necho calling\necho "Couldn\'t write extended state status: Bad address."\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gdb.failed_trial.cache_clear()
    yield
    gdb.failed_trial.cache_clear()


@pytest.mark.usefixtures("failing_gdb")
def test_a_gdb_that_fails_on_a_process_of_our_own_is_not_let_near_the_job() -> None:
    with looping("3.11") as started:
        refused = gdb.refusal(started.pid)
        assert "Couldn't write extended state status" in (gdb.failed_trial() or "")
    assert refused == ("gdb cannot let processes call functions on this machine.", "a newer gdb")


@pytest.mark.usefixtures("working_gdb")
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_gdb_places_a_line_and_the_page_is_given_back(version: str, tmp_path: Path) -> None:
    with looping(version) as started:
        before = anonymous_pages(started.pid)
        said = tmp_path / 'it\'s "100 %"'
        stopped_s = gdb.place_line(started.pid, f"open({str(said)!r}, 'w').write('here\\n')")
        assert until(lambda: said.exists() and said.read_text() == "here\n")
        assert stopped_s > 0
        assert until(lambda: anonymous_pages(started.pid) <= before)
        # What fails there is lost, and the loop goes on.
        gdb.place_line(started.pid, "1 / 0")
        gdb.place_line(started.pid, f"__import__('os').unlink({str(said)!r})")
        assert until(lambda: not said.exists())
        assert started.process.poll() is None


COMPUTING = """
import torch
torch.set_num_threads(1)
numbers = torch.arange(4096, dtype=torch.float64)
right = torch.sin(numbers).sum()
print("ready 0", flush=True)
while torch.sin(numbers).sum() == right:
    pass
"""


@pytest.mark.usefixtures("working_gdb")
def test_arithmetic_goes_on_with_its_registers(tmp_path: Path) -> None:
    with job(interpreter("3.11"), "-c", COMPUTING) as started:
        for number in range(12):
            gdb.place_line(started.pid, f"open({str(tmp_path / str(number))!r}, 'w')")
        assert until(lambda: len(list(tmp_path.iterdir())) == 12)
        assert started.process.poll() is None, "it came to another sum"


def test_a_process_without_python_is_left_alone() -> None:
    with (
        job("sleep", "60", ready="") as sleeper,
        pytest.raises(gdb.PlacingError, match="Py_AddPendingCall is not found"),
    ):
        gdb.place_line(sleeper.pid, "pass")


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_main_thread_is_called_from_another_one(version: str) -> None:
    code = f"""
import _thread, threading, time
names = {{"__name__": "ours"}}
exec(open({main_thread_call.__file__!r}).read(), names)
called = []
def other():
    call = names["MainThreadCall"](lambda: called.append(threading.current_thread() is threading.main_thread()))
    called.append(call.place(20))
    failing = names["MainThreadCall"](lambda: 1 / 0)
    failing.place(20)
    called.append(type(failing.error).__name__)
_thread.start_new_thread(other, ())
while len(called) < 3:
    time.sleep(0.01)
print(*called)
"""
    done = subprocess.run([interpreter(version), "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (["True", "True", "ZeroDivisionError"], "")


def test_remote_exec_runs_a_file(tmp_path: Path) -> None:
    with looping("3.14") as started:
        said, line = tmp_path / "said", tmp_path / "line.py"
        line.write_text(f"open({str(said)!r}, 'w').write('here')")
        assert remote_exec.refusal(started.pid, {}) is None
        assert remote_exec.refusal(started.pid, {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}) is not None
        remote_exec.run_file(started.pid, str(line))
        assert until(lambda: said.exists() and said.read_text() == "here")


def test_remote_exec_says_which_python_would_do() -> None:
    with looping("3.11") as started:
        refusal = remote_exec.refusal(started.pid, {})
        assert refusal is not None
        assert "came with Python 3.14" in refusal.reason
