"""The waits probe against small programs that wait: who could end it, and what else it found."""

import ctypes
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfdoctor.probes.readers.syscalls import Descriptors
from perfdoctor.probes.waits import WaitsProbe
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import TRACED_BY, Reading, Sample, StackSegment, WaitSeen
from perfdoctor.recording.writer import RecordingWriter
from tests.live.test_probe_interpreter import VERSIONS, interpreter
from tests.processes.attaching import in_call, job, until
from tests.processes.watching import Watched, facts, looked

READY = "import os, sys, threading, time\nprint('ready', os.getpid(), flush=True)\n"


def looked_into(*pids: int) -> list[Sample]:
    """Two looks: at the second, the wait is as it was."""
    probe = WaitsProbe()
    probe.open(Watched(*pids))
    return [*looked(probe), *looked(probe)]


def wait_of(samples: list[Sample]) -> WaitSeen:
    (found,) = [sample for sample in samples if isinstance(sample, WaitSeen)]
    return found


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "3.14"])
def test_an_exception_that_is_handled_is_named_and_so_is_the_end_of_a_sleep(version: str) -> None:
    handles = "try:\n    raise KeyError(1)\nexcept KeyError:\n    time.sleep(300)"
    for code, handling in ((handles, "KeyError"), (handles.replace("    time", "    pass\ntime"), "")):
        with job(interpreter(version), "-c", READY + code) as waiting:
            assert until(lambda: any(in_call(waiting.pid, call) for call in ("clock_nanosleep", "select", "pselect6")))
            seen = wait_of(looked_into(waiting.pid))
            assert seen.handling == handling
            assert seen.ends_ns is not None
            assert 200 < (seen.ends_ns - now_ns()) / NS_PER_S <= 300


def test_a_sleep_of_ages_can_be_written_down(tmp_path: Path) -> None:
    code = "import ctypes\nctypes.CDLL(None).nanosleep((ctypes.c_long * 2)(2**62, 0), None)"
    with job(sys.executable, "-c", READY + code) as waiting:
        assert until(lambda: in_call(waiting.pid, "nanosleep") or in_call(waiting.pid, "clock_nanosleep"))
        seen = wait_of(looked_into(waiting.pid))
    assert seen.ends_ns is not None
    assert seen.ends_ns - now_ns() > 100 * 365 * 86_400 * NS_PER_S
    with RecordingWriter(tmp_path / "job.perfdoctor", {"start_ns": "0"}) as writer:
        writer.add([seen])
    with Recording.open(tmp_path / "job.perfdoctor") as recording:
        assert recording.rows(WaitSeen) == [seen]


@pytest.mark.parametrize("numbers", [(-1, 0), (5, -1), (5, 1_000_000_000), (2**63 - 1, 2**63 - 1)])
def test_what_is_no_time_is_not_taken_for_the_end_of_a_sleep(numbers: tuple[int, int]) -> None:
    """As the stack of a thread may hold that has gone on meanwhile."""
    request = (ctypes.c_long * 2)(*numbers)
    own = Descriptors(os.getpid())
    assert own.sleeps_until("nanosleep", [ctypes.addressof(request)], now_ns()) is None
    own.close()


def test_who_holds_a_files_lock_is_found(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = f"import fcntl; fcntl.flock(open({str(path)!r}), fcntl.LOCK_EX)"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with job(sys.executable, "-c", READY + code) as waiting:
            assert until(lambda: in_call(waiting.pid, "flock"))
            seen = wait_of(looked_into(waiting.pid))
    assert (seen.call, seen.target) == ("flock", f"file:{path}")
    assert json.loads(seen.others) == [os.getpid()]


def test_who_has_the_other_end_of_a_pipe_is_found_and_be_it_the_reader_itself() -> None:
    code = "reading, writing = os.pipe()\nos.read(reading, 1)"
    with job(sys.executable, "-c", READY + code) as waiting:
        assert until(lambda: in_call(waiting.pid, "read"))
        seen = wait_of(looked_into(waiting.pid))
    assert (seen.call, seen.target) == ("read", "pipe")
    assert json.loads(seen.others) == [waiting.pid]


@pytest.mark.parametrize("wait", ["os.waitpid(child.pid, 0)", "os.waitid(os.P_PID, child.pid, os.WEXITED)"])
def test_for_which_child_a_process_waits_is_found(wait: str) -> None:
    code = f"import subprocess\nsubprocess.Popen(['sleep', '300'])\nchild = subprocess.Popen(['tail', '-f'])\n{wait}"
    with job(sys.executable, "-c", READY + code) as waiting:
        assert until(lambda: any(in_call(waiting.pid, call) for call in ("wait4", "waitid")))
        seen = wait_of(looked_into(waiting.pid))
        children = {child.name(): child.pid for child in psutil.Process(waiting.pid).children()}
    assert json.loads(seen.others) == [children["tail"]]


def test_a_named_pipe_that_is_opened_at_one_end_only_is_told_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shards"
    os.mkfifo(path)
    with job(sys.executable, "-c", f"{READY}open({str(path)!r})") as waiting:
        assert until(lambda: in_call(waiting.pid, "openat"))
        seen = wait_of(looked_into(waiting.pid))
    assert (seen.call, seen.target, seen.others) == ("openat", f"pipe:{path}", "null")


@pytest.mark.parametrize("reads", [True, False])
def test_what_goes_away_of_a_write_that_waits_is_counted(reads: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        to = server.getsockname()
        code = f"import socket\n{READY}socket.create_connection({to!r}).sendall(bytes(10**9))"
        with job(sys.executable, "-c", code) as waiting, server.accept()[0] as connection:
            assert until(lambda: in_call(waiting.pid, "sendto"))
            probe = WaitsProbe()
            probe.open(Watched(waiting.pid))
            seen = []
            for _ in range(5):
                seen += looked(probe)
                if reads:
                    connection.recv(300_000, socket.MSG_WAITALL)
                time.sleep(0.3)
    sent = [sample.value for sample in seen if isinstance(sample, Reading) and sample.value is not None]
    assert sent
    assert (sent[-1] > 0) == reads


def test_who_traces_a_process_is_named() -> None:
    code = f"import ctypes; ctypes.CDLL(None).ptrace(16, {{pid}}, 0, 0)\n{READY}time.sleep(300)"
    with (
        job(sys.executable, "-c", READY + "time.sleep(300)") as traced,
        job(sys.executable, "-c", code.format(pid=traced.pid)) as tracer,
    ):
        assert until(lambda: facts(looked_into(traced.pid)))
        assert facts(looked_into(traced.pid))[f"pid:{traced.pid}", TRACED_BY].split()[0] == str(tracer.pid)


def test_the_stacks_of_other_threads_are_read_where_one_of_them_may_end_the_wait() -> None:
    # It is ready once the thread has started, for which it waits in a futex as well.
    code = "import threading, time\ndef holds():\n    time.sleep(300)\n"
    code += f"threading.Thread(target=holds, daemon=True).start()\n{READY}"
    code += "lock = threading.Lock()\nlock.acquire()\nlock.acquire()"
    with job(sys.executable, "-c", code) as waiting:
        assert until(lambda: in_call(waiting.pid, "futex"))
        segments = [one for one in looked_into(waiting.pid) if isinstance(one, StackSegment)]
    assert len(segments) == 1


@pytest.mark.parametrize(("module", "within"), [("threading", True), ("multiprocessing", False)])
def test_whose_threads_can_end_a_wait_for_a_lock_is_told(module: str, within: bool) -> None:
    code = f"import {module}\nlock = {module}.Lock()\nlock.acquire()\n{READY}lock.acquire()"
    with job(sys.executable, "-c", code) as waiting:
        assert until(lambda: in_call(waiting.pid, "futex"))
        seen = wait_of(looked_into(waiting.pid))
    assert json.loads(seen.others) == ([waiting.pid] if within else None)


def test_a_thread_that_waits_for_a_lock_of_processes_may_end_a_wait_too() -> None:
    code = "import multiprocessing, threading\nshared = multiprocessing.Lock()\nshared.acquire()\n"
    code += f"threading.Thread(target=shared.acquire, daemon=True).start()\n{READY}"
    code += "own = threading.Lock()\nown.acquire()\nown.acquire()"
    with job(sys.executable, "-c", code) as waiting:
        threads = [int(task.name) for task in Path(f"/proc/{waiting.pid}/task").iterdir()]
        assert until(lambda: len(threads) == 2 and all(in_call(thread, "futex") for thread in threads))
        assert json.loads(wait_of(looked_into(waiting.pid)).others) is None


def test_a_wait_is_looked_into_once() -> None:
    with job(sys.executable, "-c", READY + "time.sleep(300)") as waiting:
        assert until(lambda: in_call(waiting.pid, "clock_nanosleep"))
        probe = WaitsProbe()
        probe.open(Watched(waiting.pid))
        waits = [sum(isinstance(one, WaitSeen) for one in looked(probe)) for _ in range(4)]
    assert waits == [0, 1, 0, 0]
