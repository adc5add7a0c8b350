"""Ranks meet in the job's store, and none is ever held up for good."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perfdoctor.probes.inside import store_barrier as module
from perfdoctor.probes.inside.store_barrier import StoreBarrier

torch = pytest.importorskip("torch")


class HungStore:
    """A store whose host does not answer, until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def add(self, key: str, amount: int) -> int:
        self.over.wait(30)
        return 0


def together(*parts: Callable[[], Any]) -> list[Any]:
    """What each part returned; they run at the same time, as ranks do."""
    found: list[Any] = [None] * len(parts)

    def run(number: int) -> None:
        found[number] = parts[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture
def ranks() -> list[StoreBarrier]:
    store = torch.distributed.HashStore()
    return [StoreBarrier(store, 3) for _ in range(3)]


def test_nobody_goes_on_before_the_last_one_comes(ranks: list[StoreBarrier]) -> None:
    left: list[float] = []

    def come(rank: StoreBarrier, late_s: float) -> float:
        time.sleep(late_s)
        came = time.monotonic()
        assert rank.wait("here", 10)
        left.append(time.monotonic())
        return came

    late = (0.0, 0.1, 0.3)
    came = together(*(partial(come, rank, late_s) for rank, late_s in zip(ranks, late, strict=True)))
    assert min(left) >= max(came)
    assert [rank.problem for rank in ranks] == ["", "", ""]


def test_a_rank_that_does_not_come_is_not_waited_for(ranks: list[StoreBarrier]) -> None:
    first, second, late = ranks
    assert together(lambda: first.wait("here", 0.3), lambda: second.wait("here", 0.3)) == [False, False]
    assert {first.problem, second.problem} <= {
        "Only 2 of 3 ranks came to the same place within 0.3 s.", "Another rank had given up."
    }  # fmt: skip
    # The late one completes that meeting, and learns at the next one that nobody comes any more.
    assert late.wait("here", 10)
    begun = time.monotonic()
    assert not late.wait("there", 10)
    assert time.monotonic() - begun < 5
    assert late.problem == "Another rank had given up."
    assert not late.wait("anywhere", 10)


def test_a_rank_that_leaves_lets_the_others_know(ranks: list[StoreBarrier]) -> None:
    ranks[2].leave("It ended.")
    begun = time.monotonic()
    assert together(lambda: ranks[0].wait("here", 20), lambda: ranks[1].wait("here", 20)) == [False, False]
    assert time.monotonic() - begun < 10
    assert ranks[0].problem == "Another rank had given up."
    assert ranks[2].problem == "It ended."


def test_all_begin_where_the_last_one_says(ranks: list[StoreBarrier]) -> None:
    ranks[0].ready(104)
    ranks[1].ready(105)
    assert ranks[0].start_at() == 0
    ranks[2].ready(107)
    assert [rank.start_at() for rank in ranks] == [107, 107, 107]


def test_what_not_all_have_is_known(ranks: list[StoreBarrier]) -> None:
    have = [["a/1", "b/2"], ["a/1", "b/1"], ["a/1", "b/2", "c/1"]]
    for rank, names in zip(ranks, have, strict=True):
        rank.announce(names)
    assert [rank.alike(names) for rank, names in zip(ranks, have, strict=True)] == [{"a/1"}] * 3


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    store = HungStore()
    rank = StoreBarrier(store, 2)
    begun = time.monotonic()
    assert not rank.wait("here", 0.1)
    assert rank.problem == "The job's store does not answer."
    assert not rank.wait("there", 10)
    rank.leave("")
    assert time.monotonic() - begun < 5
    store.over.set()
    for thread in threading.enumerate():
        if thread.name == "perfdoctor-barrier":
            thread.join(5)


def test_a_store_that_is_gone(tmp_path: Any) -> None:
    class Gone:
        def add(self, key: str, amount: int) -> int:
            raise torch.distributed.DistNetworkError("Connection reset by peer")

    rank = StoreBarrier(Gone(), 2)
    assert not rank.wait("here", 10)
    assert rank.problem == "The job's store failed: DistNetworkError: Connection reset by peer"


def test_a_job_of_one_rank_meets_nobody() -> None:
    assert module.store_barrier() is None
