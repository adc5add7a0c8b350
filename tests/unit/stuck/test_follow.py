"""Jobs in which nothing moves, made by hand: who holds them up, and in what."""

import zlib
from typing import Any

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import FROZEN_IN, TRACED_BY, Fact, FlightDump, Sample
from perfdoctor.reports.language import language
from perfdoctor.reports.wording import worded
from perfdoctor.results import stuck as kinds
from tests.builders import flight_dumps, jobs
from tests.builders.jobs import SECONDS, START
from tests.builders.still_jobs import (
    FOR_BATCH,
    LOCK,
    MAIN,
    TORCH,
    TRAIN,
    found,
    in_call,
    launcher,
    named,
    program,
    rank,
    waits_in,
    worker,
)


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


@pytest.mark.parametrize("how", [{"states": "D"}, {"call": "clock_nanosleep"}, {"call": None}])
def test_a_rank_that_is_frozen_with_its_control_group_is_stopped(how: dict[str, Any]) -> None:
    """As version 1 of control groups shows it (D), and as version 2 does (whatever it was in)."""
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1, **how))
    asleep = waits_in(11, "clock_nanosleep", ends_s=SECONDS + 8)
    stuck = found(*ranks, asleep, Fact(START, "waits", "pid:11", FROZEN_IN, "/docker/1"))
    assert named(stuck) == (kinds.STOPPED, 1)
    assert stuck is not None
    assert "is frozen with its control group /docker/1" in worded(stuck.summary)
    assert "Thaw the control group /docker/1" in worded(stuck.next_move)
    with language("zh"):
        assert "/docker/1" in worded(stuck.summary)
        assert "/docker/1" in worded(stuck.next_move)
    thawed = Fact(START + 1, "waits", "pid:11", FROZEN_IN, "")
    stuck = found(*ranks, asleep, Fact(START, "waits", "pid:11", FROZEN_IN, "/docker/1"), thawed)
    assert stuck is None or stuck.kind != kinds.STOPPED


def test_a_named_pipe_that_nobody_opens_at_its_other_end_is_told_as_one() -> None:
    opening = rank(1, call="openat", target="pipe:/data/shards")
    stuck = found(launcher(), rank(0, in_call("all_reduce")), opening)
    assert named(stuck) == (kinds.PIPE, 1)
    assert stuck is not None
    assert "opens a pipe (/data/shards) that nobody opens at its other end" in worded(stuck.summary)
    with language("zh"):
        assert "/data/shards" in worded(stuck.summary)


@pytest.mark.parametrize(
    "asking",
    [
        Frame("/v/lib/python3.11/site-packages/filelock/_api.py", "BaseFileLock.acquire", 500),
        Frame(f"{TORCH}/utils/file_baton.py", "FileBaton.wait", 60),
    ],
)
def test_a_files_lock_that_is_asked_for_again_and_again_is_told_as_one(asking: Frame) -> None:
    polls = rank(1, (MAIN, LOCK, asking), call="clock_nanosleep", switches=20.0)
    assert named(found(launcher(), rank(0, in_call("all_reduce")), polls)) == (kinds.FILE_LOCK, 1)


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


def test_a_wait_for_a_batch_is_followed_to_the_worker() -> None:
    waiting = rank(1, FOR_BATCH, call="poll", target="pipe")
    ranks = (launcher(), rank(0, in_call("all_reduce")), waiting)
    assert named(found(*ranks, worker(21, states="T"))) == (kinds.STOPPED, 1)
    stuck = found(*ranks, worker(21))
    assert named(stuck) == (kinds.LOCK, 1)
    assert stuck is not None
    assert [(halt.pid, halt.own) for halt in stuck.chain] == [(11, True), (21, False)]


def test_a_wait_is_followed_through_a_pipe_to_another_program() -> None:
    decoder = program(31, 11, name="decoder", call="recvfrom", target="socket:tcp")
    reading = rank(1, call="read", target="pipe")
    stuck = found(launcher(), rank(0, in_call("all_reduce")), reading, decoder, waits_in(11, "read", [31]))
    assert named(stuck) == (kinds.PIPE, 1)
    assert stuck is not None
    assert [(halt.name, halt.kind) for halt in stuck.chain] == [("python", kinds.PIPE), ("decoder", kinds.SOCKET)]


def test_nobody_at_the_other_end_is_surer_than_somebody() -> None:
    ranks = (launcher(), rank(0, in_call("all_reduce")), rank(1, call="read", target="pipe"))
    nobody, somebody = found(*ranks, waits_in(11, "read", [])), found(*ranks, waits_in(11, "read", [5]))
    assert nobody is not None
    assert somebody is not None
    assert nobody.confidence > somebody.confidence


# --- several ranks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "kind", "next_move"),
    [
        ({"states": "T", "call": None}, kinds.STOPPED, "`kill -CONT 11 12`"),
        ({"states": "D", "call": None}, kinds.STORAGE, "`cat /proc/11/stack /proc/12/stack`"),
        ({}, kinds.LOCK, "`py-spy dump --pid 11`, `py-spy dump --pid 12`"),
    ],
)
def test_of_several_ranks_in_the_same_wait_none_is_blamed_alone(how: dict[str, Any], kind: str, next_move: str) -> None:
    culprits = (rank(number, world=3, **how) for number in (1, 2))
    stuck = found(launcher(), rank(0, in_call("all_reduce"), world=3), *culprits)
    assert named(stuck) == (kind, None)
    assert stuck is not None
    assert stuck.ranks == (1, 2)
    assert [halt.rank for halt in stuck.chain] == [1, 2]
    assert [halt.rank for halt in stuck.waiting] == [0]
    summary = worded(stuck.summary)
    assert "each of ranks 1, 2 (processes 11, 12)" in summary
    assert "elsewhere" not in summary
    assert next_move in worded(stuck.next_move)
    with language("zh"):
        assert "11、12" in worded(stuck.summary)
        assert next_move.replace(", ", "、") in worded(stuck.next_move)


def test_ranks_whose_workers_wait_alike_are_told_together() -> None:
    def waits_for_worker(number: int) -> list[Sample]:
        pid, reading = 20 + number, {"call": "read", "target": f"file:/data/{number}.bin"}
        child = [
            *jobs.process(pid, parent=10 + number, forked=True),
            *jobs.thread(pid, pid, "S", name="pt_data_worker", switches=0.0, **reading),
            *jobs.stacks(pid, (MAIN, LOCK)),
        ]
        return [*rank(number, FOR_BATCH), *child]

    stuck = found(launcher(), waits_for_worker(0), waits_for_worker(1))
    assert named(stuck) == (kinds.STORAGE, None)
    assert stuck is not None
    assert [halt.pid for halt in stuck.chain] == [10, 20, 11, 21]
    assert "each of their processes 20, 21 (python) waits in read for a file" in worded(stuck.summary)


def test_the_rank_that_is_surest_to_hold_up_the_others_is_named_alone() -> None:
    ranks = (rank(number, world=3, **how) for number, how in enumerate(({}, {"states": "T", "call": None}, {})))
    stuck = found(launcher(), *ranks)
    assert named(stuck) == (kinds.STOPPED, 1)
    assert stuck is not None
    assert stuck.ranks == (1,)
    assert "Ranks 0, 2 wait elsewhere" in worded(stuck.summary)


def test_a_rank_that_waits_for_another_one_in_its_own_way_is_no_culprit() -> None:
    asks = rank(0, call="recvfrom", target="socket:tcp"), waits_in(10, "recvfrom", [11])
    stuck = found(launcher(), *asks, rank(1, states="T", call=None))
    assert named(stuck) == (kinds.STOPPED, 1)
    assert stuck is not None
    assert [halt.rank for halt in stuck.chain] == [1]


def test_how_surely_a_rank_holds_up_the_others_shows_at_the_end_of_its_way() -> None:
    stuck = found(launcher(), rank(0), rank(1, FOR_BATCH), worker(21, states="T"))
    assert named(stuck) == (kinds.STOPPED, 1)


# --- between ranks ----------------------------------------------------------------------------------------------------


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


def test_ranks_that_look_for_each_other_in_vain_are_stuck() -> None:
    """Between two attempts to reach the store torch sleeps: that is no sleep of the job's own choice."""
    looks = (*in_call("init_process_group"), Frame(f"{TORCH}/distributed/rendezvous.py", "_create_c10d_store", 190))
    asleep: dict[str, Any] = {"call": "clock_nanosleep", "switches": 0.3}
    assert named(found(launcher(), *(rank(number, looks, **asleep) for number in (0, 1)))) == (kinds.RENDEZVOUS, None)
    at_its_script = rank(1, (MAIN, LOCK), **asleep)
    assert found(launcher(), rank(0, looks, **asleep), at_its_script) is None


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
