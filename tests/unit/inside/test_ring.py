"""The ring of marks: nothing waits, what is lost is counted, and either side may die."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from perfdoctor.probes.inside.ring import (
    BEGIN,
    CAPACITY,
    COLLECTOR,
    DATA,
    END,
    FORWARD,
    OWN,
    RANK_WAIT,
    SERIALISED,
    WATCHING,
    RingReader,
    RingWriter,
    find_ring,
)
from perfdoctor.probes.marks import MarksProbe, steps_per_second
from perfdoctor.recording.schema import Mark, SerialMark, Unavailable
from tests.processes.watching import Watched

WRITE = """
import sys, time
from perfdoctor.probes.inside.ring import RingWriter
ring = RingWriter(7)
for value in range(50):
    ring.marker(1, value)(time.monotonic_ns())
ring.flush()
print("ready", flush=True)
time.sleep(60)
"""


def both_ends() -> tuple[RingWriter, RingReader]:
    writer = RingWriter(7)
    return writer, RingReader(os.dup(writer.fd))


def test_marks_arrive_in_order_and_once() -> None:
    writer, reader = both_ends()
    data, forward = writer.marker(BEGIN | DATA, 5), writer.marker(BEGIN | FORWARD, 6)
    forward(200)
    data(100)
    forward(300)
    assert reader.read() == []
    writer.flush()
    assert reader.read() == [(100, BEGIN | DATA, 5), (200, BEGIN | FORWARD, 6), (300, BEGIN | FORWARD, 6)]
    assert reader.read() == []
    data(400)
    writer.flush()
    assert [mark.time_ns for mark in reader.read()] == [400]
    assert reader.lost == 0


def test_ring_comes_round() -> None:
    writer, reader = both_ends()
    data = writer.marker(DATA, 2**31 - 1)
    some = CAPACITY // 2 - 7
    for turn in range(5):
        for number in range(some):
            data(turn * some + number)
        writer.flush()
        assert [mark.time_ns for mark in reader.read()] == list(range(turn * some, (turn + 1) * some))
    assert reader.lost == 0


def test_slow_reader_loses_the_oldest_and_counts_them() -> None:
    writer, reader = both_ends()
    data = writer.marker(DATA)
    for number in range(3 * CAPACITY + 10):
        data(number)
        if number == CAPACITY:
            writer.flush()
    writer.flush()
    assert [mark.time_ns for mark in reader.read()] == list(range(2 * CAPACITY + 10, 3 * CAPACITY + 10))
    assert reader.lost == 2 * CAPACITY + 10


def test_what_is_overwritten_while_it_is_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = both_ends()
    data = writer.marker(DATA)
    for number in range(CAPACITY):
        data(number)
    writer.flush()
    count, counts = reader._count, []

    def slow(at: int) -> int:
        if counts:  # between its two looks at the counts the reader is overtaken
            for number in range(100):
                data(CAPACITY + number)
            writer.flush()
        counts.append(at)
        return count(at)

    monkeypatch.setattr(reader, "_count", slow)
    assert [mark.time_ns for mark in reader.read()] == list(range(100, CAPACITY))
    assert reader.lost == 100


def test_marks_that_the_writer_did_not_finish_are_left_out() -> None:
    """It may be killed, or interrupted, in the middle of writing."""
    writer, reader = both_ends()
    data = writer.marker(DATA)
    data(1)
    writer.flush()
    data(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
    assert [mark.time_ns for mark in reader.read()] == [1]
    data(3)
    writer.flush()
    assert [mark.time_ns for mark in reader.read()] == [3]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_marks_of_several_threads_are_all_there() -> None:
    writer, reader = both_ends()

    def work() -> None:
        data = writer.marker(DATA)
        for number in range(4000):
            data(number)
            if number % 100 == 0:
                writer.flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.flush()
    assert sorted(mark.time_ns for mark in reader.read()) == sorted(4 * list(range(4000)))


def test_the_collector_may_mark_for_the_first_time_while_marks_are_written() -> None:
    """It runs wherever memory is taken: at one time or another in the middle of a ``flush``."""
    threshold = gc.get_threshold()
    for _ in range(20):
        writer, reader = both_ends()
        runs = []

        def collected(moment: str, _: object, writer: RingWriter = writer, runs: list[int] = runs) -> None:
            if moment == "stop" and len(runs) < 100:
                runs.append(len(runs))
                writer.marker(COLLECTOR, runs[-1])(time.monotonic_ns())

        for value in range(50):
            writer.marker(OWN, value)(time.monotonic_ns())
        gc.callbacks.append(collected)
        gc.set_threshold(1)
        try:
            writer.flush()
        finally:
            gc.set_threshold(*threshold)
            gc.callbacks.remove(collected)
        writer.flush()
        records = reader.read()
        assert sorted(record.value for record in records if record.kind == OWN) == list(range(50))
        assert sorted(record.value for record in records if record.kind == COLLECTOR) == runs


def test_texts_survive_and_overflow_is_left_out() -> None:
    writer, reader = both_ends()
    writer.say("phase", OWN, 'augment "quoted"\n')
    writer.say("note", "x" * 100_000)
    writer.say("note", "short", "")
    assert reader.texts() == [["phase", OWN, 'augment "quoted"\n'], ["note", "short", ""]]


STEPPING = """
import sys, time
from perfdoctor.probes.inside.ring import POINT, STEP, RingWriter
ring, now = RingWriter(7), time.monotonic_ns()
for tenths in (150, 140, 20, 15, 10, 5):
    ring.marker(POINT | STEP)(now - tenths * 100_000_000)
ring.flush()
print(now, flush=True)
time.sleep(60)
"""


def test_the_pace_is_that_of_the_last_seconds() -> None:
    with subprocess.Popen([sys.executable, "-c", STEPPING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        now_ns = int(process.stdout.readline())
        assert steps_per_second(process.pid, now_ns) == pytest.approx(2.0)
        assert steps_per_second(process.pid, now_ns + 60_000_000_000) is None
        process.kill()
    assert steps_per_second(os.getpid(), now_ns) is None


def test_ring_of_a_killed_process_is_read_to_its_end() -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ring = find_ring(process.pid)
        assert ring is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
    probe = MarksProbe(ring)
    list(probe.open(Watched()))
    marks = [sample for sample in probe.close() if isinstance(sample, Mark)]
    assert [mark.value for mark in marks] == list(range(50))
    assert {mark.what for mark in marks} == {"data"}
    assert ring.thread == 7


def test_probe_names_the_users_phases_and_tells_what_failed() -> None:
    writer, reader = both_ends()
    writer.say("phase", OWN, "augment")
    writer.say("note", "Something could not be marked.", "do this")
    writer.marker(OWN)(time.monotonic_ns())
    writer.flush()
    probe = MarksProbe(reader)
    list(probe.open(Watched()))
    assert writer.sidecar() == WATCHING
    assert [sample.what for sample in probe.sample(time.monotonic_ns()) if isinstance(sample, Mark)] == ["own: augment"]
    assert list(probe.close()) == [Unavailable("marks", "Something could not be marked.", "do this")]


def test_process_without_a_ring() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert find_ring(process.pid) is None
        process.kill()
    assert find_ring(process.pid) is None


def test_marks_of_serialised_steps_are_told_from_others() -> None:
    """Also where the border lies between two looks."""
    writer = RingWriter(1)
    probe = MarksProbe(RingReader(os.dup(writer.fd)))
    writer.handed_over()
    kinds = [FORWARD, BEGIN | SERIALISED, FORWARD, RANK_WAIT, END | SERIALISED, FORWARD]
    found = []
    for time_ns, kind in enumerate(kinds):
        writer.marker(kind)(time_ns)
        writer.flush()
        found += probe.sample(time.monotonic_ns())
    assert [type(mark) for mark in found] == [Mark, SerialMark, SerialMark, SerialMark, SerialMark, Mark]
    assert [mark[0] for mark in found] == list(range(6))
    assert found[3].what == "rank wait"
