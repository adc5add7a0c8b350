"""A process that waits for threads of its own: those that take turns with the interpreter lock, and event loops."""

from types import SimpleNamespace
from typing import Any

from perfdoctor.attribution.input_wait import _event_loop, _thread_parts
from perfdoctor.timeline.threads import ThreadState

PID, TID = 10, 11


def parts_of(state: str, running: float, holder: int) -> list[str]:
    """The causes of what a thread does that was looked at once."""
    moment = ThreadState(state, None if state == "R" else "futex", "", running, 0.0)
    thread: Any = SimpleNamespace(pid=PID, tid=TID, name="python", at=lambda time_ns: moment)
    scene: Any = SimpleNamespace(
        threads=SimpleNamespace(interpreter_at=lambda pid, time_ns: (holder, False)),
        thread_line=lambda thread, time_ns: "train.py:7 decode",
        kernel_work=SimpleNamespace(at=lambda pid, time_ns: (0.0, "")),
    )
    return [part.cause for part in _thread_parts(job, thread, 0, {})]


def test_whoever_holds_the_lock_is_at_work() -> None:
    assert parts_of("R", 0.1, holder=TID) == ["cpu.input_preprocessing"]


def test_whoever_was_runnable_for_a_moment_or_asleep_is_not() -> None:
    assert parts_of("R", 0.1, holder=PID) == []
    assert parts_of("S", 0.1, holder=TID) == []


def test_whoever_has_a_core_most_of_the_time_is_at_work_without_the_lock() -> None:
    assert parts_of("R", 0.9, holder=PID) == ["cpu.input_preprocessing"]


def in_event_loop(name: str, target: str) -> list[tuple[str, str]]:
    """What a process waits for, and at which line, of which one thread waits in an epoll set."""
    moment = ThreadState("S", "epoll_wait", target, 0.0, 0.0)
    thread: Any = SimpleNamespace(pid=PID, tid=TID, name=name, at=lambda time_ns: moment)
    scene: Any = SimpleNamespace(
        threads=SimpleNamespace(of=lambda pid: [thread]), thread_line=lambda thread, time_ns: "train.py:9 get"
    )
    return [(part.cause, part.line) for part in _event_loop(job, PID, 0)]


def test_an_event_loop_with_connections_waits_for_the_network() -> None:
    assert in_event_loop("python", "socket:tcp") == [("io.network_read", "train.py:9 get")]
    assert in_event_loop("pt_data_worker", "socket:tcp") == [("io.network_read", "train.py:9 get")]


def test_an_event_loop_without_connections_and_a_collectives_do_not() -> None:
    assert in_event_loop("python", "socket:unix") == in_event_loop("python", "anon:eventpoll") == []
    assert in_event_loop("pt_tcpstore_uv", "socket:tcp") == in_event_loop("gloo", "socket:tcp") == []
