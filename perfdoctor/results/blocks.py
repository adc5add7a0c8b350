"""Blocks: stretches of the time that was watched, one after the other. How much they differ shows how sure a number is.

Neighbouring steps depend on each other: a slow neighbour or a cold cache lasts for many. Means over blocks hardly do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the time that was watched.

    Attributes:
        seconds: wall time in it that counts: where steps are known, that of steps and of evaluations between them.
        steps: how many steps lie in it, parts of steps as fractions; None where it says nothing of steps.
        causes: seconds by cause, a mean over the trainers; empty where it says nothing of causes.
    """

    seconds: float
    steps: float | None
    causes: Mapping[str, float] = field(default_factory=dict)


def in_batches(blocks: Sequence[Block], at_most: int) -> list[Block]:
    """The same time in fewer, longer blocks, each made of as many neighbours as the next, or of one more.

    Args:
        blocks: in order of time, all of one kind: with steps or without.
        at_most: how many are left.
    """
    count = min(len(blocks), at_most)
    borders = [number * len(blocks) // count for number in range(count + 1)] if count > 0 else []
    return [_joined(blocks[begin:end]) for begin, end in pairwise(borders)]


def _joined(blocks: Sequence[Block]) -> Block:
    steps = [block.steps for block in blocks if block.steps is not None]
    causes: dict[str, float] = {}
    for block in blocks:
        for cause, seconds in block.causes.items():
            causes[cause] = causes.get(cause, 0.0) + seconds
    return Block(sum(block.seconds for block in blocks), sum(steps) if steps else None, causes)
