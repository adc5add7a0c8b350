"""What the words of all languages have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_NAMED = 8  # as many numbers are taken in within a sentence


class Explanation(NamedTuple):
    """What is said of one cause at length.

    Attributes:
        goes: what happens in the time that it takes, after "62 % of the time"; "" for what is no bottleneck.
        means: what happens to a job that it holds back, in sentences.
        looks_like: what is easily taken for it, or it for that, and what distinguishes the two; goes on after "Looks
            like"; "" where nothing does.
        helps: what to change; goes on after "Helps:"; "" where nothing has to be.
        refuted: what would prove the finding wrong; goes on after "Refuted if"; "" where no test is known.
        title: what it is, as a short noun phrase; English has that in ``perfdoctor.causes``.
    """

    goes: str = ""
    means: str = ""
    looks_like: str = ""
    helps: str = ""
    refuted: str = ""
    title: str = ""


def first_ranks(ranks: Sequence[int], comma: str, more: str) -> str:
    """The numbers of the first ranks, and something that stands for the others."""
    return comma.join(map(str, ranks[:_NAMED])) + (more if len(ranks) > _NAMED else "")
