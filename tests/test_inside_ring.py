"""The ring of marks: nothing waits, what is lost is counted, and either side may die."""

import os
import signal
import subprocess
import sys
import threading
import time

from perfdoctor.probes.inside.ring import (
    BEGIN,
    CAPACITY,
    DATA,
    FORWARD,
    OWN,
    WATCHING,
    RingReader,
    RingWriter,
    find_ring,
)
from perfdoctor.probes.marks import MarksProbe
from perfdoctor.samples import Mark, Unavailable
from tests.watching import Watched

WRITE = """
import sys, time
from perfdoctor.probes.inside.ring import RingWriter
ring = RingWriter(7)
for value in range(50):
    ring.remember((time.monotonic_ns(), 1, value))
ring.flush()
print("ready", flush=True)
time.sleep(60)
"""


def both_ends() -> tuple[RingWriter, RingReader]:
    writer = RingWriter(7)
    return writer, RingReader(os.dup(writer.fd))


def test_marks_arrive_in_order_and_once() -> None:
    writer, reader = both_ends()
    writer.remember((time.monotonic_ns(), BEGIN | DATA, 5))
    writer.remember((123, BEGIN | FORWARD, 6))
    assert list(reader.read()) == []
    writer.flush()
    first = list(reader.read())
    assert [(mark.kind, mark.value) for mark in first] == [(DATA, 5), (FORWARD, 6)]
    assert first[1].time_ns == 123
    assert abs(first[0].time_ns - time.monotonic_ns()) < 60e9
    assert list(reader.read()) == []
    writer.remember((time.monotonic_ns(), BEGIN | DATA, 7))
    writer.flush()
    assert [mark.value for mark in reader.read()] == [7]
    assert reader.lost == 0


def test_slow_reader_loses_the_oldest_and_counts_them() -> None:
    writer, reader = both_ends()
    for value in range(3 * CAPACITY + 10):
        writer.remember((time.monotonic_ns(), DATA, value))
    writer.flush()
    assert [mark.value for mark in reader.read()] == list(range(2 * CAPACITY + 10, 3 * CAPACITY + 10))
    assert reader.lost == 2 * CAPACITY + 10


def test_a_mark_that_was_never_finished_is_left_out() -> None:
    """The writer may be killed, or its memory damaged, in the middle of a record."""
    writer, reader = both_ends()
    writer.remember((time.monotonic_ns(), DATA, 0))
    writer.remember((time.monotonic_ns(), DATA, 1))
    writer.remember((time.monotonic_ns(), DATA, 2))
    writer.flush()
    hole = reader._slot(2)
    writer._memory[hole : hole + 32] = bytes(32)
    assert [mark.value for mark in reader.read()] == [0]
    assert [mark.value for mark in reader.read()] == [2]
    assert reader.lost == 1


def test_marks_of_several_threads_are_all_there() -> None:
    writer, reader = both_ends()
    threads = [
        threading.Thread(target=lambda: [writer.remember((time.monotonic_ns(), DATA, value)) for value in range(4000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.flush()
    assert sorted(mark.value for mark in reader.read()) == sorted(4 * list(range(4000)))


def test_texts_survive_and_overflow_is_left_out() -> None:
    writer, reader = both_ends()
    writer.say("phase", OWN, 'augment "quoted"\n')
    writer.say("note", "x" * 100_000)
    writer.say("note", "short", "")
    assert reader.texts() == [["phase", OWN, 'augment "quoted"\n'], ["note", "short", ""]]


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
    writer.remember((time.monotonic_ns(), OWN, 0))
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
