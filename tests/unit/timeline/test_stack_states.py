"""A thread that runs is at no line where it was only seen to sleep, and the other way around."""

from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs

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


def test_a_few_looks_show_where_a_thread_runs_but_not_where_it_may_wait() -> None:
    assert line(paced("fsync", seconds=1.0), 0.22) == "/home/me/train.py:31 prepare"
    assert line(paced("fsync"), 0.22) == "/home/me/train.py:9 main"
    assert line(paced("fsync", seconds=1.0), 0.32) == "/home/me/train.py:31 prepare"


def test_one_look_shows_nothing() -> None:
    assert line(paced(seconds=0.2), 0.12) == "/home/me/train.py:9 main"
