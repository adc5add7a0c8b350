"""Ranks on several hosts, each host watched by itself: who holds whom up.

Who waits for a rank that another host has shows on his own host only that he waits. The rank that waits least in
collectives is the one that comes last to them. As far as others wait longer than it does, they wait for it; the reason
is what it spends more time on than they do. What all ranks wait alike stays what it is: the exchange itself, or
a late rank that changes from step to step, which only one clock for all hosts can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.causes import BANDWIDTH, LATENCY, UNATTRIBUTED, UNOBSERVED_RANK
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.quantiles import median

_EXCHANGES = (UNOBSERVED_RANK, BANDWIDTH, LATENCY)


def charge_late_rank(accounts: Sequence[Account]) -> list[Account]:
    """Charges waiting for ranks of other hosts to the rank of all hosts that waits least, as far as others wait longer.

    Nothing changes where ranks wait about alike, or where nobody waits for another host.

    Args:
        accounts: of the ranks of all hosts, each with a number of its own.
    """
    waits = [_waited(account) for account in accounts]
    if len(accounts) < 2 or max(waits) - min(waits) < thresholds.UNEVEN_COLLECTIVES:
        return list(accounts)
    late = waits.index(min(waits))
    others = [_work(account) for index, account in enumerate(accounts) if index != late]
    doing = _excess(_work(accounts[late]), others, max(waits) - min(waits))
    rank = accounts[late].rank
    return [
        account if index == late else _waiting_for(account, rank, waited - min(waits), doing)
        for index, (account, waited) in enumerate(zip(accounts, waits, strict=True))
    ]


def _waited(account: Account) -> float:
    """Fraction of its time that a rank is in collectives, whomever it waits for there."""
    own = sum(amounts[cause] for amounts in account.own.values() for cause in _EXCHANGES)
    return (own + account.waited_for().total) / (account.seconds or 1.0)


def _work(account: Account) -> dict[str, float]:
    """What a rank does itself, in fractions of its time."""
    own = Amounts.summed(account.own.values())
    return {cause: amount / (account.seconds or 1.0) for cause, amount in own.items() if cause not in _EXCHANGES}


def _excess(late: dict[str, float], others: Sequence[dict[str, float]], waited: float) -> dict[str, float]:
    """On what the late rank spends more time than the others, as fractions that sum to 1; what is not known with it."""
    causes = late.keys() - {UNATTRIBUTED}
    usual = {cause: median([other.get(cause, 0.0) for other in others]) for cause in causes}
    more = Amounts({cause: late[cause] - usual[cause] for cause in causes if late[cause] > usual[cause]})
    return more.fractions() if more.total >= thresholds.EXPLAINED_WAIT * waited else {UNATTRIBUTED: 1.0}


def _waiting_for(account: Account, rank: int, longer: float, doing: dict[str, float]) -> Account:
    """The same account with its longer waiting for unobserved ranks, no more than it has, as waiting for one rank."""
    unobserved = sum(amounts[UNOBSERVED_RANK] for amounts in account.own.values())
    if longer <= 0 or unobserved <= 0:
        return account
    part = min(1.0, longer * account.seconds / unobserved)
    return account.waiting_for(rank, part, doing, of=UNOBSERVED_RANK)
