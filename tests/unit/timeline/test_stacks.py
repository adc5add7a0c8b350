"""Where no stack was seen since Python code changed it too fast, one that was seen while Python code ran stands in.

And a thread that runs is at no line where it was only seen to sleep, and the other way around.
"""

import random

import numpy as np
import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import StackMissed
from perfdoctor.timeline.job import JobTimeline
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
    np.array([at(103), at(198)]),
    np.array([PID, PID]),
    np.array(["interpreter", "kernel"], dtype=object),
    np.zeros(2, bool),
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


def test_a_stack_is_near_until_halfway_from_its_last_sample_to_the_next_stack() -> None:
    """One that lasts was seen in each sample, every 50 ms, and is not only as near as its first."""
    series = series_of((MAIN, jobs.OWN), (MAIN, jobs.MODULE), (MAIN, jobs.OWN))
    assert [series.near(at(ms))[0][1] for ms in (95, 105, 145, 170, 180, 195, 205, 245, 270, 280)] == [
        *(0, 0, 0, 0, 1, 1, 1, 1, 1, 0)
    ]
    assert [distance // MS for distance, _ in series.near(at(160))] == [10, 40, 140]


def test_shares_of_near_stacks_are_those_of_the_time() -> None:
    """0.3 s in one stack and 0.05 s in another, by turns, sampled at times that vary by half of the period."""
    varied = random.Random(3)
    times_ms, seen, now_ms = list[int](), list[int](), 0.0
    while now_ms < 600_000:
        now_ms += 50 * varied.uniform(0.5, 1.5)
        stack = int(now_ms % 350 >= 300)
        if not seen or seen[-1] != stack:
            times_ms.append(round(now_ms))
            seen.append(stack)
    series = StackSeries(PID, IDENT, np.array(times_ms) * MS, np.array(seen), is_main=True)
    near = [series.near(ms * MS)[0][1] for ms in range(1000, 599_000, 23)]
    assert sum(near) / len(near) == pytest.approx(50 / 350, rel=0.08)


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


PID = 10
PREPARING = (Frame("/home/me/train.py", "main", 7), Frame("/home/me/train.py", "prepare", 31))
PAUSING = (Frame("/home/me/train.py", "main", 9),)


def paced(call: str = "clock_nanosleep", seconds: float = 10.0) -> JobTimeline:
    """A thread that runs and pauses, 20 ms each; a fifth of the time one of its stacks is seen."""
    seen = jobs.stacks(PID, PREPARING, PAUSING, times=int(seconds * 10), every_s=0.1)
    return jobs.timeline([*jobs.process(PID), *jobs.thread(PID, PID, "RS", call=call), *seen])


def line(job: JobTimeline, seconds: float) -> str:
    """The line at an instant."""
    return job.observe(job.processes.by_pid[PID], jobs.at(seconds)).location.line


def test_a_running_thread_is_not_where_it_was_only_seen_to_sleep() -> None:
    job = paced()
    for seconds in (0.12, 0.16, 0.32):  # nearest is the stack at 0.1 s and at 0.3 s, in which the thread slept
        assert line(job, seconds) == "/home/me/train.py:31 prepare"


def test_a_sleeping_thread_is_not_where_it_was_only_seen_to_run() -> None:
    job = paced()
    for seconds in (0.02, 0.22, 0.26):
        assert line(job, seconds) == "/home/me/train.py:9 main"


def test_a_few_looks_show_where_a_thread_runs_and_where_it_waits() -> None:
    assert line(paced("fsync", seconds=1.0), 0.22) == "/home/me/train.py:9 main"
    assert line(paced("fsync", seconds=1.0), 0.32) == "/home/me/train.py:31 prepare"


def test_who_waits_for_a_thread_that_supplies_it_is_where_it_waits() -> None:
    """That holds the GIL meanwhile; code that may want it is near."""
    waits = Frame("/usr/lib/python3.11/threading.py", "Condition.wait", 320)
    seen = jobs.stacks(PID, (MAIN, waits), (MAIN, jobs.OWN), times=50, every_s=0.2)
    thread = [*jobs.thread(PID, PID, "S" * 9 + "R" * 2), *jobs.thread(PID + 1, PID, run=0.9)]
    job = jobs.timeline([*jobs.process(PID), *thread, *jobs.gil(PID, PID + 1), *seen])
    asleep = [at(ms) for ms in range(420, 9600, 400) if job.threads.main_at(PID, at(ms)).state == "S"]
    assert len(asleep) > 10
    assert all(job.observe(job.processes.by_pid[PID], time_ns).location.only_waits for time_ns in asleep)


def test_of_two_lines_a_rare_wait_is_at_the_one_at_which_it_was_seen() -> None:
    """Both mostly run: one of them waits for a disk at every tenth look."""
    seen = jobs.thread(PID, PID, "RRRRRRRRRD" + "R" * 10, call="fsync")  # at 0.18 s, and each 0.4 s after
    stacks = jobs.stacks(PID, PAUSING, PREPARING, times=50, every_s=0.2)
    job = jobs.timeline([*jobs.process(PID), *seen, *stacks])
    assert {line(job, 0.18 + 0.4 * number) for number in range(5)} == {"/home/me/train.py:31 prepare"}


def test_one_look_shows_nothing() -> None:
    assert line(paced(seconds=0.2), 0.12) == "/home/me/train.py:9 main"
