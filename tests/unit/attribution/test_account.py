"""The account of made-up recordings: where waits go that several causes have a part in."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import as_counted, attribute
from perfdoctor.attribution.pipeline import going_with_the_largest
from perfdoctor.attribution.share import Share
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Fact, ProcessSeen, Reading, Sample, StackSegment, ThreadSample, ThreadSeen
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process

S = 1_000_000_000
START, TICK, TICKS = 100 * S, S // 50, 500
Accounted = Callable[[Sequence[Sample]], list[Account]]


@pytest.fixture
def accounted(tmp_path: Path) -> Iterator[Accounted]:
    opened: list[Recording] = []

    def accounted(samples: Sequence[Sample]) -> list[Account]:
        writer = RecordingWriter(tmp_path / "recording", {"start_ns": str(START), "cores": "2"})
        writer.add([Reading(START, "cpu", "host", "usable_cores", 2.0), *samples])
        writer.close()
        opened.append(Recording.open(tmp_path / "recording"))
        return attribute(JobTimeline(opened[-1]))

    yield accounted
    for recording in opened:
        recording.close()


def _process(pid: int, **environment: str) -> Sample:
    return ProcessSeen(START, pid, 1, START - 9 * S, "python", False, True, "python", json.dumps(environment))


def _thread(tid: int, pid: int, name: str, states: str, *, run: float = 0.0, delay: float = 0.0) -> list[Sample]:
    """A thread whose states repeat, and which sleeps in a futex."""
    samples: list[Sample] = [ThreadSeen(START, tid, pid, name)]
    for tick in range(TICKS):
        state, now = states[tick % len(states)], tick * TICK
        call = "futex" if state == "S" else None
        counters = int(run * now), int(delay * now), None, None, None, None
        samples.append(ThreadSample(START + now, tid, state, call, "", *counters))
    return samples


def _stacks(pid: int) -> Sample:
    """A main thread that is in one and the same line of the job's own all the time."""
    frame = {"name": "main", "args": {"filename": "/job/train.py", "line": 7}}
    samples = [frame | {"pid": pid, "tid": 1, "ts": step * 50_000, "ph": "BE"[step % 2]} for step in range(201)]
    trace = zlib.compress(json.dumps(samples).encode())
    return StackSegment(START, 0, START + TICKS * TICK, pid, trace)


def _ranks(*states: str, moves: str, run: float = 0.5, delay: float = 0.0, gloo: float = 0.5) -> list[Sample]:
    """Ranks of one job by the states of their main threads, and whether a thread of gloo's runs in each."""
    samples: list[Sample] = []
    for rank, own in enumerate(states):
        pid = 100 + 10 * rank
        samples += [
            _process(pid, RANK=str(rank), WORLD_SIZE=str(len(states))),
            *_thread(pid, pid, "python", own, run=run, delay=delay),
            *_thread(pid + 1, pid, "gloo_tcp_loop", moves, run=gloo),
        ]
    return samples


def _share(accounts: Sequence[Account], cause: str) -> float:
    return sum(account.causes().fractions().get(cause, 0.0) for account in accounts) / len(accounts)


BANDWIDTH = "communication.bandwidth"


def test_ranks_that_wait_by_turns_wait_for_the_exchange_that_is_under_way(accounted: Accounted) -> None:
    accounts = accounted(_ranks("RRSS", "SSRR", moves="RSRS"))
    assert _share(accounts, BANDWIDTH) == pytest.approx(0.25, abs=0.02)
    # An exchange lies in no rank: only the other half of the waits is for one.
    assert accounts[0].waited_for()[1] / accounts[0].seconds == pytest.approx(0.25, abs=0.02)


def test_ranks_that_wait_by_turns_without_an_exchange_wait_for_each_other(accounted: Accounted) -> None:
    accounts = accounted(_ranks("RRSS", "SSRR", moves="S"))
    assert _share(accounts, BANDWIDTH) == 0.0
    assert accounts[0].waited_for()[1] / accounts[0].seconds == pytest.approx(0.5, abs=0.02)


def test_a_rank_that_waits_for_nobody_hides_the_exchange(accounted: Accounted) -> None:
    accounts = accounted(_ranks("RRRR", "SSRR", moves="RSRS"))
    assert _share(accounts, BANDWIDTH) == 0.0
    assert accounts[1].waited_for()[0] / accounts[1].seconds == pytest.approx(0.5, abs=0.02)


def test_cores_that_an_exchange_takes_are_its_cost(accounted: Accounted) -> None:
    accounts = accounted(_ranks("R", "R", moves="R", run=0.6, delay=0.4, gloo=0.4))
    assert _share(accounts, BANDWIDTH) == pytest.approx(0.4, abs=0.02)
    assert _share(accounts, "cpu.contention") == 0.0


def test_more_ranks_than_cores_contend(accounted: Accounted) -> None:
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
def test_large_packets_are_bytes_on_however_slow_a_link(
    accounted: Accounted, packet: int, rate: float, mtu: int, cause: str
) -> None:
    end, seconds = START + TICKS * TICK, TICKS * TICK / S
    counters = [("sent_bytes_total", rate * seconds), ("sent_packets_total", rate * seconds / packet)]
    traffic = [
        Reading(time, "network", "net:lo", name, value * (time > START))
        for name, value in counters
        for time in (START, end)
    ]
    link = Fact(START, "network", "net:lo", "mtu_bytes", str(mtu))
    accounts = accounted([*_ranks("RRSS", "SSRR", moves="RSRS"), *traffic, link])
    assert _share(accounts, cause) == pytest.approx(0.25, abs=0.02)


READ, DECODE = "io.storage_read", "cpu.input_preprocessing"


def test_a_wait_ends_with_its_largest_cause() -> None:
    """A worker that reads for 90 ms and decodes for 10, a trainer that computes for 50."""
    first, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.3)
    assert first == READ
    # Reads that cost nothing end the wait of 0.5, decoding that costs nothing 0.1 of it.
    assert going == {DECODE: pytest.approx(0.8)}


def test_causes_of_equal_weight_share_a_wait() -> None:
    _, going = going_with_the_largest({READ: 0.25, DECODE: 0.25}, {READ: 0.5, DECODE: 0.5}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_would_be_waited_for_nevertheless_is_kept() -> None:
    """The trainer computes for a tenth of the time, and decoding alone takes three."""
    _, going = going_with_the_largest({READ: 0.6, DECODE: 0.3}, {READ: 0.7, DECODE: 0.3}, used=0.1)
    assert going[DECODE] == pytest.approx((1 - 0.2 / 0.3) * (1 - 0.3 / 0.7))
    # And so it is where the job's work on all cores takes longer than a step without waits.
    _, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.6)
    assert going == {DECODE: 0.0}


def test_workers_that_idle_bound_nothing() -> None:
    """Whichever cause is relieved, the wait may end: none of them is the larger one's."""
    _, going = going_with_the_largest({READ: 0.12, DECODE: 0.08}, {READ: 0.2, DECODE: 0.1}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_is_recharged_is_neither_lost_nor_made_up() -> None:
    account = Account(Process(1, 1, 0, None, "trainer", 0, None))
    account.add(0, 1.0, CodeLocation("data"), [Share(READ, 0.75, awaited=True), Share(DECODE, 0.25, awaited=True)])
    account.add(0, 1.0, CodeLocation("data"), [Share(DECODE, 1.0)])
    account = account.recharged({DECODE: 0.5}, READ)
    assert account.causes() == pytest.approx({READ: 0.875, DECODE: 1.125})


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


def test_a_recording_is_weighed_by_what_the_kernel_counted(accounted: Accounted) -> None:
    """Samples that find a thread asleep half of the time, of which the kernel knows that it ran for three quarters."""
    (account,) = accounted([_process(100), _stacks(100), *_thread(100, 100, "python", "RS", run=0.75)])
    assert account.causes().fractions()["cpu.python_overhead"] == pytest.approx(0.75, abs=0.01)


def test_without_stacks_nobody_knows_what_python_code_is_for(accounted: Accounted) -> None:
    """Nor what a thread waits for in a futex: the arithmetic's pool, a queue or a lock of the job's own."""
    (account,) = accounted([_process(100), *_thread(100, 100, "python", "RS", run=0.5)])
    assert account.causes().fractions() == {UNATTRIBUTED: 1.0}
