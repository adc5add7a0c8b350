"""Where no stack was seen since Python code changed it too fast, one that was seen while Python code ran stands in."""

import numpy as np
import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import StackMissed
from perfdoctor.timeline.machine_code import CodeSamples
from perfdoctor.timeline.stacks import FailedSamples, Stacks, StackSeries, find_failed
from tests.builders import jobs

PID, IDENT, MS = 10, 140_000, 1_000_000
MAIN = Frame("/home/me/train.py", "<module>", 3)


def at(ms: int) -> int:
    return jobs.at(ms / 1000)


def series_of(*stacks: tuple[Frame, ...]) -> StackSeries:
    """A thread that was seen in these stacks, one each tenth of a second from 0.1 s on."""
    [series] = Stacks.read(jobs.stacks(PID, *stacks, ident=IDENT, times=len(stacks), every_s=0.1, from_s=0.1)).series
    return series


# In Python code at 0.1 s (stack 0), in a kernel from 0.2 s (stack 1), and nothing was seen at 0.3 s.
SERIES = series_of((MAIN, jobs.OWN), (MAIN, jobs.MODULE), ())
CODE = CodeSamples(
    np.array([at(103), at(198)]), np.array([PID, PID]), np.array(["interpreter", "kernel"], dtype=object)
)
FAILED = StackMissed(at(260), PID, IDENT)


def failed(series: StackSeries, *missed: StackMissed, code: CodeSamples = CODE) -> FailedSamples | None:
    return find_failed(series, missed, code)


def test_a_stack_seen_in_python_code_stands_in() -> None:
    found = failed(SERIES, FAILED)
    assert found is not None
    assert found.stand_ins.stacks.tolist() == [0]
    assert found.stand_ins.near(at(260))[0][1] == 0
    assert [number for _, number in SERIES.near(at(260))] == [1, 0]


def test_a_failed_sample_counts_until_a_stack_is_nearer() -> None:
    found = failed(SERIES, FAILED)
    assert found is not None
    assert found.is_nearer(at(255), 6 * MS)
    assert not found.is_nearer(at(205), 5 * MS)


@pytest.mark.parametrize(("pid", "ident"), [(PID, IDENT + 1), (PID + 1, IDENT)])
def test_failed_samples_of_others_are_not_the_main_threads(pid: int, ident: int) -> None:
    assert failed(SERIES, StackMissed(at(260), pid, ident)) is None


@pytest.mark.parametrize("code", [CODE.of(PID + 1), CODE.of_kind("kernel")])
def test_where_no_stack_was_seen_in_python_code_nothing_stands_in(code: CodeSamples) -> None:
    assert failed(SERIES, FAILED, code=code) is None


def test_a_piece_of_a_stack_is_a_failed_sample() -> None:
    inner = Frame("/v/pandas/core/apply.py", "apply", 9)
    series = series_of((MAIN, inner), (inner,), (MAIN,), ())
    assert series.is_main
    assert series.stacks.tolist() == [0, -1, 2, -1]
    assert series.torn_ns.tolist() == [at(200)]
    found = failed(series)
    assert found is not None
    assert found.times_ns.tolist() == [at(200)]


def test_a_thread_that_begins_here_and_there_has_no_pieces() -> None:
    series = series_of(*((Frame("/home/me/a.py", name, 1),) for name in "abcd"))
    assert series.stacks.tolist() == [0, 1, 2, 3]
