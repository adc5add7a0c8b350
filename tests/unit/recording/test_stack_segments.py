"""Stacks as py-spy saw them, and those that a killed perfdoctor leaves beside its recording."""

import json
import zlib
from pathlib import Path

from perfdoctor.recording.follow import Follower
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import StackSegment
from perfdoctor.recording.stack_segments import SeenStack, file_for
from tests.builders.jobs import START, at, write

EVENTS = [{"pid": 7, "tid": 1, "ts": 20, "ph": "B", "name": "f", "args": {"filename": "a.py", "line": 1}}]
TRACE = json.dumps(EVENTS).encode()


def test_they_are_read_with_those_in_it(tmp_path: Path) -> None:
    held = StackSegment(START + 5, 2, START + 9, 7, zlib.compress(TRACE, 1))
    path = write(tmp_path / "a.perfdoctor", [held])
    file_for(path, 7, START + 10, 2).write_bytes(TRACE)
    file_for(path, 7, START + 5, 2).write_bytes(TRACE)  # taken into the recording already
    file_for(path, 8, START + 20, 2).write_bytes(TRACE[:-3])  # py-spy has not finished it
    file_for(path, 9, START + 30, 2).touch()
    file_for(tmp_path / "b-a.perfdoctor", 10, START, 2).write_bytes(TRACE)
    file_for(tmp_path / "a.perfdoctor2", 11, START, 2).write_bytes(TRACE)
    with Recording.open(path) as recording:
        assert recording.stacks() == [held, held._replace(time_ns=START + 10, until_ns=START + 10 + 20_000)]


def test_a_part_that_is_followed_has_those_of_its_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.perfdoctor", [])
    file_for(path, 7, at(1), 2).write_bytes(TRACE)
    file_for(path, 7, at(5), 2).write_bytes(TRACE)
    follower = Follower(path)
    parts = [follower.part(at(begin), at(end)).stacks() for begin, end in ((0, 3), (2, 4), (4, 9))]
    assert [[one.time_ns for one in part] for part in parts] == [[at(1)], [], [at(5)]]
    follower.close()


def test_a_recording_alone_has_its_own(tmp_path: Path) -> None:
    with Recording.open(write(tmp_path / "a.perfdoctor", [])) as recording:
        assert recording.stacks() == []


def test_a_stack_may_be_deeper_than_python_s_own() -> None:
    stack = empty = SeenStack(lambda file, function, line: line)
    for line in range(3000):
        stack = stack.begin("train.py", "walk", line)
    assert stack.frames == tuple(range(3000))
    assert stack.end().frames == tuple(range(2999))
    assert empty.frames == ()
