"""The recording: what is added comes back, a kill loses only what was not committed, and damage is named."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording import reader
from perfdoctor.recording.file_format import FORMAT, MAGIC
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import (
    TABLES,
    Event,
    Mark,
    Reading,
    StackSegment,
    ThreadSample,
    ThreadSeen,
)
from perfdoctor.recording.writer import RecordingWriter
from tests.builders.jobs import START, recorded, write
from tests.processes.attaching import needs_root

META = {"start_ns": str(START), "host": "here"}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A recording of some hundred kilobytes."""
    return write(tmp_path / "full", (Event(START + i, "kind", "x" * 90) for i in range(3000)))


def test_what_is_added_comes_back(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a", META)
    thread = ThreadSample(START + 5, 7, "S", None, "file:/data\n'\"", 1 << 62, 0, None, 3, None, 0)
    segment = StackSegment(START + 1, 2, START + 9, 7, b"\x00\xff")
    unread = Reading(START + 2, "cpu", "host", "x_bytes", None)
    writer.add([thread, segment, unread])
    writer.set_meta({"host": "there"})
    writer.close()
    recording = Recording.open(tmp_path / "a")
    assert recording.rows(ThreadSample) == [thread]
    assert recording.rows(StackSegment) == [segment]
    assert recording.rows(Reading) == [unread]
    assert recording.meta["host"] == "there"
    assert (recording.start_ns, recording.end_ns) == (START, START + 5)
    recording.close()


def test_samples_come_in_order_of_time() -> None:
    with recorded([Event(START + 9, "late", ""), Event(START + 1, "early", "")]) as recording:
        assert [event.kind for event in recording.rows(Event)] == ["early", "late"]


def test_readings_come_by_subject_and_name() -> None:
    """In order of time; a look that failed is no reading."""
    samples = [
        Reading(START + 3, "cpu", "host", "x_total", 9.0),
        Reading(START + 1, "cpu", "host", "x_total", 4.0),
        Reading(START + 2, "cpu", "host", "x_total", None),
        Reading(START + 2, "cpu", "pid:7", "x_total", None),
    ]
    with recorded(samples) as recording:
        assert recording.series == {("host", "x_total"): ([START + 1, START + 3], [4.0, 9.0])}


@pytest.mark.parametrize("at_once", [2, 500_000])
def test_columns_are_the_fields_of_the_rows(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(reader, "_AT_ONCE", at_once)
    samples = [
        ThreadSample(START + time, 7, "S", call, '"\\\n\N{SNOWMAN}', 1 << 62, 0, voluntary, 3, None, 0)
        for time, call, voluntary in ((5, None, 4), (1, "futex", None), (5, "read", 2), (3, "", 1 << 53))
    ]
    with recorded([*samples, Reading(START + 2, "cpu", "host", "x_bytes", 1 / 3)]) as recording:
        columns = recording.columns(ThreadSample, "time_ns", "syscall", "target", "run_ns", "voluntary")
        rows = recording.rows(ThreadSample)
        assert list(zip(*columns, strict=True)) == [
            (row.time_ns, row.syscall, row.target, row.run_ns, row.voluntary) for row in rows
        ]
        assert columns[0] == sorted(columns[0])
        assert recording.columns(Reading, "time_ns", "value") == [[START + 2], [1 / 3]]
        assert recording.columns(Mark, "time_ns", "what") == [[], []]


def test_every_kind_has_its_table() -> None:
    with recorded([]) as recording:
        for kind in TABLES:
            assert recording.rows(kind) == []
        assert recording.end_ns == START


def killed_writer(path: Path, last: str) -> None:
    """A recorder that has committed one event, and is killed with others under way."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom perfdoctor.recording.writer import RecordingWriter\n"
        "from perfdoctor.recording.schema import Event\n"
        f"writer = RecordingWriter(Path({str(path)!r}), {META!r})\n"
        f"writer.add([Event({START + 1}, 'kept', '')])\nwriter.commit()\n{last}\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL


def in_a_commit(count: int) -> str:
    """Code that has so many events under way to the file, in a commit that has not come to its end."""
    rows = f"(Event({START} + i, 'lost', 'x' * 200) for i in range({count}))"
    return f"writer._db.execute('BEGIN')\nwriter._db.executemany(writer._inserts[Event], {rows})"


@pytest.mark.parametrize("count", [0, 1, 50_000])
def test_a_kill_loses_only_what_was_not_committed(count: int, tmp_path: Path) -> None:
    """So many events do not fit into SQLite's cache: half of them are in the file already, and are taken back."""
    killed_writer(tmp_path / "a", in_a_commit(count))
    recording = Recording.open(tmp_path / "a")
    assert [event.kind for event in recording.rows(Event)] == ["kept"]
    recording.close()


@needs_root
def test_a_killed_writers_file_on_a_disk_that_may_only_be_read(tmp_path: Path) -> None:
    disk, view = tmp_path / "disk", tmp_path / "view"
    disk.mkdir()
    view.mkdir()
    killed_writer(disk / "a", in_a_commit(50_000))
    subprocess.run(["mount", "--bind", str(disk), str(view)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
        with pytest.raises(PerfDoctorError, match="cannot be opened") as caught:
            Recording.open(view / "a")
    finally:
        subprocess.run(["umount", "-l", str(view)], check=True)
    assert "-journal" in caught.value.hint


def test_a_recording_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a", META)
    writer.add([Event(START + 1, "committed", "")])
    writer.commit()
    writer.add([Event(START + 2, "under way", "")])
    recording = Recording.open(tmp_path / "a")
    assert [event.kind for event in recording.rows(Event)] == ["committed"]
    recording.close()
    writer.close()


def test_a_truncated_recording_is_damaged_whatever_its_size(full: Path, tmp_path: Path) -> None:
    whole = full.read_bytes()
    assert len(whole) > 100_000
    for size in [1, 15, 16, 99, 100, 511, 4095, 4096, 4097, *range(8192, len(whole) - 1, 37_117), len(whole) - 1]:
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:size])
        with pytest.raises(PerfDoctorError, match=r"damaged|not a perfdoctor recording") as caught:
            Recording.open(cut)
        assert "attach" in caught.value.hint
        assert cut.read_bytes() == whole[:size], "reading changed it"


def test_bytes_gone_bad_never_end_in_anything_but_a_sentence(full: Path, tmp_path: Path) -> None:
    whole = bytearray(full.read_bytes())
    outcomes = set()
    for at in range(120, len(whole) - 64, 9_001):
        bad = tmp_path / "bad"
        bad.write_bytes(whole[:at] + b"\xff" * 64 + whole[at + 64 :])
        try:
            recording = Recording.open(bad)
            recording.rows(Event)
            recording.close()
            outcomes.add("read")
        except PerfDoctorError as error:
            outcomes.add("damaged" if "damaged" in str(error) else str(error))
    assert "damaged" in outcomes
    assert outcomes <= {"read", "damaged"}


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(PerfDoctorError, match="is empty"):
        Recording.open(tmp_path / "a")


def test_another_format(full: Path) -> None:
    db = sqlite3.connect(full)
    db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    with pytest.raises(PerfDoctorError, match=rf"format {FORMAT + 1}.*reads format {FORMAT}") as caught:
        Recording.open(full)
    assert "version that wrote it" in caught.value.hint


@pytest.mark.parametrize("content", [b"step,loss\n1,0.5\n" * 100, bytes(range(256)) * 64, b"SQLite format 3\0" * 9])
def test_another_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(PerfDoctorError, match=r"not a perfdoctor recording|damaged"):
        Recording.open(tmp_path / "a")


def test_another_database(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "a")
    db.execute("CREATE TABLE runs (name TEXT)")
    db.close()
    with pytest.raises(PerfDoctorError, match="not a perfdoctor recording"):
        Recording.open(tmp_path / "a")


@pytest.mark.parametrize(
    "statement", ['DROP TABLE "Event"', "DROP TABLE meta", "DELETE FROM meta", "UPDATE meta SET value = 'soon'"]
)
def test_a_recording_that_lacks_something(statement: str, full: Path) -> None:
    db = sqlite3.connect(full)
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(PerfDoctorError, match="damaged"):
        Recording.open(full)


def test_no_file_and_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(PerfDoctorError, match="There is no recording"):
        Recording.open(tmp_path / "a")
    with pytest.raises(PerfDoctorError, match="is a folder"):
        Recording.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PerfDoctorError, match="not a perfdoctor recording"):
        Recording.open(tmp_path / "pipe")
    with pytest.raises(PerfDoctorError, match="cannot be read"):
        Recording.open(write(tmp_path / "b") / "c")


def test_a_file_that_is_being_written_is_not_called_damaged(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    writer = connect(full, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", lambda path: connect(path, timeout=0.1))
    with pytest.raises(PerfDoctorError, match="being written"):
        Recording.open(full)
    writer.execute("COMMIT")
    writer.close()


def test_no_place_to_write(tmp_path: Path) -> None:
    with pytest.raises(PerfDoctorError, match="cannot be written") as caught:
        RecordingWriter(tmp_path / "missing" / "a", META)
    assert "--recording" in caught.value.hint


def test_the_file_says_what_it_is(full: Path) -> None:
    copy = full.with_name("copy")
    shutil.copy(full, copy)
    head = copy.read_bytes()[:100]
    assert int.from_bytes(head[68:72], "big") == MAGIC
    assert int.from_bytes(head[60:64], "big") == FORMAT


def test_ids_of_any_size_fit(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a", META)
    writer.add([ThreadSeen(START, 4_194_303, 1, "\N{SNOWMAN}\x00name")])
    writer.close()
    recording = Recording.open(tmp_path / "a")
    assert recording.rows(ThreadSeen) == [ThreadSeen(START, 4_194_303, 1, "\N{SNOWMAN}\x00name")]
    recording.close()
