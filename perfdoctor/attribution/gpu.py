"""Jobs with a GPU: what a busy GPU hides from the host is no cost, and while it idles the host is to blame.

Classifiers say what the host does at each instant: it waits for the device, launches work, or does something else. The
driver says how long the device was busy, as means over times that are longer than a step and a part of each second, so
the two meet in sums over the whole recording:

1. A host that waits for its device keeps it busy: busy time is matched with these waits first.
2. What the host does besides launching (waiting for input, saving, collecting garbage …) leaves the device idle. In a
   steady state a host that never waits is never ahead, so nothing hides what it does; one that waits in each step has
   nothing queued after it.
3. The idle time that remains goes to copies that the host waits for, to waits (without them launching would overlap
   with computing, and a step would take as long as the longer of both), and for the rest to launching.

Of several ranks a GPU that waits in a collective reads as busy. Who waits for whom is determined by comparing them: by
how long their GPUs are busy, by what slows these down, and by what their hosts do besides launching and never wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from perfdoctor.attribution.account import Account, asks_for_exchange
from perfdoctor.attribution.driver_calls import frees_memory, with_calls
from perfdoctor.attribution.gpu_use import GpuReader, GpuUse
from perfdoctor.attribution.share import DEVICE_WAIT, IN_DRIVER, INPUT_WAIT, LAUNCHING, MAPPING, STAGING
from perfdoctor.causes import (
    BANDWIDTH,
    CAUSES,
    GPU_COMPUTE,
    HOST_TRANSFER,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    MEMORY_PRESSURE,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
    SYNCHRONIZATION,
    UNATTRIBUTED,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline


def settle_with_gpus(hosts: Sequence[JobTimeline], accounts: Sequence[Sequence[Account]]) -> list[list[Account]]:
    """The accounts of the trainers, those that compute on GPUs with what these did.

    Args:
        hosts: the job on each of its hosts.
        accounts: of the trainers on each.
    """
    whole = [account for some in accounts for account in some]
    asks, unseen = asks_for_exchange(whole), len(whole) < max(job.processes.world_size for job in hosts)
    readers = [
        GpuReader(job.readings, list(_gpus_of(job, some).values()), asks_for_exchange=asks, unseen_ranks=unseen)
        for job, some in zip(hosts, accounts, strict=True)
    ]
    seen = [
        one
        for job, some, reader in zip(hosts, accounts, readers, strict=True)
        for one in _with_gpus(job, some, reader.beside(readers))
    ]
    on_gpus = [one for one in seen if isinstance(one, _OnGpu)]
    if not on_gpus:
        return [list(some) for some in accounts]
    held_up = [one.held_up([other for other in on_gpus if other is not one]) for one in on_gpus]
    works = min((one.split.busy - part) * (1 - one.use.slowed) for one, part in zip(on_gpus, held_up, strict=True))
    held = iter(held_up)
    settled = [one.with_gpus(works, next(held)) if isinstance(one, _OnGpu) else one for one in seen]
    became = {one.rank: _became(before, one) for before, one in zip(whole, settled, strict=True)}
    settled = [_with_waits_named(one, became) for one in settled]
    links = [one.use.exchanging if isinstance(one, _OnGpu) else None for one in seen]
    charged = iter(charge_late_gpus(charge_idle_gpus(settled, links)))
    return [list(islice(charged, len(some))) for some in accounts]


def _gpus_of(job: JobTimeline, accounts: Sequence[Account]) -> dict[int, tuple[str, ...]]:
    """The GPUs of each trainer on one host that has any."""
    return {pid: job.gpus.of(pid) for account in accounts if job.gpus.used_by(pid := account.trainer.pid)}


def _with_gpus(job: JobTimeline, accounts: Sequence[Account], reader: GpuReader) -> list[_OnGpu | Account]:
    """The trainers on one host, with their GPUs where they have any."""
    gpus = _gpus_of(job, accounts)
    return [
        _host_of(job, account, reader.read(gpus[pid])) if (pid := account.trainer.pid) in gpus else account
        for account in accounts
    ]


@dataclass(frozen=True)
class _OnGpu:
    """A trainer and its GPUs.

    Attributes:
        account: what the trainer did.
        use: what its GPUs did.
        split: what remaining idle time goes to.
    """

    account: Account
    use: GpuUse
    split: IdleSplit

    def held_up(self, others: Sequence[_OnGpu]) -> float:
        """Fraction of the time in which the GPU seems busy, and waits in collectives since hosts are late by turns.

        What a host does besides launching is hidden by the device no longer than the host waits for that at other
        times. If the device is not idle meanwhile, it waits for ranks that are late for the same reasons, for no longer
        than the devices of those are idle.
        """
        fractions = self.account.causes().fractions()
        idle = sum(1 - other.split.busy for other in others if other.split.measured)
        seems = _besides(fractions) - _waits(fractions) - (1 - self.split.busy)
        return min(idle, self.split.busy, max(0.0, seems)) if self.split.measured else 0.0

    def with_gpus(self, works: float, held_up: float) -> Account:
        """The account with what the GPUs did.

        Ranks compute alike, and whoever comes early to a collective is busy with it until the last one comes.

        Args:
            works: fraction of the time that the GPU needs for it that needs least, by itself and at its usual clocks.
            held_up: fraction of the time in which this one only seems busy.
        """
        split = self.split
        busy_time = split.busy - held_up
        early = 1 - self.use.slowed - works / busy_time if busy_time else 0.0
        use = self.use.with_exchange(early)
        besides, idle = _besides(self.account.causes().fractions()), 1 - busy_time
        own: dict[int, Amounts[str]] = {}
        for block, amounts in self.account.own.items():
            fractions, seconds = amounts.fractions(), amounts.total
            # Readings of a second are few: seconds differ by how much the host does in them besides launching.
            more = (_besides(fractions) - besides) * (min(1.0, idle / besides) if besides else 0.0)
            shares = share_second(fractions, use, split, 1 - min(1.0, max(0.0, idle + more)))
            own[block] = Amounts({cause: share * seconds for cause, share in shares.items()})
        return self.account.with_own(own, _ORIGINS)


def _host_of(job: JobTimeline, account: Account, use: GpuUse) -> _OnGpu:
    account = _with_staging(account, use)
    if (use.busy_at(*job.span) or 0.0) >= thresholds.USED_DEVICE:
        account = _with_host_arithmetic(account)
    host = account.causes().fractions()
    waits = host.get(DEVICE_WAIT, 0.0) + host.get(IN_DRIVER, 0.0)
    busy = use.without_front_end(use.busy_at(*job.span, waits), waits, host.get(LAUNCHING, 0.0))
    frees = frees_memory(host)
    account, use, busy = with_calls(account, use, busy)
    return _OnGpu(account, use, split_idle(account.causes().fractions(), use, busy, frees=frees))


def _with_host_arithmetic(account: Account) -> Account:
    """Arithmetic on the CPU is none of a model that computes on a GPU: it is work of operators on the host."""
    seconds = account.causes()[MODEL_COMPUTE]
    if not seconds:
        return account
    activities = replace(account.activities, seconds=Amounts({**account.activities.seconds, "on_host": seconds}))
    return replace(account.moved(MODEL_COMPUTE, {PYTHON_OVERHEAD: 1.0}), activities=activities)


def _with_staging(account: Account, use: GpuUse) -> Account:
    """Copies in the host's memory are part of those to the device, as far as bytes were moved; else of preparing input.

    The driver copies what is pageable to a place of its own first, and whoever asked for it waits.
    """
    copied = account.causes().fractions().get(STAGING, 0.0)
    moved = 1.0 if use.copying is None else use.copying[1]
    waits = min(1.0, moved / copied) if copied else 0.0
    return account.moved(STAGING, {INPUT_WAIT: waits, INPUT_PREPROCESSING: 1 - waits})


_WAITS = (DEVICE_WAIT, INPUT_WAIT, IN_DRIVER)
_HOST_OF_DEVICE = (*_WAITS, LAUNCHING, UNATTRIBUTED)
_AT_DEVICE = (*_WAITS, LAUNCHING, STAGING, MAPPING)
# Whose lines are those of a cause that is only known now.
_ORIGINS = {KERNEL_LAUNCH: LAUNCHING, SYNCHRONIZATION: DEVICE_WAIT, HOST_TRANSFER: INPUT_WAIT}


@dataclass(frozen=True)
class IdleSplit:
    """How idle time that nothing but launching and waiting explains is shared out.

    Attributes:
        busy: fraction of the time in which the device is busy.
        measured: the driver said so; otherwise it is estimated from what the host does.
        parts: cause to part of that idle time, summing to 1.
    """

    busy: float
    measured: bool
    parts: Mapping[str, float]


def split_idle(host: Mapping[str, float], use: GpuUse, busy: float | None, *, frees: bool = False) -> IdleSplit:
    """Determines it over the whole recording.

    Args:
        host: what the host does, cause to fraction of wall time.
        use: what its GPUs do.
        busy: fraction of the time in which they are busy; None where that could not be read.
        frees: it waits since it frees memory.
    """
    waits, launching = _waits(host), host.get(LAUNCHING, 0.0)
    besides = sum(host.values()) - waits - launching
    copies = _copies(host, use, busy)
    measured = busy is not None
    if busy is None:
        # Who has to wait for the device has given it enough to do; else it is known only that it had less than that.
        behind = waits >= thresholds.HOST_WAITS
        busy = waits - copies + launching * (1.0 if behind else thresholds.UNKNOWN_LAUNCHING)
    idle = max(0.0, 1 - busy)
    left = idle - min(besides, idle)
    if left <= 0:
        return IdleSplit(busy, measured, {KERNEL_LAUNCH: 1.0})
    copies = min(left, copies)
    rest = left - copies
    # Without waits the host would launch while the device computes: the longer of both would be the step. In the driver
    # it waits for no results, and launches for what the device is not behind; or it moves bytes itself: the queue of
    # whoever waits for copies is never full.
    driving = host.get(IN_DRIVER, 0.0)
    copying = driving if copies >= thresholds.HOST_WAITS else 0.0
    launching += driving - copying
    waits -= driving - copying
    waiting = min(rest, max(0.0, idle + busy - min(besides, idle) - copies - max(busy, launching)), waits)
    # Whoever waits where batches are copied waits for a copy that nothing lets overlap.
    for_input = waiting * (host.get(INPUT_WAIT, 0.0) + copying) / waits if waits > 0 else 0.0
    for_input = min(for_input, max(0.0, (use.copying or (0.0, 1.0))[1] - copies))
    cause = MEMORY_PRESSURE if frees else SYNCHRONIZATION
    parts = {HOST_TRANSFER: copies + for_input, KERNEL_LAUNCH: rest - waiting}
    parts[cause] = waiting - for_input
    return IdleSplit(busy, measured, {name: part / left for name, part in parts.items() if part > 0})


def _became(before: Account, after: Account) -> dict[str, float]:
    """What the time of a trainer turned out to go to of which the cause was not known before, as fractions."""
    was, now = Amounts.summed(before.own.values()), Amounts.summed(after.own.values())
    gained = Amounts({cause: amount - was[cause] for cause, amount in now.items() if amount > was[cause]})
    return gained.fractions() or {UNATTRIBUTED: 1.0}


def _with_waits_named(account: Account, became: Mapping[int, Mapping[str, float]]) -> Account:
    """The account with causes for what it waits for in ranks that are at their GPUs.

    Args:
        account: of one trainer, on a GPU or on none.
        became: by rank, cause to the part of its time at its GPU that went there.
    """

    def named(rank: int, amounts: Amounts[str]) -> Amounts[str]:
        at_gpu = sum(amounts[cause] for cause in _AT_DEVICE)
        if not at_gpu:
            return amounts
        known = {cause: amount for cause, amount in amounts.items() if cause not in _AT_DEVICE}
        return Amounts.summed([known, {cause: part * at_gpu for cause, part in became[rank].items()}])

    return replace(account, waits={key: named(key[1], amounts) for key, amounts in account.waits.items()})


def _besides(host: Mapping[str, float]) -> float:
    """Fraction of the time in which the host does something besides launching and waiting."""
    return sum(share for cause, share in host.items() if cause not in _HOST_OF_DEVICE)


def _waits(host: Mapping[str, float]) -> float:
    return sum(host.get(wait, 0.0) for wait in _WAITS)


def _copies(host: Mapping[str, float], use: GpuUse, busy: float | None) -> float:
    """Fraction of the time in which the host waits for copies.

    A wait of the device's for which it runs no kernel is one; and so is one for the input in a step that waits
    for results elsewhere as well, since then nothing else is queued: one that waits for room in the launch queue has
    queued much. The bytes that were moved bound it.
    """
    waits = _waits(host)
    copies = 0.0 if busy is None else max(0.0, waits - busy)
    if host.get(DEVICE_WAIT, 0.0) >= thresholds.HOST_WAITS:
        copies = max(copies, host.get(INPUT_WAIT, 0.0))
    least, most = use.copying or (0.0, 1.0)
    return min(waits, max(copies, least), most)


def share_second(host: Mapping[str, float], use: GpuUse, split: IdleSplit, busy: float) -> dict[str, float]:
    """What a second of wall time goes to.

    Args:
        host: what the host does in it, cause to fraction.
        use: what its GPUs do.
        split: what remaining idle time goes to.
        busy: fraction of it in which they are busy.

    Returns:
        Cause to fraction, summing to 1.
    """
    besides = {cause: share for cause, share in host.items() if cause not in _HOST_OF_DEVICE}
    shares = Amounts(_of_busy_time(use, busy, _waits(host)))
    idle = 1 - busy
    for some in (besides, {UNATTRIBUTED: host.get(UNATTRIBUTED, 0.0)}):
        total = sum(some.values())
        exposed = min(idle, total)
        for cause, share in some.items():
            shares[cause] += share * exposed / total if total else 0.0
        idle -= exposed
    for cause, part in split.parts.items():
        shares[cause] += idle * part
    return {cause: share for cause, share in shares.items() if share > 0}


def _of_busy_time(use: GpuUse, busy: float, waits: float) -> dict[str, float]:
    """What busy time goes to. A faster device frees no more than the host waits for it: then the host is the limit."""
    costs = {cause: busy * part for cause, part in use.parts.items() if not CAUSES[cause].healthy}
    total = sum(costs.values())
    kept = min(1.0, waits / total) if total else 1.0
    costs = {cause: cost * kept for cause, cost in costs.items()}
    return {**costs, GPU_COMPUTE: busy - sum(costs.values())}


def charge_idle_gpus(accounts: Sequence[Account], links: Sequence[float | None]) -> list[Account]:
    """Charges waiting in collectives that no bytes explain to what lets the GPUs of other ranks idle meanwhile.

    So it goes where each rank is late now and then.

    Args:
        accounts: of all trainers.
        links: of each, the fraction of the time that bytes between ranks can have taken at most; None if not known.
    """
    seen = [(account, _while_idle(account)) for account in accounts]
    return [
        account if most is None else _charged(account, most, [pair for pair in seen if pair[0] is not account])
        for account, most in zip(accounts, links, strict=True)
    ]


def _while_idle(account: Account) -> Amounts[str]:
    """What a trainer does while its GPU idles: all that is neither work of the GPU nor an exchange, in fractions."""
    fractions = account.causes().fractions()
    return Amounts({cause: part for cause, part in fractions.items() if cause.startswith(("cpu.", "io."))})


def _charged(account: Account, links: float, others: Sequence[tuple[Account, Amounts[str]]]) -> Account:
    """The account with what it waits beyond what links explain, for no longer than the GPUs of others idle."""
    waits = account.causes().fractions().get(BANDWIDTH, 0.0)
    total = sum(doing.total for _, doing in others)
    beyond = min(waits - links, total)
    if beyond < thresholds.UNEVEN_COLLECTIVES:
        return account
    for other, doing in others:
        part = beyond * doing.total / total
        if part:
            account = account.waiting_for(other.rank, part / waits, doing.fractions())
            waits -= part
    return account


def charge_late_gpus(accounts: Sequence[Account]) -> list[Account]:
    """Charges waiting in collectives to the rank that waits least in them, as far as others wait longer.

    What that rank waits as well is the exchange itself.
    """
    spins = [account.causes()[BANDWIDTH] / account.seconds if account.seconds else 0.0 for account in accounts]
    if len(accounts) < 2 or max(spins) - min(spins) < thresholds.UNEVEN_COLLECTIVES:
        return list(accounts)
    late = accounts[spins.index(min(spins))]
    doing = Amounts(
        {cause: amount for cause, amount in late.causes().items() if not cause.startswith("communication.")}
    ).fractions()
    rank, least = late.rank, min(spins)
    return [
        account.waiting_for(rank, 1 - least / spin, doing) if spin > least else account
        for account, spin in zip(accounts, spins, strict=True)
    ]
