"""Jobs that move a little, which are slow and not stuck; and what moves in a job that hangs without bringing it on."""

from collections.abc import Sequence
from typing import Any

import pytest

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Sample, ThreadSample, ThreadSeen
from perfdoctor.reports.wording import worded
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Stuck
from tests.builders import jobs
from tests.builders.jobs import OWN, SECONDS
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

WORKER_LOOP = Frame(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", 300)
IDLE = (WORKER_LOOP, Frame("/usr/lib/python3.11/multiprocessing/queues.py", "get", 113))
FETCHES = (WORKER_LOOP, Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 54), Frame("/home/me/data.py", "read", 9))
CALLS_MODEL = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1789)
FOR_RESULT = (
    Frame("/usr/lib/python3.11/concurrent/futures/_base.py", "result", 451),
    Frame("/usr/lib/python3.11/threading.py", "wait", 327),
)
RECORD = Frame(f"{TORCH}/distributed/elastic/multiprocessing/errors/__init__.py", "wrapper", 355)
# What a process does that only sleeps between two looks at the machine, and one that computes.
MONITORS: dict[str, Any] = {"call": "clock_nanosleep", "switches": 0.5}
COMPUTES: dict[str, Any] = {"states": "R", "run": 0.9}


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


TRACKS = Frame("/v/lib/python3.11/site-packages/wandb/sdk/interface/router.py", "message_loop", 77)


@pytest.mark.parametrize(
    ("ends_within", "besides", "is_stuck"),
    [
        (True, [], True),
        (True, jobs.thread(99, 10, "S", name="pt_autograd_0"), True),
        (True, jobs.thread(99, 10, "S", name="python", call="poll", target="pipe"), False),
        (True, [ThreadSeen(jobs.START, 99, 10, "python")], False),
        (True, jobs.thread(99, 10, "S", name="pt_gloo_runloop", call="epoll_wait"), True),
        (
            True,
            [
                *jobs.thread(99, 10, "S", name="python", call="recvfrom", target="socket:unix", switches=0.0),
                *jobs.named(10, 10, 1),
                *jobs.named(99, 10, 2),
                *jobs.stacks(10, (jobs.BOOTSTRAP, TRACKS), ident=2),
            ],
            True,
        ),
        (False, [], False),
    ],
    ids=["alone", "pool", "reads", "not sampled", "connections", "tracker", "shared"],
)
def test_a_program_beside_ends_no_wait_for_threads(ends_within: bool, besides: list[Sample], is_stuck: bool) -> None:
    waiting = [*rank(0, world=1), waits_in(10, "futex", [10] if ends_within else None)]
    assert (found(waiting, besides, program(31, 10, "R", run=0.9)) is not None) is is_stuck


@pytest.mark.parametrize(
    ("states", "places", "woken", "is_stuck"),
    [("SSSSSSSSSR", 1, 0.0, True), ("SR", 1, 0.0, False), ("SSSSSSSSSR", 2, 0.0, False), ("SSSSSSSSSR", 1, 0.5, False)],
    ids=["looks", "computes", "goes on", "the main thread wakes"],
)
def test_a_thread_that_only_looks_brings_nothing_on(states: str, places: int, woken: float, is_stuck: bool) -> None:
    at = [(jobs.BOOTSTRAP, Frame(f"/home/me/{number}.py", "watch", 9)) for number in range(places)]
    looks = [
        *jobs.thread(99, 11, states, name="python", call="clock_nanosleep", run=0.05),
        *jobs.named(11, 11, 1),
        *jobs.named(99, 11, 2),
        *jobs.stacks(11, *at, ident=2),
    ]
    waits = rank(1, switches=woken)
    stuck = found(launcher(), rank(0, in_call("all_reduce")), waits, looks)
    assert (stuck is not None) is is_stuck
    assert stuck is None or stuck.confidence == thresholds.CONFIDENCE_MAY_END, "what it looks for may come"


def test_who_wakes_for_data_gets_some() -> None:
    receiving = {"call": "recvfrom", "target": "socket:tcp"}
    assert found(rank(0, world=1, **receiving)) is not None
    assert found(rank(0, world=1, switches=1.0, **receiving)) is None


SPAWNED = Frame("<string>", "<module>", 1)
POOL_WORKER = Frame("/usr/lib/python3.11/concurrent/futures/process.py", "_process_worker", 240)
FETCH = (
    SPAWNED,
    POOL_WORKER,
    Frame("/home/me/data.py", "fetch", 55),
    Frame("/usr/lib/python3.11/socket.py", "readinto", 706),
)
NO_TASK = (SPAWNED, POOL_WORKER, Frame("/usr/lib/python3.11/multiprocessing/queues.py", "get", 102))


@pytest.mark.parametrize(
    ("stacks", "kind", "chain"),
    [
        ((NO_TASK, FETCH, NO_TASK), kinds.SOCKET, [11, 32]),
        ((NO_TASK, NO_TASK, NO_TASK), kinds.LOCK, [11]),
    ],
)
def test_a_rank_that_waits_for_a_pools_result_waits_for_the_worker_that_has_a_task(
    stacks: Sequence[tuple[Frame, ...]], kind: str, chain: list[int]
) -> None:
    """Its main thread waits for a thread, and that for all workers: they were started anew, and not forked."""
    manager = jobs.thread(99, 11, "S", name="python", call="poll", target="pipe", switches=0.0)
    pool = [
        [
            *jobs.process(pid, parent=11),
            *jobs.thread(
                pid, pid, "S", call="recvfrom" if stack is FETCH else "read", target="socket:tcp", switches=0.0
            ),
            *jobs.stacks(pid, stack),
        ]
        for pid, stack in enumerate(stacks, 31)
    ]
    stuck = found(
        launcher(),
        rank(0, in_call("all_reduce")),
        rank(1, (MAIN, LOCK, *FOR_RESULT)),
        manager,
        waits_in(11, "futex", [11]),
        *pool,
    )
    assert named(stuck) == (kind, 1)
    assert stuck is not None
    assert [halt.pid for halt in stuck.chain] == chain


def test_who_sends_what_goes_away_slowly_is_not_woken_for_it_and_still_moves() -> None:
    sends = rank(0, world=1, call="sendto", target="socket:tcp")
    assert named(found(sends)) == (kinds.SOCKET, None)
    sent = jobs.readings("pid:10", "sent_waiting_bytes_total", *(20_000.0 * second for second in range(11)))
    assert found(sends, sent) is None


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
    assert "`kill -CONT 31`" in worded(stuck.next_move)


def test_a_program_whose_output_its_rank_does_not_read_while_it_waits_for_its_end_never_ends() -> None:
    waiting = [*rank(1, call="wait4"), waits_in(11, "wait4", [31])]

    def verdict(reader: int) -> Stuck:
        writing = [*program(31, 11, call="write", target="pipe"), waits_in(31, "write", [reader])]
        stuck = found(launcher(), rank(0, in_call("all_reduce")), waiting, writing)
        assert named(stuck) == (kinds.CHILD, 1)
        assert stuck is not None
        return stuck

    assert "Read standard output" in worded(verdict(11).next_move)
    assert verdict(11).confidence > verdict(999).confidence


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


def test_who_sleeps_between_short_steps_is_in_no_endless_loop() -> None:
    """A window of a watch for days has few stacks, and none in a step of a millisecond."""
    sleeping = rank(0, (MAIN, TRAIN), world=1, states="SSSSSSSSSR", call="clock_nanosleep", run=0.1, switches=90.0)
    assert found(sleeping) is None
    assert named(found(rank(0, (MAIN, TRAIN), world=1, states="R", run=0.9))) == (kinds.LOOP, None)


@pytest.mark.parametrize(("torch", "is_stuck"), [(30, True), (300, False)])
def test_a_loop_that_calls_torch_all_the_time_is_not_endless(torch: int, is_stuck: bool) -> None:
    """Evolution strategies compute without a module and without a backward pass."""
    code = [*jobs.code(10, "libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", 600)]
    code += jobs.code(10, "libtorch_cpu.so", "_ZN3c1010TensorImplD1Ev", torch)
    looping = rank(0, (MAIN, TRAIN), world=1, states="R", run=1.0)
    assert (found(looping, code) is not None) is is_stuck


def test_a_line_that_takes_most_of_each_step_is_no_endless_loop() -> None:
    """``gc.collect()`` in the loop of a script: its frames are those of the loop, wherever that is."""
    backward = Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 829)
    for steps, is_stuck in ((0, True), (1, False)):
        stacks = [(MAIN, TRAIN)] * 19 + [(MAIN, TRAIN, backward)] * steps
        assert (found(rank(0, *stacks, world=1, states="R", run=1.0)) is not None) is is_stuck


def test_a_job_that_was_watched_briefly_is_not_called_stuck() -> None:
    brief = [ThreadSeen(jobs.START, 10, 10, "python")]
    brief += [ThreadSample(jobs.at(tick / 50), 10, "S", "futex", "", 0, 0, 0, 0, 0, 0) for tick in range(200)]
    assert found(jobs.process(10), brief) is None


def grows(pid: int, counter: str) -> list[Sample]:
    """A process that reads or writes 20 kB a second."""
    return jobs.readings(f"pid:{pid}", counter, *(20_000.0 * second for second in range(11)))


def bystanders_of(pid: int) -> dict[str, list[Sample]]:
    """What moves beside a process's main thread."""
    listens = [*jobs.thread(97, pid, "S", call="recvfrom", run=0.001), *jobs.named(97, pid, 97)]
    return {
        "a monitor": program(41, pid, **MONITORS),
        "a program that computes": program(41, pid, **COMPUTES),
        "programs, now and then": jobs.process(41, parent=pid, started_s=5.0, ended_s=6.0, uses_torch=False),
        "what these have read": grows(pid, "read_call_bytes_total"),
        "a thread that gets data": [*listens, *jobs.gil(pid, 97, 0, 0)],
    }


HANGS: dict[str, tuple[list[Sample], str]] = {
    "the others wait in a collective": (rank(1), kinds.LOCK),
    "it is stopped": (rank(1, states="T", call=None), kinds.STOPPED),
    "somebody is to type": (rank(1, call="read", target="file:/dev/pts/3"), kinds.TERMINAL),
    "its only worker is stopped": ([*rank(1, FOR_BATCH), *worker(21, states="T")], kinds.STOPPED),
    "its child is stopped": (
        [*rank(1, call="wait4"), *program(31, 11, "T", call=None), waits_in(11, "wait4", [31])],
        kinds.CHILD,
    ),
    "nobody writes into its pipe": ([*rank(1, call="read", target="pipe"), waits_in(11, "read", [])], kinds.PIPE),
}


@pytest.mark.parametrize("bystander", bystanders_of(10))
@pytest.mark.parametrize("hang", HANGS)
def test_what_only_stands_beside_does_not_bring_a_job_on(hang: str, bystander: str) -> None:
    culprit, kind = HANGS[hang]
    of = 10 if kind == kinds.LOCK else 11  # whom a lock is waited for is not known
    stuck = found(launcher(), rank(0, in_call("all_reduce")), culprit, bystanders_of(of)[bystander])
    assert named(stuck) == (kind, 1)
    assert stuck is not None
    assert stuck.since_s == pytest.approx(SECONDS, abs=1.0)


@pytest.mark.parametrize("bystander", bystanders_of(11))
def test_whom_a_lock_is_waited_for_is_not_known(bystander: str) -> None:
    assert found(launcher(), rank(0, in_call("all_reduce")), rank(1), bystanders_of(11)[bystander]) is None


# Of each, what rank 1 does while rank 0 waits for it in all_reduce.
SLOW: dict[str, list[Sample]] = {
    "compiles in a program that another one runs": [
        *rank(1, call="wait4"),
        waits_in(11, "wait4", [31]),
        *program(31, 11, call="wait4"),
        waits_in(31, "wait4", [32]),
        *program(32, 31, **COMPUTES),
    ],
    "runs one program after the other": [
        *rank(1, call="wait4"),
        *jobs.process(31, parent=11, started_s=4.0, ended_s=7.0, uses_torch=False),
        waits_in(11, "wait4", [31]),
        *program(32, 11, call="poll", target="socket:tcp"),
    ],
    "compiles in processes of its own": [
        *rank(1, (MAIN, CALLS_MODEL, *FOR_RESULT)),
        *program(31, 11, **COMPUTES),
    ],
    "waits for a worker that prepares a huge batch": [
        *rank(1, FOR_BATCH),
        *worker(21, stack=FETCHES, states="R"),
        *worker(22, stack=IDLE),
    ],
    "waits for a worker that hands over a huge batch": [
        *rank(1, FOR_BATCH),
        *worker(21, stack=IDLE),
        *jobs.thread(99, 21, "R", run=0.3),
    ],
    "waits for a worker that asks a process of the trainer": [
        *rank(1, FOR_BATCH),
        *worker(21, stack=FETCHES, call="recvfrom", target="socket:unix"),
        waits_in(21, "recvfrom", [31]),
        *program(31, 11, **COMPUTES),
    ],
    "waits for a worker that asks nobody knows whom": [
        *rank(1, FOR_BATCH),
        *worker(21, stack=FETCHES, call="recvfrom", target="socket:unix"),
        *program(31, 11, **COMPUTES),
    ],
    "waits for a batch in a script that torch's record wraps": [
        *rank(1, (MAIN, RECORD, *FOR_BATCH[1:])),
        *worker(21, stack=FETCHES, states="R"),
    ],
    "hands a checkpoint to a process that writes it": [
        *rank(1, call="write", target="pipe"),
        waits_in(11, "write", [31]),
        *program(31, 11, "D", call=None, switches=20.0),
    ],
    "waits for a thread that writes a checkpoint": [*rank(1), *grows(11, "storage_write_bytes_total")],
    "waits for a process that evaluates": [
        *rank(1, call="wait4"),
        waits_in(11, "wait4", [31]),
        *jobs.process(31, parent=11, forked=True),
        *jobs.thread(31, 31, "R", run=0.9),
    ],
    "reads from a program that another thread of it feeds": [
        *rank(1, call="read", target="pipe"),
        waits_in(11, "read", [31]),
        *program(31, 11, call="read", target="pipe"),
        waits_in(31, "read", [11]),
        *program(32, 11, **COMPUTES),
    ],
    "reads a queue of which it has both ends": [
        *rank(1, call="read", target="pipe"),
        waits_in(11, "read", [11, 31]),
        *program(31, 11, call="pause"),
        *program(32, 11, **COMPUTES),
    ],
    "waits for whichever of its processes is the first": [
        *rank(1, call="poll", target="pipe"),
        waits_in(11, "poll", [31]),
        *program(31, 11, "T", call=None),
        *program(32, 11, **COMPUTES),
    ],
    "asks a server outside of the job, which another process feeds": [
        *rank(1, call="recvfrom", target="socket:tcp"),
        waits_in(11, "recvfrom", [999]),
        *program(31, 11, **COMPUTES),
    ],
    "waits for a file's lock that nobody seems to hold": [
        *rank(1, call="flock", target="file:/data/index"),
        waits_in(11, "flock", []),
        *program(31, 11, **COMPUTES),
    ],
    "looks for what a thread of the waiting rank writes": [
        *rank(1, call="clock_nanosleep", switches=5.0),
        *grows(10, "storage_write_bytes_total"),
    ],
}


@pytest.mark.parametrize("slow", SLOW)
def test_a_rank_that_waits_for_what_moves_is_slow_and_not_stuck(slow: str) -> None:
    assert found(launcher(), rank(0, in_call("all_reduce")), SLOW[slow]) is None


def test_torchs_record_around_a_script_is_no_wait_for_other_ranks() -> None:
    wrapped = in_call("all_reduce")
    ranks = rank(0, (wrapped[0], RECORD, *wrapped[1:])), rank(1, (MAIN, RECORD, LOCK))
    assert named(found(launcher(), *ranks)) == (kinds.LOCK, 1)
