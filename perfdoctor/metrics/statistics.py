"""Whether work takes longer with something beside it, by a bootstrap.

To compare, only what is alike is taken: work of one kind, with several of both sorts. If one kind alone already differs
much in what it takes, it is several kinds that nothing distinguishes, and is left out. Both sorts are drawn anew, with
replacement: a difference that is gone in more than one of twenty draws may be chance, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.quantiles import quantiles

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def with_replacement(random: Random, draws: int, count: int) -> npt.NDArray[np.int64]:
    """Numbers below ``count``, as many of them in each draw, one row per draw.

    Python's random bytes: to load numpy's generators takes longer than to read a small trace.
    """
    numbers = np.frombuffer(random.randbytes(8 * draws * count), dtype=np.uint64) % np.uint64(count)
    return np.asarray(numbers.astype(np.int64).reshape(draws, count))


_DRAWS = 100  # of which one in twenty may be chance
# Of each kind so many are drawn, and of so many kinds: those that took most.
_DRAWN, _KINDS = 64, 24
_SEED = 19  # any: the same recording gives the same diagnosis


@dataclass(frozen=True, slots=True)
class KindComparison:
    """Work of one kind.

    Attributes:
        number: of the kind.
        alone: what it takes by itself, as a quantile.
        beside: what it takes with something beside it.
        count: how many had something beside them.
    """

    number: int
    alone: float
    beside: float
    count: int

    @property
    def longer(self) -> float:
        """By how much all together took longer."""
        return (self.beside - self.alone) * self.count


@dataclass(frozen=True, slots=True)
class WorkComparison:
    """What was compared.

    Attributes:
        kinds: those of which there was enough.
        compared: what all of these that had something beside them took.
        sure: whether they took longer beyond chance.
    """

    kinds: tuple[KindComparison, ...]
    compared: float
    sure: bool

    @property
    def longer(self) -> float:
        """By how much they took longer; 0 where that may be chance."""
        return sum(kind.longer for kind in self.kinds) if self.sure else 0.0

    @property
    def times(self) -> float:
        """How many times as long they took as by themselves."""
        return self.compared / (self.compared - self.longer) if self.sure else 1.0


def compare_kinds(
    kind: Int64s, taken: Floats, alone: Bools, beside: Bools, *, fraction: float = 0.5, enough: float | None = None
) -> WorkComparison:
    """Compares work that had something beside it with work of its kind that had nothing.

    Args:
        kind: a number for each piece of work.
        taken: what it took.
        alone: whether there was nothing beside it.
        beside: whether there was something; what is neither is left out.
        fraction: the quantile that speaks for several of a kind: the median, or what the fastest took.
        enough: so many of each sort it takes, ``thresholds.COMPARABLE_WORK`` unless given.
    """
    found, sums, redrawn = [], 0.0, np.zeros(_DRAWS)
    random = Random(_SEED)
    for number, without, with_ in _largest(
        kind, taken, alone, beside, thresholds.COMPARABLE_WORK if enough is None else enough
    ):
        one = KindComparison(number, _quantile(without, fraction), _quantile(with_, fraction), len(with_))
        found.append(one)
        sums += one.beside * one.count
        redrawn += one.count * (_redrawn(with_, fraction, random) - _redrawn(without, fraction, random))
    slower = sum(one.beside * one.count for one in found if one.beside > thresholds.LENGTHENED * one.alone)
    sure = bool(found) and slower >= thresholds.MOSTLY_LENGTHENED * sums and _quantile(redrawn, thresholds.CHANCE) > 0
    return WorkComparison(tuple(found), sums, sure)


def _largest(
    kind: Int64s, taken: Floats, alone: Bools, beside: Bools, enough: float
) -> Iterator[tuple[int, Floats, Floats]]:
    """The kinds that can be compared, and what they took alone and beside something; those that took most."""
    if not len(kind):
        return
    count = int(kind.max()) + 1
    both = np.minimum(np.bincount(kind[alone], minlength=count), np.bincount(kind[beside], minlength=count))
    weight = np.where(both >= enough, np.bincount(kind[beside], weights=taken[beside], minlength=count), 0.0)
    for number in np.argsort(-weight, kind="stable")[:_KINDS].tolist():
        if not weight[number]:
            return
        here = kind == number
        without = taken[here & alone]
        low, high = quantiles(without, (0.25, 0.75))
        if high <= thresholds.ONE_KERNEL_SIZE * low:
            yield number, without, taken[here & beside]


def _quantile(values: Floats, fraction: float) -> float:
    return float(quantiles(values, (fraction,))[0])


def _redrawn(values: Floats, fraction: float, random: Random) -> Floats:
    """The quantile in draws of as many values, with replacement."""
    values = values[np.linspace(0, len(values) - 1, min(len(values), _DRAWN)).astype(np.int64)]
    drawn = np.sort(values[with_replacement(random, _DRAWS, len(values))], axis=1)
    place = fraction * (len(values) - 1)
    below, above = drawn[:, int(place)], drawn[:, min(int(place) + 1, len(values) - 1)]
    return np.asarray(below + (above - below) * (place % 1.0))
