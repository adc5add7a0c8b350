"""What the words of all languages have in common: code, with the words of each as arguments."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 8  # as many numbers are taken in within a sentence


def first_ranks(ranks: Sequence[int], comma: str, more: str) -> str:
    """The numbers of the first ranks, and something that stands for the others."""
    return comma.join(map(str, ranks[:_NAMED])) + (more if len(ranks) > _NAMED else "")
