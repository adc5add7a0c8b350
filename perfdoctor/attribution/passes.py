"""Passes over the accounts: what only the whole recording shows of a loader's stages, and of several ranks.

Loader workers prepare batches while the trainer computes, so what they do counts only as far as it takes longer than a
step without waiting. Where a worker reads for 90 ms and decodes for 10 ms per batch, and the trainer computes for 50
ms, it waits for 50 ms: of that a tenth falls on decoding, and yet faster reads alone would end all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfdoctor.attribution.account import Account, Sampled, asks_for_exchange
from perfdoctor.attribution.habits import Context
from perfdoctor.attribution.suppliers import SupplierClassifier
from perfdoctor.causes import (
    BANDWIDTH,
    DATA_TRANSFER,
    GARBAGE_COLLECTION,
    INPUT_PREPROCESSING,
    LATENCY,
    NETWORK_READ,
    STORAGE_READ,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline

# What a worker spends on a batch, and what could be spent on the next one meanwhile. Starting workers is not among
# them, since the pipeline is empty then, nor are locks and whatever else holds up all workers together.
STAGES = frozenset((INPUT_PREPROCESSING, DATA_TRANSFER, GARBAGE_COLLECTION, STORAGE_READ, NETWORK_READ))
# As many samples determine fractions to a few hundredths.
_SAMPLES = 200


def charge_slowest_stage(context: Context, account: Account) -> Account:
    """Charges to the largest cause of waiting for workers what would go with it."""
    awaited = Amounts.summed(account.awaited.values())
    stages = {cause: amount / account.seconds for cause, amount in awaited.items() if cause in STAGES}
    if len(stages) < 2:
        return account
    spent = _spent_by_workers(context, account)
    first, going = going_with_the_largest(stages, spent, _cores_used(context.job))
    return account.recharged(going, first)


def going_with_the_largest(
    stages: Mapping[str, float], spent: Mapping[str, float], used: float
) -> tuple[str, dict[str, float]]:
    """The cause to relieve first, and of the waits attributed to each other one the part that would go with it.

    A worker relieved of a cause needs the rest of its time, and the trainer its own: the longer of both is the new
    step. So it frees what the trainer waits, or less. What two causes free when they are relieved one by one is
    the same waiting time; it is the larger one's as far as it frees more.

    Args:
        stages: cause to the fraction of wall time that the trainer waits for it.
        spent: cause to the fraction of wall time that a worker spends on it, whether or not anybody waits.
        used: fraction of the cores' time that the job uses: a step takes at least as long as its work on all cores.
    """
    first = max(stages, key=lambda cause: stages[cause])
    waits, busy = sum(stages.values()), min(1.0, sum(spent.values()))

    def freed(cause: str) -> float:
        return max(0.0, min(waits, 1 - max(busy - spent.get(cause, 0.0), used)))

    others = waits - stages[first]
    if freed(first) <= 0 or others <= 0:
        return first, {}
    # What would be waited for nevertheless.
    kept = max(0.0, waits - freed(first))
    going = max(0.0, 1 - kept / others)
    return first, {cause: going * max(0.0, 1 - freed(cause) / freed(first)) for cause in stages if cause != first}


def _spent_by_workers(context: Context, account: Account) -> dict[str, float]:
    """Cause to the fraction of its time that a worker spends on it, as a mean over workers; idling is missing."""
    job, pid = context.job, account.trainer.pid
    workers, classifier = job.processes.workers_of(pid), SupplierClassifier.of(context, pid)
    spent: Amounts[str] = Amounts()
    samples = 0
    for time_ns in job.threads.main_times(pid, most=_SAMPLES):
        for worker in (worker for worker in workers if worker.alive_at(time_ns)):
            samples += 1
            for share in classifier.shares(worker, time_ns):
                spent[share.cause] += share.weight
    return {cause: amount / samples for cause, amount in spent.items()}


def _cores_used(job: JobTimeline) -> float:
    """Fraction of the time of all cores that the job's threads use."""
    start, end = job.span
    running_ns = sum(
        thread.use(start, end)[0] * float(thread.times_ns[-1] - thread.times_ns[0])
        for thread in job.threads.by_tid.values()
    )
    return float(min(1.0, running_ns / (end - start) / job.cores))


def name_latency(hosts: Sequence[JobTimeline], accounts: Sequence[Sequence[Account]]) -> list[Account]:
    """Calls what ranks exchange latency where collectives take their time for messages rather than for bytes.

    Args:
        hosts: the job on each of its hosts.
        accounts: of the trainers on each.

    Returns:
        All of these accounts.
    """
    whole = [account for some in accounts for account in some]
    if not all(_many_small_messages(job, some) for job, some in zip(hosts, accounts, strict=True)):
        return whole
    return [account.moved(BANDWIDTH, {LATENCY: 1.0}) for account in whole]


def _many_small_messages(job: JobTimeline, accounts: Sequence[Account]) -> bool:
    """Whether messages, rather than bytes, take the time of collectives.

    Determined by the mean size of what travels and, where that is neither small nor large, by whether the link would
    have carried all of it in a fraction of the time that was spent in collectives. A link may carry less than it says,
    since its traffic is shaped, or shared: then bytes queue up in front of it. Drivers of network cards may count what
    a card cuts a segment into, so a packet that fills half of what the link carries at once is not small.
    """
    if job.gpus.processes:
        return _many_small_exchanges(job, accounts)
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
    if packet >= thresholds.LARGE_PACKET_BYTES or _queue_up(job, sum(sent.values())):
        return False
    return packet < small or unfilled


def _queue_up(job: JobTimeline, sent_bytes: float) -> bool:
    """Whether a byte that is sent waits long until it has arrived, by Little's law (1961): the queue over its rate."""
    queue, watched_s = job.readings.mean("network", "send_queue_bytes"), (job.span[1] - job.span[0]) / NS_PER_S
    return queue is not None and queue * watched_s >= thresholds.QUEUED_S * sent_bytes > 0


def _many_small_exchanges(job: JobTimeline, accounts: Sequence[Account]) -> bool:
    """The same where GPUs exchange: by the bytes that their links carry meanwhile, or by who asks for the exchange."""
    total = sum(account.seconds for account in accounts)
    spent = sum(account.causes()[BANDWIDTH] for account in accounts) / total if total else 0.0
    gpus = {gpu for account in accounts for gpu in job.gpus.of(account.trainer.pid)}
    carried = job.readings.mean_over(gpus, "nvlink_sent_bytes_per_second")
    if carried and spent > 0:
        return carried / spent < thresholds.UNFILLED_NVLINK_BYTES_PER_S
    return asks_for_exchange(accounts)


_NOTHING = 1e-9  # of a block's time: what sums differ by


def settled_samples(account: Account, start_ns: int, block_ns: int) -> list[Sampled]:
    """The samples of an account as it is now; those of a second sum to that second of the account.

    Args:
        account: the account, after all passes.
        start_ns: when its first block began.
        block_ns: the length of a block.
    """
    blocks: dict[int, list[Sampled]] = {}
    for sample in account.samples:
        blocks.setdefault((sample.time_ns - start_ns) // block_ns, []).append(sample)
    final = account.by_block()
    return [sample for number, found in blocks.items() for sample in _settled(found, final.get(number, {}))]


def _settled(samples: list[Sampled], final: Mapping[str, float]) -> Iterable[Sampled]:
    """The samples of one block, moved as little as makes them sum to what it was settled as."""
    before = Amounts.summed(sample.causes for sample in samples)
    total = sum(final.values())
    scale = before.total / total if total > 0 else 0.0
    after = Amounts({cause: amount * scale for cause, amount in final.items()})
    if all(abs(after[cause] - before[cause]) <= _NOTHING * before.total for cause in {*before, *after}):
        yield from samples
        return
    kept = {cause: min(1.0, after[cause] / amount) for cause, amount in before.items() if amount > 0}
    gained = Amounts({cause: amount - before[cause] for cause, amount in after.items() if amount > before[cause]})
    parts = gained.fractions()
    for sample in samples:
        stays = {cause: amount * kept.get(cause, 1.0) for cause, amount in sample.causes.items()}
        freed = sample.causes.total - sum(stays.values())
        moved = Amounts.summed([stays, {cause: freed * part for cause, part in parts.items()}])
        counted = Amounts({cause: amount for cause, amount in moved.items() if amount > _NOTHING * moved.total})
        yield sample._replace(causes=counted)
