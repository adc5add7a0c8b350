"""From made-up recordings to accounts: where waits go that several causes have a part in."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import as_counted, attribute
from perfdoctor.attribution.mix_of_lines import CodeOfLines
from perfdoctor.attribution.share import Share
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE, PYTHON_OVERHEAD, UNATTRIBUTED
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Fact, Reading, Sample
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process
from tests.builders import jobs


def accounted(samples: Iterable[Sample]) -> list[Account]:
    cores = Reading(jobs.START, "cpu", "host", "usable_cores", 2.0)
    return attribute(jobs.timeline([cores, *samples]))


def _ranks(*states: str, moves: str, run: float = 0.5, delay: float = 0.0, gloo: float = 0.5) -> list[Sample]:
    """Ranks of one job by the states of their main threads, and whether a thread of gloo's runs in each."""
    samples: list[Sample] = []
    for rank, own in enumerate(states):
        pid = 100 + 10 * rank
        samples += [
            *jobs.process(pid, RANK=str(rank), WORLD_SIZE=str(len(states))),
            *jobs.thread(pid, pid, own, run=run, delay=delay),
            *jobs.thread(pid + 1, pid, moves, name="gloo_tcp_loop", run=gloo),
        ]
    return samples


def _share(accounts: Sequence[Account], cause: str) -> float:
    return sum(account.causes().fractions().get(cause, 0.0) for account in accounts) / len(accounts)


BANDWIDTH = "communication.bandwidth"


def test_ranks_that_wait_by_turns_wait_for_the_exchange_that_is_under_way() -> None:
    accounts = accounted(_ranks("RRSS", "SSRR", moves="RSRS"))
    assert _share(accounts, BANDWIDTH) == pytest.approx(0.25, abs=0.02)
    # An exchange lies in no rank: only the other half of the waits is for one.
    assert accounts[0].waited_for()[1] / accounts[0].seconds == pytest.approx(0.25, abs=0.02)


def test_where_ranks_exchange_is_known_while_they_wait() -> None:
    backward = (Frame("/job/train.py", "main", 7), Frame("/v/site-packages/torch/_tensor.py", "Tensor.backward", 1))
    stacks = [row for pid in (100, 110) for row in jobs.stacks(pid, backward, times=500, every_s=0.02)]
    for states in (("RRSS", "RRSS"), ("RRSS", "SSRR")):  # together, and by turns
        account = accounted([*_ranks(*states, moves="RSRS"), *stacks])[0]
        assert account.lines[BANDWIDTH] == pytest.approx({"/job/train.py:7 main": account.causes()[BANDWIDTH]})


def test_ranks_that_wait_by_turns_without_an_exchange_wait_for_each_other() -> None:
    accounts = accounted(_ranks("RRSS", "SSRR", moves="S"))
    assert _share(accounts, BANDWIDTH) == 0.0
    assert accounts[0].waited_for()[1] / accounts[0].seconds == pytest.approx(0.5, abs=0.02)


def test_a_rank_that_waits_for_nobody_hides_the_exchange() -> None:
    accounts = accounted(_ranks("RRRR", "SSRR", moves="RSRS"))
    assert _share(accounts, BANDWIDTH) == 0.0
    assert accounts[1].waited_for()[0] / accounts[1].seconds == pytest.approx(0.5, abs=0.02)


def test_cores_that_an_exchange_takes_are_its_cost() -> None:
    accounts = accounted(_ranks("R", "R", moves="R", run=0.6, delay=0.4, gloo=0.4))
    assert _share(accounts, BANDWIDTH) == pytest.approx(0.4, abs=0.02)
    assert _share(accounts, "cpu.contention") == 0.0


def test_more_ranks_than_cores_contend() -> None:
    accounts = accounted(_ranks("R", "R", "R", moves="R", run=0.5, delay=0.5, gloo=0.1))
    # Of the cores, the ranks themselves use 1.5, and threads of the exchange 0.3.
    assert _share(accounts, "cpu.contention") == pytest.approx(0.5 * 1.5 / 1.8, abs=0.02)
    assert _share(accounts, BANDWIDTH) == pytest.approx(0.5 * 0.3 / 1.8, abs=0.02)


LATENCY = "communication.latency"


@pytest.mark.parametrize(
    ("packet", "rate", "mtu", "cause"),
    [
        (1_000, 5e6, 65_536, LATENCY),
        (10_000, 5e6, 65_536, LATENCY),
        (10_000, 500e6, 65_536, BANDWIDTH),
        (40_000, 5e6, 65_536, BANDWIDTH),  # a link of which the traffic is shaped, and full
        (1_300, 500e6, 1_500, BANDWIDTH),  # a card that counts what it sends, with acknowledgements among it
        (1_300, 5e6, 1_500, LATENCY),
        (300, 500e6, 1_500, LATENCY),
    ],
)
def test_large_packets_are_bytes_on_however_slow_a_link(packet: int, rate: float, mtu: int, cause: str) -> None:
    counters = [("sent_bytes_total", rate * jobs.SECONDS), ("sent_packets_total", rate * jobs.SECONDS / packet)]
    traffic = [
        row for name, value in counters for row in jobs.readings("net:lo", name, 0.0, value, every_s=jobs.SECONDS)
    ]
    link = Fact(jobs.START, "network", "net:lo", "mtu_bytes", str(mtu))
    accounts = accounted([*_ranks("RRSS", "SSRR", moves="RSRS"), *traffic, link])
    assert _share(accounts, cause) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(("queue", "cause"), [(500, LATENCY), (100_000, BANDWIDTH)])
def test_bytes_that_queue_up_are_what_takes_the_time(queue: float, cause: str) -> None:
    """A queue of so many bytes before 5 MB/s: 0.1 ms for a byte, or 20."""
    sent = {"sent_bytes_total": 50e6, "sent_packets_total": 50e6 / 1_300}
    traffic = [row for name, all_ in sent.items() for row in jobs.readings("net:0", name, 0.0, all_, every_s=10.0)]
    link = Fact(jobs.START, "network", "net:0", "mtu_bytes", "1500")
    queues = jobs.readings("network", "send_queue_bytes", *([queue] * 5), every_s=2.0)
    accounts = accounted([*_ranks("RRSS", "SSRR", moves="RSRS"), *traffic, link, *queues])
    assert _share(accounts, cause) == pytest.approx(0.25, abs=0.02)


def _weighed(seen: int, running: float, delayed: float) -> float:
    """Seconds that 100 samples of a hundredth of a second stand for where a thread is runnable, as it was in some."""
    spans, runnable = np.full(100, 0.01), np.arange(100) < seen
    weighed = as_counted(spans, runnable, (running, delayed))
    assert weighed.sum() == pytest.approx(1.0)
    return float(weighed[runnable].sum())


def test_samples_are_weighed_by_what_the_kernel_counted() -> None:
    assert _weighed(98, 0.9, 0.01) == pytest.approx(0.91)
    assert _weighed(20, 0.3, 0.1) == pytest.approx(0.3)


def test_what_lies_between_running_and_all_delays_stands_as_seen() -> None:
    assert _weighed(35, 0.3, 0.1) == pytest.approx(0.35)


def test_what_was_never_seen_gets_no_weight() -> None:
    assert _weighed(100, 0.9, 0.0) == pytest.approx(1.0)
    assert _weighed(50, 0.0, 0.0) == pytest.approx(0.5)


def test_a_recording_is_weighed_by_what_the_kernel_counted() -> None:
    """Samples that find a thread asleep half of the time, of which the kernel knows that it ran for three quarters."""
    stacks, thread = jobs.stacks(100, (jobs.OWN,), ()), jobs.thread(100, 100, "RS", run=0.75)
    (account,) = accounted([*jobs.process(100), *stacks, *thread])
    assert account.causes().fractions()["cpu.python_overhead"] == pytest.approx(0.75, abs=0.01)


def test_without_stacks_nobody_knows_what_python_code_is_for() -> None:
    """Nor what a thread waits for in a futex: the arithmetic's pool, a queue or a lock of the job's own."""
    (account,) = accounted([*jobs.process(100), *jobs.thread(100, 100, "RS", run=0.5)])
    assert account.causes().fractions() == {UNATTRIBUTED: 1.0}


@pytest.mark.parametrize(
    ("function", "cause"), [("SemLock.__enter__", "cpu.lock_contention"), ("Condition.wait", UNATTRIBUTED)]
)
def test_a_trainer_queues_for_a_lock_that_another_process_holds(function: str, cause: str) -> None:
    """Not where it waits for what another process is to announce, and nobody is known who could."""
    waits = jobs.Frame("/usr/lib/python3.11/multiprocessing/synchronize.py", function, 95)
    stacks = jobs.stacks(100, (jobs.OWN, waits))
    (account,) = accounted([*jobs.process(100), *stacks, *jobs.thread(100, 100, "S")])
    assert account.causes().fractions() == {cause: 1.0}


ASKS = "/v/lib/python3.11/site-packages/filelock/_api.py"


@pytest.mark.parametrize(
    ("asleep_in", "queues"),
    [
        ((jobs.Frame(ASKS, "acquire", 500), jobs.Frame(ASKS, "BaseFileLock._poll_until_acquired", 520)), 1.0),
        ((jobs.Frame("/job/train.py", "read", 9),), 0.0),
    ],
)
def test_a_trainer_that_asks_for_a_lock_of_a_file_again_and_again_queues_for_it(
    asleep_in: tuple[jobs.Frame, ...], queues: float
) -> None:
    main = jobs.thread(100, 100, "S", call="clock_nanosleep")
    (account,) = accounted([*jobs.process(100), *jobs.stacks(100, (jobs.OWN, *asleep_in)), *main])
    assert account.causes().fractions().get("cpu.lock_contention", 0.0) == queues


@pytest.mark.parametrize(("state", "cause"), [("S", "cpu.worker_startup"), ("R", "cpu.input_preprocessing")])
def test_a_pool_that_is_ended_is_waited_for_unless_its_processes_are_at_work(state: str, cause: str) -> None:
    main = (jobs.OWN, Frame("/usr/lib/python3.11/multiprocessing/pool.py", "Pool.join", 665))
    turns = [main] * 4 + [(jobs.OWN, jobs.MODULE)]
    joins = [*jobs.thread(10, 10, "SSSSR", call="wait4"), *jobs.stacks(10, *turns, every_s=0.4, times=25)]
    child = [*jobs.process(20, parent=10, forked=True), *jobs.thread(20, 20, state, call="futex")]
    found = accounted([*jobs.process(10), *joins, *child])
    assert _share(found, cause) >= 0.75


@pytest.mark.parametrize(
    ("holder", "cause"),
    [
        (Frame("/usr/lib/python3.11/logging/__init__.py", "StreamHandler.emit", 1), "io.log_write"),
        (Frame("/v/lib/python3.11/site-packages/torch/serialization.py", "save", 1), "io.checkpoint_write"),
        (Frame("/job/poll.py", "poll", 12), "cpu.gil_contention"),
    ],
)
def test_who_lacks_the_gil_waits_for_what_its_holder_writes(holder: Frame, cause: str) -> None:
    """A thread that logs or saves in place of the trainer still holds it up."""
    found = accounted([
        *jobs.process(10),
        *jobs.thread(10, 10, "RRRRRRRSSS", run=0.7),
        *jobs.thread(15, 10, "SSSSSSSRRR", run=0.3),
        *jobs.named(10, 10, 1),
        *jobs.named(15, 10, 2, "Thread-1"),
        *jobs.stacks(10, (jobs.OWN,)),
        *jobs.stacks(10, (jobs.BOOTSTRAP, holder), ident=2),
        *jobs.gil(10, 10, 15),
    ])  # fmt: skip
    assert _share(found, cause) == pytest.approx(0.3, abs=0.02)


def test_shares_of_an_instant_are_attributed_by_weight() -> None:
    read = Share("io.storage_read", 0.25, target="file:/x")
    account = Account(Process(100, 1, 0, None, "trainer", 0, 0))
    account.add(3, 2.0, CodeLocation("data"), [read, Share("cpu.contention", 0.75)])
    assert account.by_block()[3] == pytest.approx({"io.storage_read": 0.5, "cpu.contention": 1.5})
    assert account.targets["io.storage_read"]["file:/x"] == pytest.approx(0.5)
    assert account.block_numbers == {3}


def test_the_backward_pass_is_found_at_the_lines_of_the_forward_pass() -> None:
    """Whoever calls twice as many operations is to blame for twice as many in the backward pass."""
    account = Account(Process(100, 1, 0, None, "trainer", 0, 0))
    for line, phase, seconds in (
        ("a.py:1 f", "forward", 2.0),
        ("a.py:2 g", "forward", 1.0),
        ("a.py:9 main", "backward", 3.0),
        ("a.py:10 main", "optimizer", 1.0),
    ):
        account.add(0, seconds, CodeLocation(phase, line=line), [Share(PYTHON_OVERHEAD, 1.0, line=line)])
    moved = account.with_backward_at_forward([PYTHON_OVERHEAD])
    assert moved.lines[PYTHON_OVERHEAD] == pytest.approx({"a.py:1 f": 4.0, "a.py:2 g": 2.0, "a.py:10 main": 1.0})
    assert moved.activities.seconds["updating"] == pytest.approx(1.0)


def test_what_leads_to_the_backward_pass_has_its_part_in_it() -> None:
    """A loss of the job's own, in a function that is no module of torch's."""
    account = Account(Process(100, 1, 0, None, "trainer", 0, 0))
    for location, seconds in (
        (CodeLocation("forward", line="a.py:9 main"), 1.0),
        (CodeLocation("other", line="a.py:2 loss", leads_to_backward=True), 3.0),
        (CodeLocation("other", line="a.py:5 metrics"), 2.0),
        (CodeLocation("backward", line="a.py:10 main"), 4.0),
    ):
        account.add(0, seconds, location, [Share(PYTHON_OVERHEAD, 1.0, line=location.line)])
    moved = account.with_backward_at_forward([PYTHON_OVERHEAD]).lines[PYTHON_OVERHEAD]
    assert moved == pytest.approx({"a.py:9 main": 2.0, "a.py:2 loss": 6.0, "a.py:5 metrics": 2.0})


def test_lines_differ_by_the_code_that_certainly_ran_there_and_by_their_backward_pass() -> None:
    """Of 10 s in a model, 4 are in a function that mostly calls a library; other samples of code are everybody's."""
    rank = Process(10, 1, 0, None, "trainer", 0, 0)
    account = Account(rank, outside_torch={"a.py near": 0.75})
    mixed = {PYTHON_OVERHEAD: 0.4, MODEL_COMPUTE: 0.6}
    for line, phase, seconds in (
        ("a.py:2 near", "forward", 4),
        ("a.py:3 net", "forward", 4),
        ("a.py:9", "backward", 2),
    ):
        shares = [Share(cause, part, line=line) for cause, part in mixed.items()]
        account.add(0, seconds, CodeLocation(phase, line=line), shares)
    few = account.with_mix_of_lines(CodeOfLines({"a.py:2 near": 1}, {}), MODEL_COMPUTE).lines
    many = account.with_mix_of_lines(CodeOfLines({"a.py:2 near": 40}, {"a.py:3 net": 40}), MODEL_COMPUTE)
    for lines in (few, many.lines):
        assert lines[PYTHON_OVERHEAD].total == pytest.approx(4.0)
        assert Amounts.summed(lines.values()) == pytest.approx({"a.py:2 near": 4.0, "a.py:3 net": 4.0, "a.py:9": 2.0})
    assert 1.6 < few[PYTHON_OVERHEAD]["a.py:2 near"] < 2.4 < many.lines[PYTHON_OVERHEAD]["a.py:2 near"]
    found = many.with_backward_at_forward(mixed).lines
    assert Amounts.summed(found.values())["a.py:2 near"] == pytest.approx(4.0), "what leaves torch has no backward pass"
    assert found[PYTHON_OVERHEAD]["a.py:3 net"] < 0.4


def test_what_autograd_calls_back_keeps_its_lines() -> None:
    account = Account(Process(10, 1, 0, None, "trainer", 0, 0))
    for location in (
        CodeLocation("forward", line="a.py:9 main"),
        CodeLocation("backward", "engine", line="a.py:10 main"),
        CodeLocation("backward", line="a.py:2 Clamp.backward", called_back=True),
    ):
        account.add(0, 2.0, location, [Share(MODEL_COMPUTE, 1.0, line=location.line)])
    found = account.with_backward_at_forward([MODEL_COMPUTE]).lines[MODEL_COMPUTE]
    assert found == pytest.approx({"a.py:9 main": 4.0, "a.py:2 Clamp.backward": 2.0})


def test_arithmetic_that_is_none_of_the_models_stays_overhead() -> None:
    account = Account(Process(10, 1, 0, None, "trainer", 0, 0))
    below = CodeLocation("other", "afterwards", line="a.py:12 metrics")
    account.add(0, 3.0, below, [Share(PYTHON_OVERHEAD, 1.0, line=below.line, beside=True)])
    passes = [Share(PYTHON_OVERHEAD, 0.3, line="a.py:3 net"), Share(MODEL_COMPUTE, 0.7, line="a.py:3 net")]
    account.add(0, 10.0, CodeLocation("forward", line="a.py:3 net"), passes)
    found = account.with_mix_of_lines(CodeOfLines({"a.py:3 net": 5}, {below.line: 30, "a.py:3 net": 10}), MODEL_COMPUTE)
    assert found.lines[PYTHON_OVERHEAD] == pytest.approx({below.line: 3.0, "a.py:3 net": 3.0})
    assert found.computed_beside() == {below.line: 3.0}


FETCH = jobs.Frame("/v/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 43)
LIBRARY = jobs.Frame("/v/lib/python3.11/site-packages/pyarrow/parquet/core.py", "read_table", 1800)


def _fetching(threads: str) -> Account:
    """A trainer without workers whose dataset sleeps until native threads of its library are through."""
    main = [*jobs.process(10), *jobs.thread(10, 10, "S"), *jobs.stacks(10, (jobs.OWN, FETCH, LIBRARY))]
    (account,) = accounted([*main, *jobs.thread(11, 10, threads, run=0.9)])
    return account


def test_cores_that_workers_take_from_a_trainer_are_taken_at_their_lines() -> None:
    """A trainer that wants a core for half of its time, and a worker on the only one meanwhile."""
    loop = jobs.Frame("/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", "_worker_loop", 349)
    mine = jobs.Frame("/home/me/data.py", "__getitem__", 8)
    worker = [
        *jobs.process(20, parent=10, forked=True),
        *jobs.thread(20, 20, run=0.5),
        *jobs.stacks(20, (loop, FETCH, mine)),
    ]
    trainer = [*jobs.process(10), *jobs.thread(10, 10, run=0.5, delay=0.5), *jobs.stacks(10, (jobs.OWN, jobs.MODULE))]
    one_core = Reading(jobs.START, "cpu", "host", "usable_cores", 1.0)
    (account,) = attribute(jobs.timeline([one_core, *trainer, *worker]))
    lines = account.lines["cpu.input_preprocessing"]
    assert lines == {"/home/me/data.py:8 __getitem__": pytest.approx(account.causes()["cpu.input_preprocessing"])}
    assert lines.total / account.seconds == pytest.approx(0.5, abs=0.1)


def test_a_librarys_own_threads_prepare_the_input_that_is_waited_for() -> None:
    assert _share([_fetching("R")], "cpu.input_preprocessing") == pytest.approx(1.0)


def test_without_workers_nothing_is_handed_over() -> None:
    idle = _fetching("S")
    assert _share([idle], "cpu.data_transfer") == 0.0
    assert _share([idle], UNATTRIBUTED) == pytest.approx(1.0)


LOADER = jobs.Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_try_get_data", 1284)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_without_workers_hands_nothing_over(workers: int) -> None:
    """It is in frames that a loader with workers waits in as well."""
    own = jobs.Frame(LOADER.file, "_next_data", 700)
    trainer = [*jobs.process(10), *jobs.thread(10, 10, run=1.0), *jobs.stacks(10, (jobs.OWN, own))]
    worker = [*jobs.process(20, parent=10, forked=True), *jobs.thread(20, 20, "S", name="pt_data_worker")]
    (account,) = accounted([*trainer, *worker[: workers * len(worker)]])
    assert _share([account], "cpu.data_transfer") == pytest.approx(workers)


RECEIVING = jobs.Frame("/usr/lib/python3.11/multiprocessing/queues.py", "Queue.get", 122)


def _taking_apart(*taken_over: jobs.Frame) -> Account:
    """A trainer that takes a batch over, converts it for as long, and calls its model."""
    main = [jobs.Frame("/home/me/train.py", "main", line) for line in (20, 21, 22)]
    turns = ((main[0], *taken_over), (main[1],), (main[2], jobs.MODULE))
    trainer = [*jobs.process(10), *jobs.thread(10, 10, run=1.0), *jobs.stacks(10, *turns, every_s=0.35, times=30)]
    helper = [*jobs.process(20, parent=10, forked=True), *jobs.thread(20, 20, "S", call="write", target="pipe")]
    (account,) = accounted([*trainer, *helper])
    return account


def test_taking_nested_objects_apart_goes_with_handing_them_over() -> None:
    assert _share([_taking_apart(RECEIVING)], "cpu.data_transfer") == pytest.approx(2 / 3, abs=0.1)


def test_converting_what_was_not_handed_over_is_preparing_it() -> None:
    read = jobs.Frame("/usr/lib/python3.11/json/decoder.py", "decode", 340)
    assert _share([_taking_apart(read)], "cpu.data_transfer") == 0.0


def test_waiting_for_an_idle_pool_of_processes_waits_for_what_they_hand_over() -> None:
    pool = jobs.Frame("/usr/lib/python3.11/multiprocessing/pool.py", "MapResult.get", 768)
    wait = jobs.Frame("/usr/lib/python3.11/threading.py", "Condition.wait", 320)
    trainer = [*jobs.process(10), *jobs.thread(10, 10, "S"), *jobs.stacks(10, (jobs.OWN, pool, wait))]
    helper = [*jobs.process(20, parent=10, forked=True), *jobs.thread(20, 20, "S", call="read", target="pipe")]
    (account,) = accounted([*trainer, *helper])
    assert _share([account], "cpu.data_transfer") == pytest.approx(1.0)


def test_a_thread_that_unpickles_what_a_pool_has_made_hands_it_over() -> None:
    pool = jobs.Frame("/usr/lib/python3.11/multiprocessing/pool.py", "MapResult.get", 768)
    trainer = [*jobs.process(10), *jobs.thread(10, 10, "S"), *jobs.stacks(10, (jobs.OWN, pool))]
    results = [*jobs.thread(11, 10, run=1.0), *jobs.named(11, 10, 7, "Thread-3 (_handle_results)")]
    (account,) = accounted([*trainer, *results])
    assert _share([account], "cpu.data_transfer") == pytest.approx(1.0)


def test_what_a_worker_starts_for_a_sample_is_no_start_of_workers() -> None:
    """A process that downloads for it, started while the job is watched."""
    trainer = [*jobs.process(10), *jobs.thread(10, 10, "S", call="poll", target="pipe")]
    worker = [
        *jobs.process(20, parent=10, forked=True),
        *jobs.thread(20, 20, "S", name="pt_data_worker", call="read", target="pipe"),
    ]
    helper = [
        *jobs.process(30, parent=20, started_s=2.0, uses_torch=False),
        *jobs.thread(30, 30, "S", call="recvfrom", target="socket:tcp"),
    ]
    (account,) = accounted([*trainer, *worker, *helper, *jobs.stacks(10, (jobs.OWN, LOADER))])
    assert _share([account], "cpu.worker_startup") == 0.0
    assert _share([account], "io.network_read") > 0.75


TRANSFORM = Frame("/job/data.py", "Photographs.__getitem__", 12)
RUN = Frame("/usr/lib/python3.11/subprocess.py", "run", 548)
STARTS = (RUN, Frame("/usr/lib/python3.11/subprocess.py", "Popen._execute_child", 1883))
AWAITS = (RUN, Frame("/usr/lib/python3.11/subprocess.py", "Popen.wait", 1264))
PROGRAM = [
    pytest.param("D", "vfork", "", STARTS, id="started"),
    pytest.param("S", "wait4", "", AWAITS, id="until its end"),
    pytest.param("S", "poll", "pipe", (RUN, Frame("/usr/lib/python3.11/selectors.py", "select", 415)), id="output"),
]
BUSY_WORKER = [*jobs.process(20, parent=10, forked=True), *jobs.thread(20, 20, name="pt_data_worker", run=1.0)]


@pytest.mark.parametrize(("state", "call", "target", "program"), PROGRAM)
def test_running_a_program_is_work_at_its_line(state: str, call: str, target: str, program: tuple[Frame, ...]) -> None:
    """Most are over before they are sampled; workers of a loader that are busy meanwhile hold nothing up."""
    trainer = [*jobs.process(10), *jobs.thread(10, 10, state, call=call, target=target)]
    (account,) = accounted([*trainer, *BUSY_WORKER, *jobs.stacks(10, (jobs.OWN, *program))])
    assert _share([account], PYTHON_OVERHEAD) == pytest.approx(1.0)
    assert account.lines[PYTHON_OVERHEAD].keys() == {"/home/me/train.py:7 main"}


@pytest.mark.parametrize(("state", "call", "target", "program"), PROGRAM[:2])
@pytest.mark.parametrize("in_worker", [False, True])
def test_running_a_program_for_a_sample_prepares_it(
    state: str, call: str, target: str, program: tuple[Frame, ...], in_worker: bool
) -> None:
    fetch = Frame("/v/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 52)
    runs = (fetch, TRANSFORM, *program)
    if in_worker:
        worker = Frame("/v/site-packages/torch/utils/data/_utils/worker.py", "_worker_loop", 349)
        waits = Frame(LOADER.file, "_try_get_data", 1243)
        samples = [
            *jobs.thread(10, 10, "S", call="poll", target="pipe"),
            *jobs.stacks(10, (jobs.OWN, LOADER, waits)),
            *jobs.process(20, parent=10, forked=True),
            *jobs.thread(20, 20, state, name="pt_data_worker", call=call, target=target),
            *jobs.stacks(20, (worker, *runs)),
        ]
    else:
        samples = [*jobs.thread(10, 10, state, call=call), *jobs.stacks(10, (jobs.OWN, LOADER, *runs))]
    (account,) = accounted([*jobs.process(10), *samples])
    assert _share([account], INPUT_PREPROCESSING) == pytest.approx(1.0)
    assert account.lines[INPUT_PREPROCESSING].keys() == {"/job/data.py:12 Photographs.__getitem__"}


def test_a_program_that_waits_for_a_disk_waits_for_that() -> None:
    trainer = [*jobs.process(10), *jobs.thread(10, 10, "S", call="wait4"), *jobs.stacks(10, (jobs.OWN, *AWAITS))]
    copies = [*jobs.process(20, parent=10, uses_torch=False), *jobs.thread(20, 20, "D", call="read")]
    (account,) = accounted([*trainer, *copies])
    assert _share([account], "io.storage_read") == pytest.approx(1.0)


def _writes_state(*stack: jobs.Frame) -> float:
    """The share of saving in a trainer that is in one stack all the time, and of which 30 MB a second reach storage."""
    seconds = range(jobs.SECONDS + 1)
    grows = {
        "system_seconds_total": 0.3,
        "user_seconds_total": 0.7,
        "storage_write_bytes_total": 30e6,
        "write_call_bytes_total": 30e6,
        "write_calls_total": 100.0,
        "major_faults_total": 0.0,
    }
    counted = [jobs.readings("pid:10", name, *(rate * now for now in seconds)) for name, rate in grows.items()]
    samples = [*jobs.process(10), *jobs.thread(10, 10, run=1.0), *jobs.stacks(10, stack)]
    return _share(accounted([*samples, *(sample for one in counted for sample in one)]), "io.checkpoint_write")


def test_the_kernels_time_is_savings_where_state_may_be_written_and_not_in_a_step() -> None:
    assert _writes_state(jobs.OWN) == pytest.approx(0.3, abs=0.02)
    assert _writes_state(jobs.OWN, jobs.MODULE) == 0.0


def test_of_a_long_recording_some_samples_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [*jobs.process(1), *jobs.thread(1, 1, "RRRRRRSSSR", call="read", target="file:/data/1", run=0.7)]
    whole = accounted(samples)[0]
    monkeypatch.setattr("perfdoctor.attribution.attribute._GROUPS", 20)
    thinned = accounted(samples)[0]
    assert len(whole.samples) == whole.sampled == thinned.sampled
    assert 20 <= len(thinned.samples) <= 40
    assert thinned.causes() == pytest.approx(whole.causes())
    assert thinned.block_numbers <= whole.block_numbers


def test_page_faults_that_every_job_takes_are_no_swapping() -> None:
    """Of 0.4 s in the kernel, 100,000 faults at 2 µs are the price of fresh memory."""
    seconds = range(jobs.SECONDS + 1)
    grows = {
        "system_seconds_total": 0.4,
        "user_seconds_total": 0.6,
        "minor_faults_total": 100_000.0,
        "major_faults_total": 1000.0,
    }
    counted = [jobs.readings("pid:10", name, *(rate * now for now in seconds)) for name, rate in grows.items()]
    counted += [jobs.readings("host", "swapped_in_bytes_total", *(50e6 * now for now in seconds))]
    samples = [
        *jobs.process(10),
        *jobs.thread(10, 10, run=1.0),
        *jobs.stacks(10, (jobs.OWN, jobs.MODULE)),
        *(sample for one in counted for sample in one),
    ]
    cost = Fact(jobs.at(0), "memory", "host", "minor_fault_seconds", "2e-06")
    assert _share(accounted(samples), "io.swap") == pytest.approx(0.4, abs=0.02)
    assert _share(accounted([*samples, cost]), "io.swap") == pytest.approx(0.2, abs=0.02)
