"""Waits for a rank are charged to what it did more of, in the turns in which others wait for it."""

from random import Random

import pytest

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.attribution.late_ranks import charge_excess
from perfdoctor.attribution.share import Share
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process

COMPUTE, INPUT = "cpu.model_compute", "cpu.input_preprocessing"


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


def _stalled(
    ranks: int, stall: float, often: float, compute: float = 0.1, steps: int = 150
) -> tuple[list[Account], float]:
    """Ranks that take samples now and then which take longer, each at steps of its own; sampled every 20 ms.

    Returns:
        Their accounts, and the fraction of the time that goes if no sample takes longer.
    """
    random, accounts = Random(1), [_account(rank) for rank in range(ranks)]
    begin, period = 0.0, 0.02
    for _ in range(steps):
        stalls = [stall * (random.random() < often) for _ in range(ranks)]
        end = begin + max(stalls) + compute
        for number in range(int(begin / period) + 1, int(end / period) + 1):
            now = number * period
            for account, stalled in zip(accounts, stalls, strict=True):
                _sample(account, now, period, _doing(now - begin, stalled, stalls, compute))
        begin = end
    return accounts, 1 - steps * compute / begin


def _doing(since: float, stalled: float, stalls: list[float], compute: float) -> list[Share]:
    if since < stalled + compute:
        return [Share(INPUT if since < stalled else COMPUTE, 1.0)]
    late = [rank for rank, theirs in enumerate(stalls) if theirs + compute > since]
    if not late:
        return [Share(COMPUTE, 1.0)]
    return [Share(INPUT if since < stalls[rank] else COMPUTE, 1 / len(late), rank=rank) for rank in late]


def _sample(account: Account, now: float, seconds: float, shares: list[Share]) -> None:
    account.add(int(now), seconds, CodeLocation("other"), shares)
    causes = Amounts.summed({share.cause: share.weight * seconds} for share in shares)
    late = Amounts.summed({share.rank: share.weight * seconds} for share in shares if share.rank is not None)
    account.samples.append(Sampled(int(now * 1e9), causes, "", late))
    account.sampled += 1


@pytest.mark.parametrize(("ranks", "stall", "often"), [(2, 0.1, 0.3), (4, 0.1, 0.3), (4, 0.1, 0.15), (8, 0.1, 0.15)])
def test_ranks_that_stall_by_turns_wait_for_what_stalls_them(ranks: int, stall: float, often: float) -> None:
    """Over the whole time all of them do the same."""
    accounts, goes = _stalled(ranks, stall, often)
    total = sum(account.seconds for account in accounts)
    before = Amounts.summed(account.causes() for account in accounts)[INPUT] / total
    after = Amounts.summed(
        account.causes() for account in charge_excess(accounts, [account.samples for account in accounts])
    )
    assert after[INPUT] / total == pytest.approx(goes, abs=0.05)
    assert before < 0.7 * goes
    assert after.total == pytest.approx(total)


def test_waits_that_were_not_sampled_are_compared_over_all_of_the_time() -> None:
    """Those on GPUs are known by their use."""
    accounts, _ = _stalled(2, 0.1, 0.3)
    samples = [[sample._replace(late={}) for sample in account.samples] for account in accounts]
    assert [one.causes() for one in charge_excess(accounts, samples)] == [
        one.causes() for one in charge_excess(accounts)
    ]


def test_over_all_of_the_time_each_late_rank_answers_for_its_own() -> None:
    """One stalls in one step, another in the next, and the third waits for both."""
    accounts = [_account(rank) for rank in range(3)]
    for block, late in ((0, 1), (4, 2)):
        for rank, account in enumerate(accounts):
            own = [Share(INPUT, 1.0)] if rank == late else [Share(COMPUTE, 1.0, rank=late)]
            account.add(block, 3.0, CodeLocation("other"), own)
            account.add(block + 3, 1.0, CodeLocation("other"), [Share(COMPUTE, 1.0)])
    first, *_ = charge_excess(accounts)
    assert first.causes()[INPUT] == pytest.approx(6.0)
