"""The recorder: probes get their turns on one clock, and it ends as it should whatever happens."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from perfdoctor.capture.cpu_budget import BUDGET, SLOWEST_HZ, Governor, Used
from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import Recorder
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import Availability, Processes
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Event, ProcessGone, ProcessSeen, Reading, Sample
from perfdoctor.recording.writer import RecordingWriter


class Counting:
    """A probe that counts its turns, and can do something in one of them."""

    def __init__(self, name: str, period_s: float, at: int = -1, do: object = None) -> None:
        self.name, self.period_s = name, period_s
        self.turns, self.opened, self.closed = 0, 0, 0
        self._at, self._do = at, do

    def check(self, process: Candidate) -> Availability:
        return Availability(self.name, True)

    def open(self, job: Processes) -> Iterable[Sample]:
        self.opened += 1
        return ()

    def sample(self, time_ns: int) -> Iterator[Sample]:
        self.turns += 1
        if self.turns == self._at and callable(self._do):
            self._do()
        yield Reading(time_ns, self.name, "host", "turns_total", self.turns)

    def close(self) -> Iterable[Sample]:
        self.closed += 1
        return [Event(now_ns(), "closed", self.name)]


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def writer(tmp_path: Path) -> RecordingWriter:
    return RecordingWriter(tmp_path / "a", {"start_ns": str(now_ns())})


def recorded(writer: RecordingWriter) -> Recording:
    writer.close()
    return Recording.open(writer.path)


def test_each_probe_has_its_own_pace(sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter) -> None:
    fast, slow = Counting("fast", 0.02), Counting("slow", 0.5)
    assert Recorder(Job(sleeper.pid), [fast, slow], writer).run(2.0) == "duration"
    assert 30 <= fast.turns <= 115  # periods vary by half, so that 100 of them vary by three (one standard deviation)
    assert 3 <= slow.turns <= 6
    recording = recorded(writer)
    readings = recording.rows(Reading)
    assert sum(reading.probe == "fast" for reading in readings) == fast.turns
    assert {event.text for event in recording.rows(Event)} == {"fast", "slow", "duration"}
    assert [process.pid for process in recording.rows(ProcessSeen)] == [sleeper.pid]
    assert {"own_cpu_seconds_total", "ticks_total", "late_ticks_total"} <= {reading.name for reading in readings}
    recording.close()


def test_ticks_do_not_fall_into_step_with_the_job(sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter) -> None:
    Recorder(Job(sleeper.pid), [Counting("only", 0.05)], writer).run(2.5)
    recording = recorded(writer)
    times = [reading.time_ns for reading in recording.rows(Reading) if reading.probe == "only"]
    gaps = [(after - before) / 1e9 for before, after in pairwise(times)]
    assert max(gaps) - min(gaps) > 0.01
    assert fmean(gaps) == pytest.approx(0.05, rel=0.3)
    recording.close()


def test_it_ends_when_the_job_does(sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter) -> None:
    def end() -> None:
        sleeper.kill()
        sleeper.wait()

    probe = Counting("only", 0.05, 5, end)
    assert Recorder(Job(sleeper.pid), [probe], writer).run(30.0) == "job ended"
    assert probe.turns < 15
    recording = recorded(writer)
    assert [process.pid for process in recording.rows(ProcessGone)] == [sleeper.pid]
    recording.close()


def test_it_ends_when_it_is_told_to(sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter) -> None:
    recorder = Recorder(Job(sleeper.pid), [probe := Counting("only", 0.05)], writer)
    timer = threading.Timer(0.3, recorder.stop)
    timer.start()
    assert recorder.run(30.0) == "interrupted"
    timer.join()
    assert (probe.opened, probe.closed) == (1, 1)
    recording = recorded(writer)
    assert "interrupted" in {event.text for event in recording.rows(Event)}
    recording.close()


def test_what_cannot_be_written_ends_it_with_a_sentence(
    sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter
) -> None:
    """The file's pages are used up, as on a full disk: SQLite's own limit gives the same error."""
    pages = writer._db.execute("PRAGMA page_count").fetchone()[0]
    writer._db.execute(f"PRAGMA max_page_count = {pages + 4}")
    probe = Counting("only", 0.002)
    job = Job(sleeper.pid)
    with pytest.raises(PerfDoctorError, match=r"cannot be written any more: .*full") as caught:
        Recorder(job, [probe], writer).run(30.0)
    assert f"perfdoctor report {writer.path}" in caught.value.hint
    assert (probe.opened, probe.closed) == (1, 1)
    assert job.ended(), "the job's files were not given back"
    recording = Recording.open(writer.path)
    assert recording.meta["start_ns"]
    recording.close()


def test_a_broken_probe_does_not_keep_the_others_open(
    sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter
) -> None:
    def fail() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    good, bad = Counting("good", 0.05), Counting("bad", 0.05, 3, fail)
    with pytest.raises(PerfDoctorError, match="disk I/O error"):
        Recorder(Job(sleeper.pid), [good, bad], writer).run(30.0)
    assert good.closed == bad.closed == 1


def test_it_tells_how_far_it_is(sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter) -> None:
    told: list[float] = []
    Recorder(Job(sleeper.pid), [Counting("only", 0.02)], writer).run(1.0, on_tick=told.append)
    assert told == sorted(told)
    assert 4 <= len(told) <= 12
    assert told[-1] <= 1.2


def governed(own: list[float], helpers: float = 0.0) -> tuple[Governor, list[Event]]:
    """A governor of probes at 50 Hz, after halves of seconds in which these parts of a core were used.

    Args:
        own: by perfdoctor itself, in each of them.
        helpers: by its helpers, in all of them.
    """
    governor = Governor(50.0)
    governor.begin(0, Used(0, 0))
    used = 0.0
    for number, part in enumerate(own, 1):
        used += part * 5e8
        governor.govern(number * 5 * 10**8, partial(Used, round(used), round(helpers * number * 5e8)))
    return governor, list(governor.report(0))


def test_the_rate_falls_when_looking_costs_too_much_and_rises_again() -> None:
    governor, told = governed([10 * BUDGET] * 20)
    assert 50 / governor.stretch == pytest.approx(SLOWEST_HZ)
    assert [event.kind for event in told] == ["rate lowered"]
    assert "instead of 50" in told[0].text
    governor, _ = governed([2 * BUDGET] * 4 + [0.1 * BUDGET] * 40)
    assert governor.stretch == governor.share == 1


def test_what_can_be_done_without_is_thinned_once_the_rate_is_as_low_as_it_may_be() -> None:
    governor, _ = governed([1.4 * BUDGET] * 2)
    assert 1 < governor.stretch < 2.5
    assert governor.share == 1
    governor, _ = governed([10 * BUDGET] * 20)
    assert governor.share < 0.05
    assert governor.period_s(0.02) == pytest.approx(1 / SLOWEST_HZ)
    assert governor.period_s(0.5) == 2.0
    assert governor.period_s(5.0) == 5.0


def test_what_was_used_too_much_is_made_up_for() -> None:
    """The first look at a large job takes seconds of CPU time; what follows has to be cheaper than the budget."""
    governor, _ = governed([0.8] + [0.9 * BUDGET] * 6)
    assert governor.stretch > 1


def test_helpers_count() -> None:
    assert governed([0.6 * BUDGET] * 20)[0].stretch == 1
    assert governed([0.6 * BUDGET] * 20, helpers=0.6 * BUDGET)[0].stretch > 1


def test_the_rate_stays_within_the_budget() -> None:
    governor, told = governed([0.9 * BUDGET] * 20)
    assert governor.stretch == 1
    assert told == []


def test_fast_probes_are_slowed_down_and_slow_ones_are_not(
    sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdoctor.capture.cpu_budget.BUDGET", 1e-6)
    fast, slow = Counting("fast", 0.01), Counting("slow", 0.2)
    Recorder(Job(sleeper.pid), [fast, slow], writer).run(4.0)
    assert fast.turns < 250
    assert slow.turns >= 12
    recording = recorded(writer)
    assert "rate lowered" in {event.kind for event in recording.rows(Event)}
    recording.close()


BUSY = """
import time
while time.process_time() < 0.3:
    pass
print("busy", flush=True)
time.sleep(60)
"""


def test_what_a_child_with_a_budget_of_its_own_uses_does_not_slow_the_recorder(
    sleeper: "subprocess.Popen[bytes]", writer: RecordingWriter
) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        helper = Recorder(Job(sleeper.pid), [], writer)._used().helpers
        apart = Recorder(Job(sleeper.pid), [], writer, frozenset({child.pid}))._used().helpers
        child.kill()
    assert 0.25e9 < helper - apart < 1e9
