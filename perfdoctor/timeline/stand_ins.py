"""A part of very many samples that stands for all of them.

An hour holds ten times more samples than shares need to be known to half a percent. Samples are put into groups of
neighbours, and in each group one of every kind is drawn, which stands for all of its kind there: a stratified sample
(Cochran, *Sampling Techniques*, chapter 5). How much time each kind takes, and when, stays exactly as it was seen, and
no kind is left out, however short it was. What else differs between samples of one kind, where in the code they are
for instance, is known from those that were drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
_SEED = 20  # any: the same recording gives the same diagnosis
# Fractions are known to half a percent by so many samples.
ENOUGH = 5_000


def drawn(samples: Sequence[T], most: int) -> Sequence[T]:
    """So many samples at most, one of each group of neighbours; all of them where there are no more.

    Every tenth would be met by the job's own rhythm.
    """
    together = -(-len(samples) // most)
    if together < 2:
        return samples
    draw = Random(_SEED)
    return [draw.choice(samples[start : start + together]) for start in range(0, len(samples), together)]


def stand_ins(weights: Sequence[float], kinds: Sequence[Hashable], groups: int) -> dict[int, float]:
    """Which samples stand for all, by their numbers, and the weight of each.

    Args:
        weights: of the samples, in order of time; those without any are stood for by none.
        kinds: of the samples.
        groups: into how many groups they are put at most; where there are no more samples, each stands for itself.
    """
    counted = [number for number, weight in enumerate(weights) if weight > 0]
    together = -(-len(counted) // groups)
    draw = Random(_SEED)
    found: dict[int, float] = {}
    for start in range(0, len(counted), max(1, together)):
        alike: dict[Hashable, list[int]] = {}
        for number in counted[start : start + together]:
            alike.setdefault(kinds[number], []).append(number)
        found.update((draw.choice(those), sum(weights[number] for number in those)) for those in alike.values())
    return dict(sorted(found.items()))
