"""What each sample of a trainer stands for after all passes over its account, for pictures over time and over code.

Passes change a whole second of an account, not its samples. Each sample is changed by as little as makes the samples of
every second agree with the account: a cause that lost time loses it everywhere alike, and what is freed at a sample
goes to the causes that gained, in proportion to what they did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.timeline.amounts import Amounts

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
    for time_ns, causes, phase in samples:
        stays = {cause: amount * kept.get(cause, 1.0) for cause, amount in causes.items()}
        freed = causes.total - sum(stays.values())
        moved = Amounts.summed([stays, {cause: freed * part for cause, part in parts.items()}])
        told = Amounts({cause: amount for cause, amount in moved.items() if amount > _NOTHING * moved.total})
        yield Sampled(time_ns, told, phase)
