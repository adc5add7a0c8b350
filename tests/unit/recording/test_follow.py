"""A recording is followed while it is written."""

import sqlite3
import time
from pathlib import Path

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.follow import AFTERWARDS, AT_ONCE, STREAMS, Follower
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import TABLES, Event, ProcessSeen, Reading, StackSegment, ThreadSample
from perfdoctor.recording.writer import RecordingWriter
from tests.builders.jobs import START, at, process, readings, stacks, thread, write
from tests.recordings import corpus, packing

META = {"start_ns": str(START)}


def test_what_is_committed_is_seen_and_nothing_twice(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "a", META) as writer:
        follower = Follower(tmp_path / "a")
        follower.read_on()
        assert (follower.newest_ns, follower.kept(ProcessSeen)) == (START, [])
        writer.add([*process(7), *readings("host", "x", 1.0, 2.0)])
        follower.read_on()
        assert follower.kept(ProcessSeen) == []
        writer.commit()
        follower.read_on()
        follower.read_on()
        assert [one.pid for one in follower.kept(ProcessSeen)] == [7]
        assert follower.newest_ns == at(1.0)
        assert not follower.stopped
        writer.add([*process(8), Event(at(2), "stopped", "duration")])
    follower.read_on()
    assert [one.pid for one in follower.kept(ProcessSeen)] == [7, 8]
    assert follower.stopped == "duration"
    follower.close()


def test_a_stretch_holds_what_lies_in_it_in_order_of_time(tmp_path: Path) -> None:
    late = [Reading(at(3.5), "gpu", "gpu:0", "late", 1.0)]
    samples = [*readings("host", "x", *range(3 * AT_ONCE), every_s=0.001), *late]
    follower = Follower(write(tmp_path / "a", samples))
    found = follower.stretch(Reading, at(3.0), at(4.0))
    assert found == sorted(found, key=lambda one: one.time_ns)
    assert [one.value for one in found if one.name == "x"] == list(range(3000, 4001))
    assert late[0] in found
    assert follower.stretch(Reading, at(50), at(60)) == []
    assert follower.stretch(ThreadSample, at(0), at(60)) == []
    follower.close()


@pytest.mark.parametrize("name", ["straggler_disk", "sound_from_inside"])
def test_all_of_a_recording_in_one_part_is_the_recording(name: str, tmp_path: Path) -> None:
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", tmp_path / "a")
    follower = Follower(tmp_path / "a")
    follower.read_on()
    with Recording.open(tmp_path / "a") as whole:
        part = follower.part(whole.start_ns, whole.end_ns)
        for table in TABLES:
            if table not in AFTERWARDS:
                assert sorted(part.rows(table), key=repr) == sorted(whole.rows(table), key=repr), table
        assert part.facts == whole.facts
        assert part.processes == whole.processes
    follower.close()


def test_a_part_is_a_recording_that_was_cut(tmp_path: Path) -> None:
    samples = [*process(7, ended_s=6.0), *thread(7, 7), *stacks(7, ()), Event(at(9), "stopped", "duration")]
    follower = Follower(write(tmp_path / "a", samples))
    follower.read_on()
    part = follower.part(at(2.0), at(5.0))
    assert (part.start_ns, part.end_ns) == (at(2.0), at(5.0))
    times = [sample.time_ns for sample in part.rows(ThreadSample)]
    assert (min(times), max(times)) == (at(2.0), at(5.0))
    assert part.ended_ns == {}
    assert part.rows(Event) == []
    assert len(part.rows(StackSegment)) == 1
    assert follower.stacks_until() == {7: at(10.0)}
    follower.close()


def test_whoever_reads_does_not_hold_up_whoever_writes(tmp_path: Path) -> None:
    """The recorder commits between any two pieces that are read."""
    rows = [Reading(START + number, "cpu", "host", "x", 1.0) for number in range(20 * AT_ONCE)]
    with RecordingWriter(tmp_path / "a", META) as writer:
        writer.add(rows)
        writer.commit()
        follower = Follower(tmp_path / "a")
        read = follower._tables.select

        def commit_meanwhile(*arguments: object) -> object:
            found = read(*arguments)  # type: ignore[arg-type]
            writer.add([Event(START, "meanwhile", "")])
            writer.commit()
            return found

        follower._tables.select = commit_meanwhile  # type: ignore[method-assign,assignment]
        assert len(follower.stretch(Reading, START, START + NS_PER_S)) == len(rows)
        follower.close()
    with Recording.open(tmp_path / "a") as whole:
        assert len(whole.rows(Event)) >= 20


def test_how_long_nothing_has_come_is_known_from_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a", readings("host", "x", 1.0))
    an_hour_ago = time.time_ns() - 3600 * NS_PER_S
    import os

    os.utime(path, ns=(an_hour_ago, an_hour_ago))
    follower = Follower(path)
    assert time.monotonic_ns() - follower.grown_ns > 3000 * NS_PER_S
    follower.close()


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("not one")
    with pytest.raises(PerfDoctorError, match="is not a perfdoctor recording"):
        Follower(tmp_path / "a")
    with pytest.raises(PerfDoctorError, match="There is no recording"):
        Follower(tmp_path / "b")
    sqlite3.connect(tmp_path / "c").execute("CREATE TABLE meta (key, value)").connection.close()
    with pytest.raises(PerfDoctorError, match="is not a perfdoctor recording"):
        Follower(tmp_path / "c")


def test_every_table_is_read_somehow() -> None:
    assert all("time_ns" in table._fields for table in STREAMS)
