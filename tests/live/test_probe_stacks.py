"""Python stacks through py-spy: what comes back, at the right time, and nothing that stays."""

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.probes import stacks
from perfdoctor.probes.readers import cpython_stacks
from perfdoctor.probes.readers.py_spy import find_py_spy
from perfdoctor.probes.stacks import StacksProbe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Event, PythonThread, Sample, StackMissed, StackSegment, Unavailable
from tests.processes.attaching import Started, job, sampling, until
from tests.processes.watching import Watched

pytestmark = pytest.mark.alone

CODE = """
import os, threading, time
def waits_for_a_friend():
    threading.Event().wait()
def works_hard():
    while True:
        sum(range(1000))
threading.Thread(target=waits_for_a_friend, name="friend", daemon=True).start()
print("ready", os.getpid(), flush=True)
works_hard()
"""


@pytest.fixture(autouse=True)
def _through_py_spy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As of a Python whose frames are not known."""
    if "either_way" not in request.fixturenames:
        monkeypatch.setattr(stacks.cpython_stacks, "knows", lambda version: False)


@pytest.fixture(params=["py-spy", "direct"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through py-spy, and read by perfdoctor itself."""
    if request.param == "py-spy":
        monkeypatch.setattr(stacks.cpython_stacks, "knows", lambda version: False)


@pytest.fixture(scope="module")
def working() -> Iterator[Started]:
    with job(sys.executable, "-c", CODE) as started:
        yield started


def watch(probe: StacksProbe, pid: int, seconds: float) -> list[Sample]:
    samples = list(probe.open(Watched(pid, torch=True)))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(probe.period_s)
        samples += probe.sample(now_ns())
    return [*samples, *probe.close()]


@pytest.mark.usefixtures("either_way")
def test_stacks_of_all_threads_idle_ones_too(working: Started) -> None:
    before = now_ns()
    samples = watch(StacksProbe(), working.pid, 1.5)
    functions = set()
    for segment in (sample for sample in samples if isinstance(sample, StackSegment)):
        assert segment.pid == working.pid
        assert before <= segment.time_ns < segment.until_ns <= now_ns()
        events = json.loads(zlib.decompress(segment.trace))
        functions |= {event.get("name") for event in events}
        last = max(event["ts"] for event in events) * 1000
        assert segment.time_ns + last <= segment.until_ns + segment.error_ns
    assert {"works_hard", "waits_for_a_friend"} <= functions


def test_a_python_whose_frames_lie_elsewhere_is_left_to_py_spy(
    working: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks.cpython_stacks, "knows", lambda version: True)
    offsets = dict.fromkeys(
        cpython_stacks._OFFSETS, cpython_stacks._OFFSETS[(3, 13 if sys.version_info < (3, 13) else 8)]
    )
    monkeypatch.setattr(cpython_stacks, "_OFFSETS", offsets)
    samples = watch(StacksProbe(), working.pid, 1.5)
    (segment,) = [sample for sample in samples if isinstance(sample, StackSegment)]
    assert segment.error_ns > 0, "py-spy's"
    assert b"works_hard" in zlib.decompress(segment.trace)


# Another function in each 20 ms of the one clock.
CHANGING = """
import os, time
def even(until):
    while time.monotonic() < until: pass
def odd(until):
    while time.monotonic() < until: pass
print("ready", os.getpid(), flush=True)
while True:
    number = int(time.monotonic() / 0.02)
    (odd if number % 2 else even)((number + 1) * 0.02)
"""


@pytest.mark.usefixtures("either_way")
def test_stacks_are_on_the_one_clock() -> None:
    with job(sys.executable, "-c", CHANGING) as started:
        samples = watch(StacksProbe(), started.pid, 3)
    segments = [sample for sample in samples if isinstance(sample, StackSegment)]
    assert all(segment.error_ns <= 1_000_000 for segment in segments)
    seen = [
        (event["name"].split()[0], (segment.time_ns + event["ts"] * 1000) // 20_000_000 % 2)
        for segment in segments
        for event in json.loads(zlib.decompress(segment.trace))
        if event["ph"] == "B" and event["name"].split()[0] in ("even", "odd")
    ]
    assert len(seen) > 20
    # By chance half would be; where no core is free some are read long before py-spy looks at its clock.
    assert sum(("even", "odd")[number] == name for name, number in seen) >= 2 / 3 * len(seen)


# Calls that are deep and change all the time, in the second half of each second: CPython maps and unmaps memory for the
# frames, under the eyes of py-spy.
DEEP = """
import os, time
def falls(depth):
    if depth:
        falls(depth - 1)
print("ready", os.getpid(), flush=True)
while True:
    if time.monotonic() % 1 < 0.5:
        time.sleep(0.5 - time.monotonic() % 0.5)
    else:
        falls(900)
"""


def test_looks_that_were_missed_are_told_with_their_times() -> None:
    with job(sys.executable, "-c", DEEP) as started:
        before = now_ns()
        samples = watch(StacksProbe(), started.pid, 6)
        # How many are missed is a matter of chance and of the machine.
        while sum(isinstance(sample, StackMissed) for sample in samples) < 3 and now_ns() < before + 60 * 10**9:
            samples += watch(StacksProbe(), started.pid, 6)
    (main,) = {sample.ident for sample in samples if isinstance(sample, PythonThread)}
    assert not [sample for sample in samples if isinstance(sample, Unavailable)]
    missed = [sample for sample in samples if isinstance(sample, StackMissed)]
    assert {(sample.pid, sample.ident) for sample in missed} == {(started.pid, main)}
    assert all(before <= sample.time_ns <= now_ns() for sample in missed)
    in_deep_calls = [sample for sample in missed if sample.time_ns % 1_000_000_000 >= 490_000_000]
    assert len(in_deep_calls) >= max(3, 0.8 * len(missed))


def test_threads_have_pythons_names_for_them(working: Started) -> None:
    samples = watch(StacksProbe(), working.pid, 0.5)
    threads = {sample.name: sample for sample in samples if isinstance(sample, PythonThread)}
    assert threads["MainThread"].tid == working.pid
    assert threads["friend"].ident != threads["MainThread"].ident


@pytest.mark.parametrize("command", ["dump", "record"])
def test_a_process_that_could_not_be_read_at_first_is_tried_again(
    command: str, working: Started, tmp_path: Path
) -> None:
    py_spy, asked = tmp_path / "py-spy", tmp_path / "asked"
    refuses = f'[ "$1" = {command} ] && [ ! -e {asked} ] && touch {asked} && exit 1'
    py_spy.write_text(f'#!/bin/sh\n{refuses}\nexec {find_py_spy()} "$@"\n')
    py_spy.chmod(0o755)
    samples = watch(StacksProbe(str(py_spy)), working.pid, 2.5)
    assert asked.exists()
    assert {"MainThread", "friend"} <= {sample.name for sample in samples if isinstance(sample, PythonThread)}
    assert [sample for sample in samples if isinstance(sample, StackSegment)]
    assert not [sample for sample in samples if isinstance(sample, Unavailable)]


def test_nothing_stays(working: Started) -> None:
    before = os.listdir("/proc/self/fd")
    watch(StacksProbe(), working.pid, 0.5)
    assert os.listdir("/proc/self/fd") == before
    assert not sampling(working.pid)


def test_segments_follow_one_another(working: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "FIRST_SEGMENT_S", 1)
    monkeypatch.setattr(stacks, "SEGMENT_S", 1)
    samples = watch(StacksProbe(), working.pid, 3.5)
    segments = [sample for sample in samples if isinstance(sample, StackSegment)]
    assert len(segments) >= 2
    for one, following in itertools.pairwise(segments):
        assert one.time_ns < one.until_ns <= following.time_ns


def test_without_py_spy(working: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "find_py_spy", lambda: None)
    (said,) = watch(StacksProbe(), working.pid, 0.3)
    assert isinstance(said, Unavailable)
    assert "not installed" in said.reason
    assert "pip install py-spy" in said.enable


def stand_in(folder: Path, script: str) -> str:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_py_spy_that_fails_is_quoted_once(working: Started, tmp_path: Path) -> None:
    fails = stand_in(tmp_path, "echo 'Error: Unsupported version of Python: 9.9' >&2; exit 1")
    (said,) = watch(StacksProbe(fails), working.pid, 1.0)
    assert isinstance(said, Unavailable)
    assert "Unsupported version of Python: 9.9" in said.reason
    assert f"perfdoctor check {working.pid}" in said.enable


def test_a_py_spy_that_cannot_be_started(working: Started, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_bytes(b"\x7fELF, but not really")
    program.chmod(stat.S_IRWXU)
    before = os.listdir("/proc/self/fd")
    (said,) = watch(StacksProbe(str(program)), working.pid, 0.5)
    assert isinstance(said, Unavailable)
    assert "cannot be started" in said.reason
    assert os.listdir("/proc/self/fd") == before


def test_a_py_spy_that_hangs_is_ended(working: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_PATIENCE_S", 0.5)
    hangs = stand_in(tmp_path, "trap '' INT\nwhile :; do sleep 0.1; done")
    begun = time.monotonic()
    said = watch(StacksProbe(hangs), working.pid, 0.3)
    assert time.monotonic() - begun < 8
    assert [type(one) for one in said] == [Unavailable]


def test_a_py_spy_that_is_ended_while_it_starts_is_no_failure(working: Started, tmp_path: Path) -> None:
    starts = stand_in(tmp_path, "[ $1 = dump ] && exit 1\nexec sleep 60")
    code = (
        "import signal, sys\nfrom perfdoctor.probes import stacks\nfrom perfdoctor.probes.stacks import StacksProbe\n"
        "from tests.processes.watching import Watched\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "stacks.cpython_stacks.knows = lambda version: False\n"
        "probe = StacksProbe(sys.argv[1])\nprint([*probe.open(Watched(int(sys.argv[2]), torch=True)), *probe.close()])"
    )
    command = [sys.executable, "-c", code, starts, str(working.pid)]
    root = Path(__file__).resolve().parents[2]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=True).stdout
    assert said == "[]\n"


def test_of_a_backtrace_the_error_is_quoted(working: Started, tmp_path: Path) -> None:
    fails = stand_in(tmp_path, "printf 'Error: no right\\n  0: one\\n   1: start_thread\\n\\n' >&2; exit 1")
    (said,) = watch(StacksProbe(fails), working.pid, 0.5)
    assert isinstance(said, Unavailable)
    assert said.reason.endswith("Error: no right")


def test_py_spy_is_in_a_session_of_its_own(working: Started) -> None:
    """So that Ctrl-C does not end it before perfdoctor has asked it to."""
    probe = StacksProbe()
    list(probe.open(Watched(working.pid, torch=True)))
    assert until(lambda: sampling(working.pid))
    assert os.getsid(sampling(working.pid)[0].pid) != os.getsid(0)
    list(probe.close())


def test_a_process_that_ends_is_no_failure() -> None:
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        probe = StacksProbe()
        samples = list(probe.open(Watched(process.pid, torch=True)))
        assert until(lambda: sampling(process.pid))
        time.sleep(1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert until(lambda: not sampling(process.pid))
        samples += probe.sample(now_ns())
        list(probe.close())
    assert not [sample for sample in samples if isinstance(sample, Unavailable)]
    assert [sample for sample in samples if isinstance(sample, StackSegment | Event)]
