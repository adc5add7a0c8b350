"""Passes over the accounts: the slowest stage of a loader, the excess of late ranks, and messages instead of bytes."""

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.passes import charge_excess, going_with_the_largest
from perfdoctor.attribution.share import Share
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process

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


def _account(rank: int) -> Account:
    return Account(Process(100 + rank, 1, 0, None, "trainer", 0, rank))


def test_waiting_is_charged_to_the_excess_of_the_late_rank() -> None:
    victim, culprit = _account(0), _account(1)
    for block in range(10):
        culprit.add(block, 0.5, CodeLocation("data"), [Share("cpu.input_preprocessing", 1.0)])
        culprit.add(block, 0.5, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
        victim.add(block, 0.5, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
        # While the victim waits, the culprit does its ordinary forward pass.
        victim.add(block, 0.5, CodeLocation("backward"), [Share("cpu.model_compute", 1.0, rank=1)])
    victim, _ = charge_excess([victim, culprit])
    assert victim.causes()["cpu.input_preprocessing"] == pytest.approx(5.0)
    assert victim.causes().total == pytest.approx(victim.seconds)
    assert victim.waited_for() == pytest.approx({1: 5.0})


def test_ranks_that_do_the_same_keep_what_was_seen() -> None:
    first, second = _account(0), _account(1)
    for account, other in ((first, 1), (second, 0)):
        account.add(0, 0.9, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
        account.add(0, 0.1, CodeLocation("backward"), [Share("cpu.contention", 1.0, rank=other)])
    first, _ = charge_excess([first, second])
    assert first.causes()["cpu.contention"] == pytest.approx(0.1)
    assert first.by_rank()["cpu.contention", 1] == pytest.approx(0.1)


def test_an_exchange_makes_no_rank_late() -> None:
    victim, culprit = _account(0), _account(1)
    culprit.add(0, 0.6, CodeLocation("backward"), [Share("communication.bandwidth", 1.0)])
    culprit.add(0, 0.4, CodeLocation("data"), [Share("io.storage_read", 1.0)])
    victim.add(0, 0.6, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
    victim.add(0, 0.4, CodeLocation("backward"), [Share("cpu.model_compute", 1.0, rank=1)])
    victim, _ = charge_excess([victim, culprit])
    assert victim.by_rank()["io.storage_read", 1] == pytest.approx(0.4)
    assert victim.causes()["communication.bandwidth"] == 0.0
