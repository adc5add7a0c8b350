"""What a trainer's own thread prepares is known by its own lines."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.code_location import locate
from perfdoctor.timeline.locator import Locator
from perfdoctor.timeline.stacks import StackSeries

PID, TID, IDENT = 10, 11, 140_000
BOOTSTRAP = Frame("/usr/lib/python3.11/threading.py", "_bootstrap", 1002)
DECODING = (BOOTSTRAP, Frame("/home/me/train.py", "decode", 7), Frame("/usr/lib/python3.11/gzip.py", "read", 301))
WAITING = (BOOTSTRAP, Frame("/home/me/train.py", "feed", 9), Frame("/usr/lib/python3.11/threading.py", "wait", 327))


def line_of(stacks: list[tuple[Frame, ...]], tid: int, seconds: float) -> str:
    """The line of a thread that was seen in these stacks, one each tenth of a second."""
    times = (np.arange(len(stacks)) * NS_PER_S // 10).astype(np.int64)
    series = StackSeries(PID, IDENT, times, np.arange(len(stacks)), is_main=False)
    locator: Any = SimpleNamespace(
        _gil=SimpleNamespace(ident={TID: IDENT}.get),
        _stacks=SimpleNamespace(of_others=lambda pid: [series], locations=[locate(stack) for stack in stacks]),
    )
    thread: Any = SimpleNamespace(pid=PID, tid=tid)
    return Locator.line_of(locator, thread, int(seconds * NS_PER_S))


def test_a_running_thread_is_at_its_nearest_line_that_does_not_wait() -> None:
    assert line_of([DECODING], TID, 0.02) == "/home/me/train.py:7 decode"
    assert line_of([DECODING, WAITING], TID, 0.12) == "/home/me/train.py:7 decode"
    assert line_of([WAITING], TID, 0.02) == ""


def test_a_thread_that_was_not_named_has_no_line() -> None:
    assert line_of([DECODING], TID + 1, 0.02) == ""


def test_what_was_seen_long_ago_is_no_line_of_now() -> None:
    assert line_of([DECODING, *[WAITING] * 9], TID, 0.9) == ""
