"""Amounts of something by kind: seconds by cause, weights by cause, seconds by source line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
P = TypeVar("P")


class Amounts(dict[K, float], Generic[K]):
    """A dict of amounts in which whatever was never added is zero."""

    def __missing__(self, key: K) -> float:
        return 0.0

    @classmethod
    def summed(cls, parts: Iterable[Mapping[K, float]]) -> Amounts[K]:
        """The sum of several."""
        total: Amounts[K] = cls()
        for part in parts:
            for key, amount in part.items():
                total[key] += amount
        return total

    @property
    def total(self) -> float:
        """The sum over all kinds."""
        return sum(self.values())

    def fractions(self) -> dict[K, float]:
        """Each amount as a fraction of the total, largest first; {} if there is nothing."""
        total = self.total
        ordered = sorted(self.items(), key=lambda item: -item[1])
        return {key: amount / total for key, amount in ordered} if total > 0 else {}


def sum_by_place(parts: Iterable[tuple[P, Mapping[K, float]]]) -> dict[P, Amounts[K]]:
    """The sums of those amounts that lie in one place: in the same second, for instance."""
    found: dict[P, Amounts[K]] = {}
    for place, amounts in parts:
        total = found.setdefault(place, Amounts())
        for key, amount in amounts.items():
            total[key] += amount
    return found


def summed_by_block(parts: Iterable[Mapping[int, Mapping[K, float]]]) -> dict[int, Amounts[K]]:
    """The sums of several, block by block, in the order of the blocks' numbers."""
    return dict(sorted(sum_by_place(block for part in parts for block in part.items()).items()))
