"""A pass over accounts: what a few traced steps show exactly, and what many observed ones hold beside it.

A trace has the composition of a step: where the device's time went, and why it idled. But it is of a few steps, which
may hold no checkpoint and no new epoch, it is blind to other processes and to the kernel, and its profiler slows the
host down. Samples and marks are of all observed steps. So an ordinary step takes what its marks say, and is composed
as traced:

- what the profiler made longer is taken back from where the host launches,
- where the trace only sees that a batch is fetched, a rank waited for, work launched or the device busy, the samples
  tell what is behind it: workers that read, a late rank, cores or a GPU that others use, a quota,
- what the steps hold beyond the traced composition is attributed as sampled: the excess of long steps, and of ordinary
  ones that took longer than the traced ones did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.causes import (
    CAUSES,
    CHECKPOINT_WRITE,
    CONTENTION,
    GARBAGE_COLLECTION,
    GIL_CONTENTION,
    GPU_COMPUTE,
    GPU_CONTENTION,
    GPU_THROTTLED,
    HOST_TRANSFER,
    INPUT_CAUSES,
    INPUT_PREPROCESSING,
    KERNEL_LAUNCH,
    LOCK_CONTENTION,
    LOW_OCCUPANCY,
    MEMORY_BANDWIDTH,
    MEMORY_PRESSURE,
    MODEL_COMPUTE,
    NO_TENSOR_CORES,
    PYTHON_OVERHEAD,
    STARTUP,
    SWAP,
    SYNCHRONIZATION,
    THROTTLED,
    UNATTRIBUTED,
    UNOBSERVED_RANK,
)
from perfdoctor.timeline.amounts import Amounts

# A cause, and the rank in which it lies; None for the trainer itself.
Place = tuple[str, int | None]
Places = Amounts[Place]

DEVICE_WORK = frozenset((GPU_COMPUTE, MEMORY_BANDWIDTH, LOW_OCCUPANCY, NO_TENSOR_CORES))
LAUNCHING = frozenset((KERNEL_LAUNCH, PYTHON_OVERHEAD))
# A profiler writes down each operator and each call, so that a device that waits for the next launch waits longer. A
# queue that was drained is refilled by launches too, and what a profiler does for itself is in no trace.
SLOWED_BY_PROFILER = LAUNCHING | {SYNCHRONIZATION, UNATTRIBUTED}
# While a device idles for these the host does something, or nothing that a trace shows.
IDLE = LAUNCHING | {INPUT_PREPROCESSING, CHECKPOINT_WRITE, SYNCHRONIZATION, MEMORY_PRESSURE, UNATTRIBUTED}
# Of these samples show only that the host works or waits, whatever the device does meanwhile: the trace knows better.
SHOWN_BY_TRACE = DEVICE_WORK | {MODEL_COMPUTE, KERNEL_LAUNCH, SYNCHRONIZATION, HOST_TRANSFER, UNATTRIBUTED}


@dataclass(frozen=True, slots=True)
class Reason:
    """What a trace sees as one thing, and samples as several.

    Attributes:
        traced: what the trace calls it.
        behind: what samples say of the same time.
        itself: what samples call it where nothing else is behind it; empty where something always is.
    """

    traced: frozenset[str]
    behind: frozenset[str]
    itself: frozenset[str] = frozenset()


REASONS = (
    Reason(frozenset((INPUT_PREPROCESSING,)), INPUT_CAUSES),
    Reason(
        LAUNCHING | {UNATTRIBUTED},
        frozenset((CONTENTION, THROTTLED, SWAP, GIL_CONTENTION, GARBAGE_COLLECTION)),
        LAUNCHING | {MODEL_COMPUTE},
    ),
    Reason(DEVICE_WORK, frozenset((GPU_THROTTLED, GPU_CONTENTION)), DEVICE_WORK),
)


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """The traced steps of one trainer.

    Attributes:
        account: of the traced window, by equal slices of it instead of seconds.
        ordinary: of each slice, the fraction that lies in ordinary steps on the host, 0 to 1.
        step_s: how long one took in the mean; 0 where that is not known.
    """

    account: Account
    ordinary: Sequence[float]
    step_s: float


@dataclass(frozen=True, slots=True)
class ObservedSteps:
    """The observed steps of the same trainer.

    Attributes:
        account: of all their time, as sampled.
        excess: of that, what long steps take longer than ordinary ones.
        steps: how many; 0 where none were marked.
    """

    account: Account
    excess: Account
    steps: int


def join_traced(traced: TracedSteps, observed: ObservedSteps) -> Account:
    """The account of the observed time: composed as traced, and as sampled where the trace does not reach.

    Args:
        traced: the traced steps.
        observed: the same trainer's observed ones.

    Returns:
        An account that sums to the observed time; its phases, files and lines are the sampled ones.
    """
    sampled, slices = _by_block(observed.account), _ordinary_slices(traced)
    step_s = traced.step_s * _total(slices) / (_total(_by_block(traced.account).values()) or 1.0)
    excess = _beside_the_device(
        {block: _known_beside(places) for block, places in _by_block(observed.excess).items()},
        observed.account.seconds - observed.steps * step_s * _device_part(slices),
    )
    ordinary_s = {
        block: max(0.0, places.total - excess.get(block, Places()).total) for block, places in sampled.items()
    }
    usual = _less(Amounts.summed(sampled.values()), Amounts.summed(excess.values()))
    longer = 1.0
    if observed.steps and step_s:
        longer = sum(ordinary_s.values()) / observed.steps / step_s
    slices = with_reasons(without_profiler(slices, longer), usual)
    beyond = beyond_traced(Amounts.summed(slices).fractions(), usual.fractions(), longer)
    laid = laid_over({block: (1 - beyond.total) * seconds for block, seconds in ordinary_s.items()}, slices)
    return _with_places(
        observed.account,
        {
            block: Amounts.summed([laid[block], _times(beyond, ordinary_s[block]), excess.get(block, {})])
            for block in sampled
        },
    )


def without_profiler(slices: Sequence[Places], longer: float) -> list[Places]:
    """Slices of traced steps without what made them longer than observed ones.

    That is the profiler, as far as the device waited for what a profiler slows down. Beyond that something else kept
    it waiting, a checkpoint in the only traced step for instance: what the device worked is what it works in each step.

    Args:
        slices: of traced steps, in seconds.
        longer: an observed step's length over a traced one's; from 1 on there is nothing to take back.
    """
    together = Amounts.summed(slices)
    surplus = max(0.0, 1 - longer) * together.total
    kept: dict[str, float] = {}
    for causes in (SLOWED_BY_PROFILER, IDLE - SLOWED_BY_PROFILER):
        there = sum(amount for (cause, _), amount in together.items() if cause in causes)
        taken = min(surplus, there)
        kept |= dict.fromkeys(causes, 1 - taken / there if there else 1.0)
        surplus -= taken
    return [Places({place: amount * kept.get(place[0], 1.0) for place, amount in one.items()}) for one in slices]


def with_reasons(slices: Sequence[Places], sampled: Places) -> list[Places]:
    """Slices of traced steps in which samples show what is behind fetching, waiting, launching and device work.

    Args:
        slices: of traced steps, in seconds.
        sampled: of ordinary steps, in seconds.
    """
    waits = Places({place: amount for place, amount in sampled.items() if place[1] is not None})
    behind: dict[Place, dict[Place, float]] = {(UNOBSERVED_RANK, None): waits.fractions()}
    for reason in REASONS:
        seen = Places({(cause, None): sampled[cause, None] for cause in sorted(reason.behind | reason.itself)})
        parts = {place: part for place, part in seen.fractions().items() if part and place[0] in reason.behind}
        behind |= {(cause, None): parts for cause in reason.traced}
    return [
        Amounts.summed(_split(place, amount, behind.get(place, {})) for place, amount in one.items()) for one in slices
    ]


def _split(place: Place, amount: float, behind: Mapping[Place, float]) -> Places:
    """An amount, as far as nothing is behind it where it was."""
    return Amounts.summed([_times(behind, amount), {place: amount * max(0.0, 1 - sum(behind.values()))}])


def beyond_traced(traced: Mapping[Place, float], sampled: Mapping[Place, float], longer: float) -> Places:
    """What ordinary steps hold beyond the traced ones, as fractions of their time.

    Where an observed step took longer than a traced one, a slower disk's minutes for instance, that is what samples
    show more of; as far as they show nothing, there was more of the same.

    Args:
        traced: fractions of a traced step.
        sampled: fractions of an ordinary step.
        longer: an observed step's length over a traced one's.
    """
    room = max(0.0, 1 - 1 / longer) if longer > 0 else 0.0
    seen = {place: part for place, part in _known_beside(Places(sampled)).items() if place[0] not in LAUNCHING}
    more = Places({place: max(0.0, part - traced.get(place, 0.0) * (1 - room)) for place, part in seen.items()})
    return _times(more, min(1.0, room / more.total) if more.total else 0.0)


def laid_over(seconds: Mapping[int, float], slices: Sequence[Places]) -> dict[int, Places]:
    """Slices of the traced steps one after the other over the observed time, so that each of its seconds has a run.

    Args:
        seconds: by second of the recording, how long it is.
        slices: of the traced steps; empty ones take no time.
    """
    lengths = np.concatenate([[0.0], np.cumsum([one.total for one in slices])])
    blocks = sorted(seconds)
    edges = np.concatenate([[0.0], np.cumsum([seconds[block] for block in blocks])])
    found: dict[int, Places] = {block: Places() for block in blocks}
    if not lengths[-1] or not edges[-1]:
        return found
    for place in Amounts.summed(slices):
        sums = np.concatenate([[0.0], np.cumsum([one[place] for one in slices])])
        amounts = np.diff(np.interp(edges / edges[-1], lengths / lengths[-1], sums / lengths[-1])) * edges[-1]
        for block, amount in zip(blocks, amounts.tolist(), strict=True):
            if amount > 0:
                found[block][place] = amount
    return found


def _device_part(slices: Sequence[Places]) -> float:
    """Of a traced step, the fraction in which the device works."""
    parts = Amounts.summed(slices).fractions()
    return sum(part for (cause, _), part in parts.items() if cause in DEVICE_WORK or cause == HOST_TRANSFER)


def _beside_the_device(excess: Mapping[int, Places], room_s: float) -> dict[int, Places]:
    """What long steps hold, as far as the device leaves room for it.

    A host that is ahead of its device and drains its queue now and then has long steps too. They only make up for the
    short ones: each step takes what the device works for it.
    """
    excess_s = _total(excess.values())
    part = min(1.0, max(0.0, room_s) / excess_s) if excess_s else 0.0
    return {block: _times(places, part) for block, places in excess.items()}


def _ordinary_slices(traced: TracedSteps) -> list[Places]:
    """The traced window's slices in order, without what the device idled for in long steps, and without one-off work.

    What it worked meanwhile was launched by the steps before.
    """
    slices = _by_block(traced.account)
    return [
        Places(
            {
                place: amount * (part if place[0] in IDLE else 1.0)
                for place, amount in slices.get(number, Places()).items()
                if place[0] != STARTUP
            }
        )
        for number, part in enumerate(traced.ordinary)
    ]


def _by_block(account: Account) -> dict[int, Places]:
    """An account's amounts by block.

    A trainer that waits for a device whose driver is not known seems to wait for a lock. So locks count where loader
    workers queue for them, and for the trainer's own waits there is the trace.
    """
    found: dict[int, Places] = {block: Places() for block in sorted(account.block_numbers)}
    for block, amounts in account.own.items():
        for cause, amount in amounts.items():
            known = account.awaited.get(block, Amounts())[cause] if cause == LOCK_CONTENTION else amount
            found[block][cause, None] += known
            found[block][UNATTRIBUTED, None] += amount - known
    for (block, rank), amounts in account.waits.items():
        for cause, amount in amounts.items():
            found[block][cause, rank] += amount
    return found


def _with_places(account: Account, by_block: Mapping[int, Places]) -> Account:
    """An account with other amounts."""
    own: dict[int, Amounts[str]] = {}
    waits: dict[tuple[int, int], Amounts[str]] = {}
    for block, places in by_block.items():
        for (cause, rank), amount in places.items():
            if amount <= 0:
                continue
            amounts = own.setdefault(block, Amounts()) if rank is None else waits.setdefault((block, rank), Amounts())
            amounts[cause] += amount
    return replace(account, own=own, waits=waits, awaited={})


def _known_beside(places: Places) -> Places:
    """What samples know better than a trace; what is no cause yet is a host at its device."""
    return Places(
        {place: amount for place, amount in places.items() if place[0] in CAUSES and place[0] not in SHOWN_BY_TRACE}
    )


def _less(places: Places, others: Mapping[Place, float]) -> Places:
    return Places({place: max(0.0, amount - others.get(place, 0.0)) for place, amount in places.items()})


def _times(places: Mapping[Place, float], factor: float) -> Places:
    return Places({place: amount * factor for place, amount in places.items()})


def _total(parts: Iterable[Places]) -> float:
    return sum(part.total for part in parts)
