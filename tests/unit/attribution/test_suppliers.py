"""A process that waits for threads of its own: those that take turns with the GIL, and event loops."""

import pytest

from perfdoctor.attribution.attribute import attribute
from perfdoctor.attribution.storage_causes import Writing
from perfdoctor.attribution.suppliers import SupplierClassifier, _event_loop, _pinning, _thread_shares
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import CHANNEL, SERVES, Fact, Sample
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs

PID, TID, IDENT = 10, 11, 140_000
NOW = jobs.at(5)
TORCH = "/v/lib/python3.11/site-packages/torch"


def job(thread: list[Sample], holder: int, line: Frame) -> JobTimeline:
    """A process that waits, and one more thread of it, which is always at one line."""
    main = [*jobs.process(PID), *jobs.thread(PID, PID, "S"), *jobs.gil(PID, holder)]
    seen = [*jobs.named(TID, PID, IDENT), *jobs.stacks(PID, (jobs.BOOTSTRAP, line), ident=IDENT)]
    return jobs.timeline([*main, *thread, *seen])


def causes_of(state: str, running: float, holder: int) -> list[str]:
    """The causes of what a thread does."""
    watched = job(jobs.thread(TID, PID, state, run=running), holder, Frame("train.py", "decode", 7))
    classifier = SupplierClassifier(watched, Writing())
    return [share.cause for share in _thread_shares(classifier, watched.threads.by_tid[TID], NOW)]


def test_whoever_holds_the_gil_is_at_work() -> None:
    assert causes_of("R", 0.1, holder=TID) == ["cpu.input_preprocessing"]


def test_whoever_was_runnable_for_a_moment_or_asleep_is_not() -> None:
    assert causes_of("R", 0.1, holder=PID) == []
    assert causes_of("S", 0.1, holder=TID) == []


def test_whoever_has_a_core_most_of_the_time_is_at_work_without_the_gil() -> None:
    assert causes_of("R", 0.9, holder=PID) == ["cpu.input_preprocessing"]


def test_the_thread_that_pins_is_known_by_its_function_where_torch_gave_it_no_name() -> None:
    busy = [*jobs.process(PID), *jobs.thread(PID, PID, "S"), *jobs.thread(TID, PID, "R", run=1.0)]
    pins = jobs.timeline([*busy, *jobs.named(TID, PID, IDENT, "Thread-1 (_pin_memory_loop)")])
    assert [share.cause for share in _pinning(pins, PID, NOW)] == ["cpu.data_transfer"]
    other = jobs.timeline([*busy, *jobs.named(TID, PID, IDENT, "Thread-1 (decode)")])
    assert _pinning(other, PID, NOW) == []


def in_event_loop(name: str, target: str) -> list[tuple[str, str]]:
    """What a process waits for, and at which line, of which one thread waits in an epoll set."""
    thread = jobs.thread(TID, PID, "S", name=name, call="epoll_wait", target=target)
    watched = job(thread, 0, Frame("train.py", "get", 9))
    return [(share.cause, share.line) for share in _event_loop(watched, PID, NOW)]


def test_an_event_loop_with_connections_waits_for_the_network() -> None:
    assert in_event_loop("python", "socket:tcp") == [("io.network_read", "train.py:9 get")]
    assert in_event_loop("pt_data_worker", "socket:tcp") == [("io.network_read", "train.py:9 get")]


def test_an_event_loop_without_connections_and_a_collectives_do_not() -> None:
    assert in_event_loop("python", "socket:unix") == in_event_loop("python", "anon:eventpoll") == []
    assert in_event_loop("pt_tcpstore_uv", "socket:tcp") == in_event_loop("gloo", "socket:tcp") == []


def served(channel: str, waits_on: str, state: str, **server: object) -> dict[str, float]:
    """Where the time of a trainer goes that waits for a process outside of its tree, cause to fraction."""
    trainer = [*jobs.process(PID), *jobs.thread(PID, PID, "S", call="read", target=waits_on)]
    peer = [*jobs.process(20, uses_torch=True), *jobs.thread(20, 20, state, **server)]  # type: ignore[arg-type]
    facts = [Fact(jobs.START, "processes", "pid:20", *fact) for fact in ((SERVES, str(PID)), (CHANNEL, channel))]
    (account,) = attribute(jobs.timeline([*trainer, *peer, *facts, *jobs.stacks(PID, (jobs.OWN,))]))
    assert account.trainer.pid == PID
    assert {target for targets in account.targets.values() for target in targets} <= {
        "process:python (20)",
        "socket:tcp",
    }
    return dict(account.causes().fractions())


def test_who_serves_the_job_from_outside_is_judged_by_what_it_does() -> None:
    assert served("pipe", "pipe:/tmp/feed", "R", run=1.0) == {"cpu.input_preprocessing": 1.0}
    assert served("unix", "socket:unix", "R", run=1.0) == {"cpu.input_preprocessing": 1.0}
    assert served("tcp", "socket:tcp", "R", run=1.0) == {"cpu.input_preprocessing": 1.0}
    assert served("pipe", "pipe", "S", call="recvfrom", target="socket:tcp") == {"io.network_read": 1.0}
    assert served("tcp", "socket:tcp", "S", call="epoll_wait") == {"io.network_read": 1.0}, "it waits as well"


def asked(*server: object) -> dict[str, float]:
    """Where the time of a trainer goes that waits on a connection, and has started a process that waits on one."""
    trainer = [*jobs.process(PID), *jobs.thread(PID, PID, "S", call="recvfrom", target="socket:tcp")]
    own = [
        *jobs.process(20, parent=PID, uses_torch=False),
        *jobs.thread(20, 20, "S", call="poll", target="socket:tcp"),
        *server,
    ]
    (account,) = attribute(jobs.timeline([*trainer, *own, *jobs.stacks(PID, (jobs.OWN,))]))  # type: ignore[list-item]
    return dict(account.causes().fractions())


def test_a_server_that_the_trainer_has_started_is_judged_by_what_its_threads_do() -> None:
    assert asked(*jobs.thread(21, 20, "R", run=1.0)) == {"cpu.input_preprocessing": 1.0}
    assert asked(*jobs.thread(21, 20, "S", call="recvfrom", target="socket:tcp")) == {"io.network_read": 1.0}


RECEIVES = Frame("/usr/lib/python3.11/multiprocessing/connection.py", "Connection._recv", 395)


@pytest.mark.parametrize(
    ("read_mb_per_s", "cause", "line"),
    [(0.1, "cpu.input_preprocessing", "env.py:27 step"), (200.0, "cpu.data_transfer", "env.py:9 serve")],
)
def test_a_helper_that_copies_next_to_nothing_does_its_work_when_it_runs(
    read_mb_per_s: float, cause: str, line: str
) -> None:
    """Where it waits most of the time, nearly all its stacks show that, also those near to an instant at work."""
    serve, step = Frame("env.py", "serve", 9), Frame("env.py", "step", 27)
    stacks = jobs.stacks(20, (serve, step), *[(serve, RECEIVES)] * 19, every_s=0.2, times=50)
    counted = [
        *jobs.readings("pid:20", "read_calls_total", *(100.0 * second for second in range(10))),
        *jobs.readings("pid:20", "write_calls_total", *(100.0 * second for second in range(10))),
        *jobs.readings("pid:20", "read_call_bytes_total", *(1e6 * read_mb_per_s * second for second in range(10))),
    ]
    helper = [*jobs.process(20, parent=PID, uses_torch=False), *jobs.thread(20, 20, "R", run=0.2), *stacks, *counted]
    trainer = [*jobs.process(PID), *jobs.thread(PID, PID, "S", call="read", target="socket:unix")]
    watched = jobs.timeline([*trainer, *helper, *jobs.stacks(PID, (jobs.OWN,))])
    (share,) = SupplierClassifier(watched, Writing()).shares(watched.processes.by_pid[20], NOW - 600_000_000)
    assert (share.cause, share.line) == (cause, line)


def test_compilers_that_torch_waits_for_prepare_no_input() -> None:
    """Inductor starts a C++ compiler as a process for each kernel, at every length of a batch anew."""
    backward = Frame("/v/lib/python3.11/site-packages/torch/_tensor.py", "Tensor.backward", 623)
    compiling = Frame("/v/lib/python3.11/site-packages/torch/_inductor/compile_fx.py", "compile_fx_inner", 837)
    waiting = Frame("/usr/lib/python3.11/threading.py", "Condition.wait", 327)
    train = Frame("/job/train.py", "main", 9)
    watched = jobs.timeline([
        *jobs.process(PID), *jobs.thread(PID, PID, "RSSS", run=0.25),
        *jobs.stacks(PID, (train, backward), *[(train, backward, compiling, waiting)] * 3),
        *jobs.process(20, parent=PID), *jobs.thread(20, 20, "R", name="cc1plus", run=1.0),
    ])  # fmt: skip
    (account,) = attribute(watched)
    assert account.causes()["cpu.python_overhead"] > 0.7 * account.seconds
    assert account.causes()["cpu.input_preprocessing"] == 0


@pytest.mark.parametrize(("call", "target"), [("clock_nanosleep", ""), ("epoll_wait", "socket:unix")])
@pytest.mark.parametrize(("works", "found"), [(True, "/job/train.py:9 decode"), (False, "/job/train.py:5 main")])
def test_whoever_sleeps_until_others_are_ready_waits_for_their_work(
    works: bool, found: str, call: str, target: str
) -> None:
    """A thread of its own decodes while the trainer looks now and then, or its event loop waits, until it is through.

    If nobody works for an event loop without connections, it waits for a timer, which is a sleep as well.
    """
    polls = (Frame("/job/train.py", "main", 5),)
    decodes = (jobs.BOOTSTRAP, Frame("/job/train.py", "decode", 9))
    watched = jobs.timeline(
        [
            *jobs.process(PID, parent=0),
            *jobs.thread(PID, PID, "S", call=call, target=target),
            *jobs.stacks(PID, polls),
            *jobs.thread(TID, PID, *("R",) if works else ("S",), run=0.9 if works else 0.0),
            *jobs.named(TID, PID, IDENT),
            *jobs.stacks(PID, decodes, ident=IDENT),
        ]
    )
    (account,) = attribute(watched)
    (cause,) = (cause for cause, part in account.causes().fractions().items() if part > 0.9)
    assert (cause, max(account.lines[cause], key=account.lines[cause].__getitem__)) == (
        "cpu.input_preprocessing",
        found,
    )


def test_a_program_that_is_over_before_it_is_seen_was_the_work_of_the_worker_that_waits_for_it() -> None:
    fetches = Frame(f"{TORCH}/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 54)
    worker = Frame(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", 351)
    runs = Frame("/usr/lib/python3.11/subprocess.py", "Popen._communicate", 2115)
    waits = Frame(f"{TORCH}/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1243)
    watched = jobs.timeline(
        [
            *jobs.process(PID, parent=0),
            *jobs.thread(PID, PID, "S", call="poll", target="pipe"),
            *jobs.stacks(PID, (jobs.OWN, waits)),
            *jobs.process(TID, parent=PID),
            *jobs.thread(TID, TID, "S", name="pt_data_worker", call="poll", target="pipe"),
            *jobs.stacks(TID, (worker, fetches, Frame("/job/data.py", "decode", 9), runs)),
        ]
    )
    trainer = next(account for account in attribute(watched) if account.trainer.pid == PID)
    assert trainer.causes().fractions()["cpu.input_preprocessing"] == 1.0
    assert list(trainer.lines["cpu.input_preprocessing"]) == ["/job/data.py:9 decode"]
