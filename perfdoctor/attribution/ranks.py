"""Passes over the accounts of several ranks: what late ranks are late for, and what an exchange takes its time for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfdoctor.attribution.account import Account
from perfdoctor.causes import BANDWIDTH, LATENCY
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts

if TYPE_CHECKING:
    from perfdoctor.timeline.job import JobTimeline  # traces do without


def charge_excess(accounts: Sequence[Account]) -> list[Account]:
    """Charges waiting for a rank to what that rank does more of, not to what it does at that very instant.

    A late rank does its ordinary work while the others wait for it: the delay came before. What it spends more time
    on than the waiting rank does is the reason (TraceML's and Ascend's rule: the culprit's local excess). As far as
    there is no excess, the instant's own activity stands. What ranks exchange with each other makes none of them late.
    """
    own = {account.trainer.rank or 0: Amounts.summed(map(_local, account.own.values())) for account in accounts}
    return [_charged(account, own) for account in accounts]


def _charged(account: Account, own: Mapping[int, Amounts[str]]) -> Account:
    mine, waits = own[account.trainer.rank or 0], dict(account.waits)
    for rank, waited in account.waited_for().items():
        excess = Amounts({cause: max(0.0, amount - mine[cause]) for cause, amount in own[rank].items()})
        if excess.total <= 0 or waited <= 0:
            continue
        charged = min(1.0, excess.total / waited)
        for (block, other), amounts in account.waits.items():
            if other == rank:
                kept = {cause: amount * (1 - charged) for cause, amount in amounts.items()}
                moved = {cause: part * charged * amounts.total for cause, part in excess.fractions().items()}
                waits[block, other] = Amounts.summed([kept, moved])
    return replace(account, waits=waits)


def _local(amounts: Mapping[str, float]) -> dict[str, float]:
    return {cause: amount for cause, amount in amounts.items() if not cause.startswith("communication.")}


def name_latency(job: JobTimeline, accounts: list[Account]) -> list[Account]:
    """Calls what ranks exchange latency where collectives take their time for messages rather than for bytes."""
    if not _many_small_messages(job, accounts):
        return accounts
    return [account.renamed(BANDWIDTH, LATENCY) for account in accounts]


def _many_small_messages(job: JobTimeline, accounts: Sequence[Account]) -> bool:
    """Whether messages, rather than bytes, take the time of collectives.

    Determined by the mean size of what travels and, where that is neither small nor large, by whether the link would
    have carried all of it in a fraction of the time that was spent in collectives. A link may carry less than it says:
    its traffic is shaped, or shared. Drivers of network cards may count what a card cuts a segment into, so a packet
    that fills half of what the link carries at once is not small.
    """
    facts, counters = job.recording.facts, job.counters
    interfaces = counters.subjects("sent_bytes_total")
    sent = {name: counters.growth(name, "sent_bytes_total") for name in interfaces}
    packets = sum(counters.growth(name, "sent_packets_total") for name in interfaces)
    spent = sum(account.causes()[BANDWIDTH] for account in accounts) / max(1, len(accounts))
    if packets <= 0 or spent <= 0:
        return False
    busiest = max(sent, key=lambda name: sent[name])
    link = float(facts.get((busiest, "link_bits_per_second"), 8 * thresholds.LOOPBACK_BYTES_PER_S)) / 8
    small = min(thresholds.SMALL_PACKET_BYTES, float(facts.get((busiest, "mtu_bytes"), math.inf)) / 2)
    packet = sum(sent.values()) / packets
    unfilled = sum(sent.values()) / spent < thresholds.UNFILLED_LINK * link
    return packet < small or (unfilled and packet < thresholds.LARGE_PACKET_BYTES)
