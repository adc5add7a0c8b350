"""Waiting for a rank is charged to what that rank does more of; nothing is lost or made up on the way."""

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.ranks import charge_excess
from perfdoctor.attribution.share import Share
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process


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
