"""Stacks are taken for what else is known of a thread; what a trainer's own thread prepares is known by its lines."""

from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.locator import _fits
from perfdoctor.timeline.threads import ThreadState
from tests.builders import jobs
from tests.builders.jobs import BOOTSTRAP

PID, TID, IDENT = 10, 11, 140_000
DECODING = (BOOTSTRAP, Frame("/home/me/train.py", "decode", 7), Frame("/usr/lib/python3.11/gzip.py", "read", 301))
WAITING = (BOOTSTRAP, Frame("/home/me/train.py", "feed", 9), Frame("/usr/lib/python3.11/threading.py", "wait", 327))


def line_of(stacks: list[tuple[Frame, ...]], tid: int, seconds: float) -> str:
    """The line of a thread that was seen in these stacks, one each tenth of a second."""
    threads = [row for each in (PID, TID, TID + 1) for row in jobs.thread(each, PID)]
    seen = jobs.stacks(PID, *stacks, ident=IDENT, times=len(stacks), every_s=0.1)
    job = jobs.timeline([*jobs.process(PID), *threads, *jobs.named(TID, PID, IDENT), *seen])
    return job.locator.line_of(job.threads.by_tid[tid], jobs.at(seconds))


def test_a_running_thread_is_at_its_nearest_line_that_does_not_wait() -> None:
    assert line_of([DECODING], TID, 0.02) == "/home/me/train.py:7 decode"
    assert line_of([DECODING, WAITING], TID, 0.12) == "/home/me/train.py:7 decode"
    assert line_of([WAITING], TID, 0.02) == ""


def test_a_librarys_thread_is_at_the_function_that_it_runs() -> None:
    site = "/v/lib/python3.11/site-packages"
    tracker = Frame(f"{site}/transformers/trainer_utils.py", "Tracker.peak_monitor_func", 480)
    stack = (BOOTSTRAP, tracker, Frame(f"{site}/psutil/__init__.py", "Process.memory_info", 9))
    assert line_of([stack], TID, 0.02) == f"{tracker.file}:480 Tracker.peak_monitor_func"
    runs_anything = (BOOTSTRAP, Frame("/usr/lib/python3.11/asyncio/base_events.py", "run_forever", 607))
    assert line_of([(*runs_anything, stack[-1])], TID, 0.02) == ""


def test_a_thread_that_was_not_named_has_no_line() -> None:
    assert line_of([DECODING], TID + 1, 0.02) == ""


def test_what_was_seen_long_ago_is_no_line_of_now() -> None:
    assert line_of([DECODING, *[WAITING] * 9], TID, 0.9) == ""


def test_a_wait_for_a_connection_is_where_something_is_logged_and_not_in_the_model() -> None:
    sending = ThreadState("S", "poll", "socket:tcp", 0.0, 0.0)
    assert _fits(CodeLocation("logging"), sending, frozenset())
    assert not _fits(CodeLocation("forward"), sending, frozenset())
