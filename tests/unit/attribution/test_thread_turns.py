"""A process that waits for threads of its own: those that take turns with the GIL, and event loops."""

from types import SimpleNamespace
from typing import Any

from perfdoctor.attribution.suppliers import _event_loop, _thread_shares
from perfdoctor.attribution.writing import Writing
from perfdoctor.timeline.threads import ThreadState

PID, TID = 10, 11


def a_job(thread: Any, holder: int, line: str) -> Any:
    return SimpleNamespace(
        gil=SimpleNamespace(holder_at=lambda pid, time_ns: holder),
        locator=SimpleNamespace(line_of=lambda thread, time_ns: line),
        storage=SimpleNamespace(at=lambda pid, time_ns: (0.0, "")),
        threads=SimpleNamespace(besides_main=lambda pid: [thread]),
    )


def causes_of(state: str, running: float, holder: int) -> list[str]:
    """The causes of what a thread does that was sampled once."""
    sample = ThreadState(state, None if state == "R" else "futex", "", running, 0.0)
    thread: Any = SimpleNamespace(pid=PID, tid=TID, name="python", at=lambda time_ns: sample)
    shares = _thread_shares(a_job(thread, holder, "train.py:7 decode"), thread, 0, Writing())
    return [share.cause for share in shares]


def test_whoever_holds_the_gil_is_at_work() -> None:
    assert causes_of("R", 0.1, holder=TID) == ["cpu.input_preprocessing"]


def test_whoever_was_runnable_for_a_moment_or_asleep_is_not() -> None:
    assert causes_of("R", 0.1, holder=PID) == []
    assert causes_of("S", 0.1, holder=TID) == []


def test_whoever_has_a_core_most_of_the_time_is_at_work_without_the_gil() -> None:
    assert causes_of("R", 0.9, holder=PID) == ["cpu.input_preprocessing"]


def in_event_loop(name: str, target: str) -> list[tuple[str, str]]:
    """What a process waits for, and at which line, of which one thread waits in an epoll set."""
    sample = ThreadState("S", "epoll_wait", target, 0.0, 0.0)
    thread: Any = SimpleNamespace(pid=PID, tid=TID, name=name, at=lambda time_ns: sample)
    return [(share.cause, share.line) for share in _event_loop(a_job(thread, 0, "train.py:9 get"), PID, 0)]


def test_an_event_loop_with_connections_waits_for_the_network() -> None:
    assert in_event_loop("python", "socket:tcp") == [("io.network_read", "train.py:9 get")]
    assert in_event_loop("pt_data_worker", "socket:tcp") == [("io.network_read", "train.py:9 get")]


def test_an_event_loop_without_connections_and_a_collectives_do_not() -> None:
    assert in_event_loop("python", "socket:unix") == in_event_loop("python", "anon:eventpoll") == []
    assert in_event_loop("pt_tcpstore_uv", "socket:tcp") == in_event_loop("gloo", "socket:tcp") == []
