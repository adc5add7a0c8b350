"""Where no stack was seen since Python code changed it too fast, one that was seen while Python code ran stands in."""

import numpy as np
import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import CodeSample, Sample, StackMissed
from perfdoctor.timeline.stacks import FailedSamples, Stacks, StackSeries, find_failed

PID, IDENT, MS = 10, 140_000, NS_PER_S // 1000
# In Python code at 0.1 s (stack 0), in a kernel from 0.2 s (stack 1), and nothing was seen at 0.25 s.
SERIES = StackSeries(PID, IDENT, np.array([100, 200, 300]) * MS, np.array([0, 1, -1]), is_main=True)
CODE = [CodeSample(103 * MS, PID, "libpython3.11.so.1.0", 1, ""), CodeSample(198 * MS, PID, "libtorch_cpu.so", 1, "")]
FAILED = StackMissed(260 * MS, PID, IDENT)


def failed(series: StackSeries, *samples: Sample) -> FailedSamples | None:
    missed = [sample for sample in samples if isinstance(sample, StackMissed)]
    return find_failed(series, missed, [sample for sample in samples if isinstance(sample, CodeSample)])


def test_a_stack_seen_in_python_code_stands_in() -> None:
    found = failed(SERIES, FAILED, *CODE)
    assert found is not None
    assert found.stand_ins.stacks.tolist() == [0]
    assert found.stand_ins.near(260 * MS)[0][1] == 0
    assert [number for _, number in SERIES.near(260 * MS)] == [1, 0]


def test_a_failed_sample_counts_until_a_stack_is_nearer() -> None:
    found = failed(SERIES, FAILED, *CODE)
    assert found is not None
    assert found.is_nearer(255 * MS, 6 * MS)
    assert not found.is_nearer(205 * MS, 5 * MS)


@pytest.mark.parametrize(("pid", "ident"), [(PID, IDENT + 1), (PID + 1, IDENT)])
def test_failed_samples_of_others_are_not_the_main_threads(pid: int, ident: int) -> None:
    assert failed(SERIES, StackMissed(260 * MS, pid, ident), *CODE) is None


@pytest.mark.parametrize("code", [[], CODE[1:]])
def test_where_no_stack_was_seen_in_python_code_nothing_stands_in(code: list[Sample]) -> None:
    assert failed(SERIES, FAILED, *code) is None


def test_a_piece_of_a_stack_is_a_failed_sample() -> None:
    main, inner = Frame("/home/me/train.py", "<module>", 3), Frame("/v/pandas/core/apply.py", "apply", 9)
    stacks = Stacks([(main, inner), (inner,), (main,)])
    times = np.array([100, 200, 300, 400]) * MS
    series = stacks._series(PID, IDENT, times, np.array([0, 1, 2, -1]))
    assert series.is_main
    assert series.stacks.tolist() == [0, -1, 2, -1]
    assert series.torn_ns.tolist() == [200 * MS]
    found = failed(series, *CODE)
    assert found is not None
    assert found.times_ns.tolist() == [200 * MS]


def test_a_thread_that_begins_here_and_there_has_no_pieces() -> None:
    stacks = Stacks([(Frame("/home/me/a.py", name, 1),) for name in "abcd"])
    series = stacks._series(PID, IDENT, np.arange(4), np.arange(4))
    assert series.stacks.tolist() == [0, 1, 2, 3]
