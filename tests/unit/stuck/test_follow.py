"""Jobs in which nothing moves, made by hand: who holds them up, and in what; and jobs that move a little."""

import json
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import (
    TRACED_BY,
    Fact,
    FlightDump,
    ProcessSeen,
    Sample,
    ThreadSample,
    ThreadSeen,
    WaitSeen,
)
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Stuck
from perfdoctor.stuck.follow import find_stuck
from tests.builders import flight_dumps, jobs
from tests.builders.jobs import OWN, SECONDS, START

C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
LOCK = Frame("/home/me/train.py", "fill", 60)
MAIN = Frame("/home/me/train.py", "<module>", 1)
TRAIN = Frame("/home/me/train.py", "main", 40)


def in_call(function: str, line: int = 40) -> tuple[Frame, ...]:
    return MAIN, Frame("/home/me/train.py", "main", line), Frame(C10D, function, 3000)


def rank(
    number: int, *stacks: tuple[Frame, ...], world: int = 2, states: str = "S", call: str | None = "futex", **how: Any
) -> list[Sample]:
    """A rank whose main thread sleeps in one call, at one place."""
    pid = 10 + number
    variables = {"RANK": str(number), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"} if world > 1 else {}
    seen = jobs.process(pid, parent=5 if world > 1 else 1, **variables)
    return [
        *seen,
        *jobs.thread(pid, pid, states, call=call, **{"switches": 0.0, **how}),
        *jobs.stacks(pid, *(stacks or ((MAIN, LOCK),))),
    ]


def waits_in(
    pid: int, call: str, others: object = None, *, ends_s: float | None = None, handling: str = ""
) -> WaitSeen:
    ends_ns = None if ends_s is None else jobs.at(ends_s)
    return WaitSeen(START + NS_PER_S, pid, call, 3, "", json.dumps(others), ends_ns, handling)


def found(*samples: Iterable[Sample] | Sample) -> Stuck | None:
    every: list[Sample] = []
    for one in samples:
        every += [one] if isinstance(one, tuple) and hasattr(one, "_fields") else list(one)  # type: ignore[list-item,arg-type]
    return find_stuck({"": jobs.timeline(every)})


def launcher() -> list[Sample]:
    return [
        *jobs.process(5, uses_torch=False),
        *jobs.thread(5, 5, "S", call="wait4", switches=0.0),
    ]


def named(stuck: Stuck | None) -> tuple[str, int | None]:
    assert stuck is not None
    return stuck.kind, stuck.rank


def test_a_rank_in_a_lock_holds_up_the_one_in_the_collective() -> None:
    stuck = found(launcher(), rank(0, in_call("all_reduce")), rank(1))
    assert named(stuck) == (kinds.LOCK, 1)
    assert stuck is not None
    assert [halt.line for halt in stuck.chain] == ["/home/me/train.py:60 fill"]
    assert [(halt.rank, halt.collective) for halt in stuck.waiting] == [(0, "all_reduce")]
    assert stuck.since_s == pytest.approx(SECONDS, abs=1.0)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"call": "flock", "target": "file:/data/cache.lock"}, kinds.FILE_LOCK),
        ({"call": "read", "target": "pipe"}, kinds.PIPE),
        ({"call": "recvfrom", "target": "socket:tcp"}, kinds.SOCKET),
        ({"call": "connect", "target": "socket:tcp"}, kinds.SOCKET),
        ({"call": "read", "target": "file:/dev/pts/3"}, kinds.TERMINAL),
        ({"call": "openat", "target": "file:/mnt/share/a.bin"}, kinds.STORAGE),
        ({"call": "wait4"}, kinds.CHILD),
        ({"states": "D", "call": None}, kinds.STORAGE),
        ({"states": "T", "call": None}, kinds.STOPPED),
        ({"states": "t", "call": None}, kinds.DEBUGGER),
        ({"call": "clock_nanosleep", "switches": 5.0}, kinds.SLEEP),
        ({"call": "pause"}, kinds.UNKNOWN),
    ],
)
def test_what_a_main_thread_sits_in(how: dict[str, Any], kind: str) -> None:
    assert named(found(launcher(), rank(0, in_call("all_reduce")), rank(1, **how))) == (kind, 1)
    assert named(found(rank(0, world=1, **how))) == (kind, None)


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ((MAIN, TRAIN, Frame("/usr/lib/python3.11/pdb.py", "interaction", 361)), kinds.DEBUGGER),
        ((Frame("/usr/lib/python3.11/threading.py", "_shutdown", 1590),), kinds.EXIT),
        ((Frame("/home/me/train.py", "save_at_exit", 9),), kinds.EXIT),
    ],
)
def test_debuggers_and_exits_show_on_the_stack(stack: tuple[Frame, ...], kind: str) -> None:
    assert named(found(launcher(), rank(0, in_call("all_reduce")), rank(1, stack))) == (kind, 1)


def test_an_exception_that_is_handled_says_more_than_the_wait() -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1, call="recvfrom", target="socket:tcp"))
    stuck = found(*ranks, waits_in(11, "recvfrom", handling="ValueError"))
    assert named(stuck) == (kinds.EXCEPTION, 1)
    assert named(found(*ranks, waits_in(11, "recvfrom", handling="StopIteration"))) == (kinds.SOCKET, 1)


def test_who_traces_a_process_is_named() -> None:
    tracer = Fact(START, "waits", "pid:11", TRACED_BY, "77 gdb")
    stuck = found(launcher(), rank(0, in_call("all_reduce")), rank(1, states="t", call=None), tracer)
    assert stuck is not None
    assert stuck.chain[0].others == ("gdb (77)",)


def test_a_thread_that_keeps_the_gil_is_named() -> None:
    holder = jobs.thread(99, 11, "S", call="pause", switches=0.0)
    assert named(found(launcher(), rank(0, in_call("all_reduce")), rank(1), holder, jobs.gil(11, 99))) == (kinds.GIL, 1)


def worker(pid: int, *, states: str = "S", stack: tuple[Frame, ...] = (MAIN, LOCK)) -> list[Sample]:
    return [
        *jobs.process(pid, parent=11, forked=True),
        *jobs.thread(pid, pid, states, name="pt_data_worker", switches=0.0),
        *jobs.stacks(pid, stack),
    ]


def test_a_wait_for_a_batch_is_followed_to_the_worker() -> None:
    waiting = rank(1, (MAIN, TRAIN, Frame(LOADER, "_try_get_data", 1275)), call="poll", target="pipe")
    ranks = (launcher(), rank(0, in_call("all_reduce")), waiting)
    assert named(found(*ranks, worker(21, states="T"))) == (kinds.STOPPED, 1)
    stuck = found(*ranks, worker(21))
    assert named(stuck) == (kinds.LOCK, 1)
    assert stuck is not None
    assert [(halt.pid, halt.own) for halt in stuck.chain] == [(11, True), (21, False)]


def test_a_wait_is_followed_through_a_pipe_to_another_program() -> None:
    program = [
        ProcessSeen(START, 31, 11, START, "decoder", False, False, "decoder", "null"),
        *jobs.thread(31, 31, "S", call="recvfrom", target="socket:tcp", switches=0.0),
    ]
    reading = rank(1, call="read", target="pipe")
    stuck = found(launcher(), rank(0, in_call("all_reduce")), reading, program, waits_in(11, "read", [31]))
    assert named(stuck) == (kinds.PIPE, 1)
    assert stuck is not None
    assert [(halt.name, halt.kind) for halt in stuck.chain] == [("python", kinds.PIPE), ("decoder", kinds.SOCKET)]


def test_nobody_at_the_other_end_is_surer_than_somebody() -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1, call="read", target="pipe"))
    nobody, somebody = found(*ranks, waits_in(11, "read", [])), found(*ranks, waits_in(11, "read", [5]))
    assert nobody is not None
    assert somebody is not None
    assert nobody.confidence > somebody.confidence


def test_the_rank_in_another_collective_is_named() -> None:
    three = [rank(number, in_call("all_reduce"), world=3) for number in (0, 1)]
    assert named(found(launcher(), *three, rank(2, in_call("barrier", 90), world=3))) == (kinds.MISMATCH, 2)
    two = found(launcher(), rank(0, in_call("recv")), rank(1, in_call("recv")))
    assert named(two) == (kinds.MISMATCH, None)
    assert two is not None
    assert two.ranks == (0, 1)


def test_all_in_one_collective_is_the_networks() -> None:
    assert named(found(launcher(), *(rank(number, in_call("all_reduce")) for number in (0, 1)))) == (
        kinds.NETWORK,
        None,
    )


def test_a_rank_that_is_not_there_is_named() -> None:
    here = [rank(number, in_call("init_process_group"), world=3) for number in (0, 2)]
    assert named(found(launcher(), *here)) == (kinds.MISSING_RANK, 1)


# --- what moves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moving",
    [
        jobs.thread(99, 11, "R", run=0.3),
        jobs.readings("pid:11", "read_call_bytes_total", *(20_000.0 * second for second in range(11))),
        jobs.process(31, parent=11, started_s=7.0, uses_torch=False),
        [*jobs.process(31, parent=11, uses_torch=False), *jobs.thread(31, 31, "R", run=0.9)],
    ],
    ids=["a thread computes", "it reads", "it starts programs", "a program that it started computes"],
)
def test_whatever_moves_in_the_last_rank_makes_the_job_slow_and_not_stuck(moving: list[Sample]) -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1))
    assert found(*ranks) is not None
    assert found(*ranks, moving) is None


def test_who_wakes_for_data_gets_some() -> None:
    receiving = {"call": "recvfrom", "target": "socket:tcp"}
    assert found(rank(0, world=1, **receiving)) is not None
    assert found(rank(0, world=1, switches=1.0, **receiving)) is None


def test_a_sleep_that_ends_soon_is_no_hang() -> None:
    asleep = rank(0, world=1, call="clock_nanosleep")
    assert found(asleep, waits_in(10, "clock_nanosleep", ends_s=SECONDS + 8)) is None
    assert named(found(asleep, waits_in(10, "clock_nanosleep", ends_s=9000.0))) == (kinds.SLEEP, None)


def test_a_sleep_that_was_stopped_does_not_end() -> None:
    stopped = [
        *jobs.process(31, parent=11, uses_torch=False),
        *jobs.thread(31, 31, "T", call=None, switches=0.0),
        waits_in(31, "clock_nanosleep", ends_s=SECONDS + 1),
    ]
    stuck = found(launcher(), rank(0, in_call("all_reduce")), rank(1, call="wait4"), stopped)
    assert named(stuck) == (kinds.CHILD, 1)
    assert stuck is not None
    assert [halt.kind for halt in stuck.chain] == [kinds.CHILD, kinds.STOPPED]


def test_a_message_of_multiprocessing_is_no_batch() -> None:
    receive = (MAIN, TRAIN, Frame("/usr/lib/python3.11/multiprocessing/connection.py", "_recv", 395))
    waiting = rank(1, receive, call="read", target="socket:unix")
    child = [*jobs.process(31, parent=11, forked=True), *jobs.thread(31, 31, "S", call="pause", switches=0.0)]
    stuck = found(launcher(), rank(0, in_call("all_reduce")), waiting, child, waits_in(11, "read", [11, 31]))
    assert named(stuck) == (kinds.SOCKET, 1)


def test_another_place_in_the_code_is_progress() -> None:
    assert found(rank(0, (MAIN, LOCK), (MAIN, TRAIN), world=1)) is None


def test_a_loop_at_one_place_of_its_own_may_be_endless() -> None:
    one, other = (MAIN, Frame("/home/me/train.py", "search", 7)), (MAIN, Frame("/home/me/train.py", "search", 8))
    looping = rank(0, one, other, world=1, states="R", run=1.0)
    stuck = found(looping)
    assert named(stuck) == (kinds.LOOP, None)
    assert stuck is not None
    assert stuck.confidence <= 0.5
    native = jobs.code(10, "libopenblas.so", "dgemm_kernel", 500)
    grows = jobs.readings("pid:10", "rss_bytes", *(1e6 * second for second in range(11)))
    assert found(looping, native) is None
    assert found(looping, grows) is None
    assert found(rank(0, (MAIN, OWN, jobs.MODULE), world=1, states="R", run=1.0)) is None


def test_a_job_that_was_watched_briefly_is_not_called_stuck() -> None:
    brief = [ThreadSeen(START, 10, 10, "python")]
    brief += [ThreadSample(jobs.at(tick / 50), 10, "S", "futex", "", 0, 0, 0, 0, 0, 0) for tick in range(200)]
    assert found(jobs.process(10), brief) is None


# --- dumps of the Flight Recorder ------------------------------------------------------------------------------------


def flight_dump(number: int, written_s: float, **how: Any) -> FlightDump:
    data = zlib.compress(flight_dumps.written([flight_dumps.call(7, **how)], {flight_dumps.ALL: (0, 1)}))
    return FlightDump(jobs.at(written_s), number, flight_dumps.WRITTEN_NS, data)


@pytest.mark.parametrize(
    ("written_s", "open_s", "kind"),
    [(SECONDS + 1, 20.0, kinds.MISMATCH), (-60, 20.0, kinds.NETWORK), (-60, 700.0, kinds.MISMATCH)],
    ids=["new", "of some minutes ago", "of then, when the call had timed out"],
)
def test_dumps_tell_apart_what_looks_alike_from_outside(written_s: float, open_s: float, kind: str) -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1, in_call("all_reduce")))
    dumps = [flight_dump(number, written_s, size=10 + number, ago_s=open_s) for number in (0, 1)]
    stuck = found(*ranks, *dumps)
    assert named(stuck) == (kind, None)
    assert stuck is not None
    told = {(halt.sequence, halt.tensors) for halt in (*stuck.chain, *stuck.waiting)}
    assert told == ({(None, "")} if kind == kinds.NETWORK else {(7, "Float [10]"), (7, "Float [11]")})


def test_dumps_number_the_call_in_which_the_others_wait() -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1))
    stuck = found(*ranks, flight_dump(0, SECONDS))
    assert named(stuck) == (kinds.LOCK, 1)
    assert stuck is not None
    assert [(halt.collective, halt.sequence) for halt in stuck.waiting] == [("all_reduce", 7)]


def test_a_damaged_dump_takes_nothing_away() -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1))
    assert named(found(*ranks, FlightDump(jobs.at(SECONDS), 0, 0, b"damaged"))) == (kinds.LOCK, 1)
