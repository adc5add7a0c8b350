"""Where no stack was seen since Python code changed it too fast, one that was seen while Python code ran stands in."""

from pathlib import Path

import numpy as np
import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import CodeSample, Sample, StackMissed
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.timeline.failed_samples import Misses, find_misses
from perfdoctor.timeline.stacks import Stacks, StackSeries

PID, IDENT, MS = 10, 140_000, NS_PER_S // 1000
# In Python code at 0.1 s (stack 0), in a kernel from 0.2 s (stack 1), and nothing was seen at 0.25 s.
TRACK = StackSeries(PID, IDENT, np.array([100, 200, 300]) * MS, np.array([0, 1, -1]), is_main=True)
CODE = [CodeSample(103 * MS, PID, "libpython3.11.so.1.0", 1, ""), CodeSample(198 * MS, PID, "libtorch_cpu.so", 1, "")]
MISSED = StackMissed(260 * MS, PID, IDENT)


def misses(tmp_path: Path, track: StackSeries, *samples: Sample) -> Misses | None:
    writer = RecordingWriter(tmp_path / "it.perfdoctor", {"start_ns": "0", "end_ns": str(NS_PER_S)})
    writer.add(samples)
    writer.close()
    return find_misses(Recording.open(tmp_path / "it.perfdoctor"), track)


def test_a_stack_seen_in_python_code_stands_in(tmp_path: Path) -> None:
    found = misses(tmp_path, TRACK, MISSED, *CODE)
    assert found is not None
    assert found.stand_ins.stacks.tolist() == [0]
    assert found.stand_ins.near(260 * MS)[0][1] == 0
    assert [number for _, number in TRACK.near(260 * MS)] == [1, 0]


def test_a_miss_counts_until_a_stack_is_nearer(tmp_path: Path) -> None:
    found = misses(tmp_path, TRACK, MISSED, *CODE)
    assert found is not None
    assert found.is_nearer(255 * MS, 6 * MS)
    assert not found.is_nearer(205 * MS, 5 * MS)


@pytest.mark.parametrize(("pid", "ident"), [(PID, IDENT + 1), (PID + 1, IDENT)])
def test_misses_of_others_are_not_the_main_threads(tmp_path: Path, pid: int, ident: int) -> None:
    assert misses(tmp_path, TRACK, StackMissed(260 * MS, pid, ident), *CODE) is None


@pytest.mark.parametrize("code", [[], CODE[1:]])
def test_where_no_stack_was_seen_in_python_code_nothing_stands_in(tmp_path: Path, code: list[Sample]) -> None:
    assert misses(tmp_path, TRACK, MISSED, *code) is None


def test_a_piece_of_a_stack_is_a_miss(tmp_path: Path) -> None:
    main, inner = Frame("/home/me/train.py", "<module>", 3), Frame("/v/pandas/core/apply.py", "apply", 9)
    stacks = Stacks([(main, inner), (inner,), (main,)])
    times = np.array([100, 200, 300, 400]) * MS
    track = stacks._track(PID, IDENT, times, np.array([0, 1, 2, -1]))
    assert track.is_main
    assert track.stacks.tolist() == [0, -1, 2, -1]
    assert track.torn_ns.tolist() == [200 * MS]
    found = misses(tmp_path, track, *CODE)
    assert found is not None
    assert found.times_ns.tolist() == [200 * MS]


def test_a_thread_that_begins_here_and_there_has_no_pieces() -> None:
    stacks = Stacks([(Frame("/home/me/a.py", name, 1),) for name in "abcd"])
    track = stacks._track(PID, IDENT, np.arange(4), np.arange(4))
    assert track.stacks.tolist() == [0, 1, 2, 3]
