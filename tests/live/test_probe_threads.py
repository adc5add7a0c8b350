"""Thread states, system calls and their targets, from real processes that do one known thing each."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfdoctor.probes.readers.syscalls import Descriptors
from perfdoctor.probes.threads import ThreadsProbe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import ProcessGone, Sample, ThreadSample, ThreadSeen
from tests.processes.attaching import job, until
from tests.processes.watching import Watched

pytestmark = pytest.mark.alone

READY = "import os, sys, time, threading\nprint('ready', os.getpid(), flush=True)\n"


def look(probe: ThreadsProbe, times: int = 1) -> list[Sample]:
    found: list[Sample] = []
    for _ in range(times):
        found += probe.sample(now_ns())
        time.sleep(0.02)
    return found


def asleep(pid: int) -> bool:
    """Whether the main thread of a program has come to where it waits."""
    schedstat = Path(f"/proc/{pid}/schedstat")
    before = schedstat.read_text()
    time.sleep(0.1)
    return schedstat.read_text() == before and ") S" in Path(f"/proc/{pid}/stat").read_text()


def main_samples(code: str, times: int = 10, *command: str) -> list[ThreadSample]:
    """Looks at the main thread of a program once it has settled."""
    with job(*(command or (sys.executable, "-c", READY + code))) as process:
        until(lambda: asleep(process.pid), 1.5)  # some never sleep
        probe = ThreadsProbe()
        assert not list(probe.open(Watched(process.pid, torch=True)))
        samples = look(probe, times)
        list(probe.close())
        return [sample for sample in samples if isinstance(sample, ThreadSample) and sample.tid == process.pid]


def settled(samples: Sequence[ThreadSample]) -> tuple[str, str | None, str]:
    """State, call and target, the same ones at every look."""
    (only,) = {(sample.state, sample.syscall, sample.target) for sample in samples}
    return only


def test_a_sleeper() -> None:
    samples = main_samples("time.sleep(60)")
    assert settled(samples) == ("S", "clock_nanosleep", "")
    assert len(samples) == 10
    assert samples[0].run_ns == samples[-1].run_ns > 0


def test_a_select_without_descriptors_is_a_sleep() -> None:
    """As ``time.sleep`` of Python 3.10 and older is."""
    assert settled(main_samples("import select\nselect.select([], [], [], 60)")) == ("S", "select (sleep)", "")


def test_a_reader_of_a_pipe() -> None:
    assert settled(main_samples("sys.stdin.read()")) == ("S", "read", "pipe")


def test_a_waiter_for_a_lock() -> None:
    assert settled(main_samples("l = threading.Lock()\nl.acquire()\nl.acquire()")) == ("S", "futex", "")


def test_a_reader_of_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket\ns = socket.create_connection(('127.0.0.1', {port}))\ns.recv(1)"
        assert settled(main_samples(code))[1:] == ("recvfrom", "socket:tcp")


def test_a_poll_of_a_socket_and_a_pipe_is_about_the_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import select, socket\ns = socket.create_connection(('127.0.0.1', {port}))\n"
            "p = select.poll()\np.register(0, select.POLLIN)\np.register(s, select.POLLIN)\np.poll()"
        )
        assert settled(main_samples(code))[2] == "socket:tcp"


@pytest.mark.parametrize(("watched", "target"), [("0, s", "socket:tcp"), ("0", "pipe"), ("", "anon:eventpoll")])
def test_an_event_loop_waits_for_what_is_in_its_set(watched: str, target: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import select, socket\ns = socket.create_connection(('127.0.0.1', {port}))\n"
            f"p = select.epoll()\n[p.register(one, select.EPOLLIN) for one in ({watched + ',' if watched else ''})]\n"
            "p.poll()"
        )
        assert settled(main_samples(code))[2] == target


def test_a_busy_thread() -> None:
    samples = main_samples("while True: pass")
    running = [sample for sample in samples if sample.state == "R"]
    assert len(running) >= 8
    assert running[-1].run_ns - running[0].run_ns > 20_000_000
    assert all(sample.syscall is None for sample in running)


def test_waiting_for_a_core_is_counted() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with job(sys.executable, "-c", READY + code):
        samples = main_samples(code, 20)
    assert samples[-1].delay_ns - samples[0].delay_ns > 50_000_000


@pytest.mark.parametrize("name", [b"plain", b"caf\xe9", b"new\nline", b"<b>"])
def test_a_file_is_named_whatever_its_name(name: bytes, tmp_path: Path) -> None:
    path = bytes(tmp_path) + b"/" + name
    os.mkfifo(path)
    with job(sys.executable, "-c", READY + f"os.read(os.open({path!r}, os.O_RDWR), 1)") as process:
        probe = ThreadsProbe()
        list(probe.open(Watched(process.pid, torch=True)))
        assert until(lambda: asleep(process.pid))
        sample = next(one for one in look(probe) if isinstance(one, ThreadSample))
        list(probe.close())
    assert sample.target == f"pipe:{path.decode(errors='replace')}"
    sample.target.encode()  # what cannot be encoded cannot be recorded


def test_the_path_of_a_call_is_read_from_memory(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to waits as a pipe does; the kernel knows the name's address only."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    call = settled(main_samples(f"open({str(pipe)!r})"))
    assert call == ("S", "openat", f"pipe:{pipe}")


def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "to be read"
    os.mkfifo(pipe)
    own, opened = Descriptors(os.getpid()), os.open(pipe, os.O_RDWR)
    assert own.target("read", [opened, 0, 1]) == f"pipe:{pipe}"
    os.close(opened)
    own.close()


def test_a_mapping_is_about_the_file_that_is_mapped(tmp_path: Path) -> None:
    none = 0xFFFFFFFFFFFFFFFF  # -1, of anonymous memory
    own = Descriptors(os.getpid())
    with (tmp_path / "data").open("wb") as file:
        assert own.target("mmap", [0, 4096, 1, 2, file.fileno(), 0]) == f"file:{file.name}"
        assert own.target("mmap", [0, 4096, 3, 34, none, 0]) == ""
    own.close()


def test_all_threads_are_listed_and_idle_ones_told_once() -> None:
    code = "[threading.Thread(target=threading.Event().wait).start() for _ in range(64)]"
    with job(sys.executable, "-c", READY + code) as process:
        assert until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 65)
        probe = ThreadsProbe()
        list(probe.open(Watched(process.pid, torch=True)))
        samples = look(probe, 10)
        list(probe.close())
    assert len([sample for sample in samples if isinstance(sample, ThreadSeen)]) == 65
    looks = [sample.tid for sample in samples if isinstance(sample, ThreadSample)]
    assert len(set(looks)) == 65
    assert all(looks.count(tid) <= 2 for tid in set(looks) - {process.pid})


def test_threads_and_processes_that_end_are_told() -> None:
    code = "t = threading.Thread(target=sys.stdin.readline)\nt.start()\nt.join()\ntime.sleep(60)"
    with job(sys.executable, "-c", READY + code) as process:
        assert until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 2)
        watched = Watched(process.pid, torch=True)
        probe = ThreadsProbe()
        list(probe.open(watched))
        tids = {sample.tid for sample in look(probe, 2) if isinstance(sample, ThreadSeen)}
        assert process.process.stdin is not None
        process.process.stdin.write("\n")
        process.process.stdin.flush()
        assert until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 1)
        gone = [sample.tid for sample in look(probe, 3) if isinstance(sample, ThreadSample) and sample.state == "X"]
        assert gone == list(tids - {process.pid})
        process.process.kill()
        process.process.wait()
        assert [sample.pid for sample in look(probe) if isinstance(sample, ProcessGone)] == [process.pid]
        watched.members = ()
        assert look(probe) == []
        list(probe.close())


def test_no_file_stays_open() -> None:
    before = os.listdir("/proc/self/fd")
    main_samples("time.sleep(60)", 2)
    assert os.listdir("/proc/self/fd") == before


def test_descriptors_of_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        gone = Descriptors(process.pid)
        assert gone.name_of(0) == ""
        assert gone.target("poll", [1 << 46, 3, 0, 0, 0, 0]) == ""
        assert gone.target("openat", [0, 1 << 46, 0, 0, 0, 0]) == ""
        gone.close()


def test_faults_of_a_thread_that_trains_are_counted_in_each_look() -> None:
    samples = main_samples("pages = bytearray(1 << 24)\nwhile True:\n    time.sleep(0)")
    assert len(samples) == 10
    assert all(sample.minor_faults for sample in samples)
