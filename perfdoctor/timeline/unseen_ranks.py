"""What is to be said of ranks that were not seen, and of those that nothing numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfdoctor.diagnosis import NotExamined
from perfdoctor.messages import Text, say

_NAMED = 10  # spans of ranks that a note names


def missing_ranks(seen: int, world: int, enable: Text, numbers: Iterable[int] = ()) -> list[NotExamined]:
    """Ranks that were not seen; nothing if all were.

    Args:
        seen: how many were.
        world: how many there are, numbered from 0.
        enable: how to see all.
        numbers: of those that were seen; none where they are not known.
    """
    if seen >= world:
        return []
    known = set(numbers)
    spans = list(_spans(sorted(set(range(world)) - known))) if known else []
    named, more = tuple(spans[:_NAMED]), len(spans[_NAMED:])
    why = say("cluster.missing_ranks", ranks=named, more=more, seen=seen, world=world)
    return [NotExamined("ranks", why, enable)]


def counted_ranks(seen: int, *, numbered: bool) -> list[NotExamined]:
    """That ranks were counted, because nothing says which is which.

    Args:
        seen: how many there are here.
        numbered: whether anything does.
    """
    if numbered or seen < 2:
        return []
    return [NotExamined("ranks", say("cluster.ranks_by_start"), say("cluster.set_rank"))]


def _spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Numbers in order as first and last of those without a gap."""
    span: tuple[int, int] | None = None
    for number in numbers:
        if span is not None and number > span[1] + 1:
            yield span
            span = None
        span = (number if span is None else span[0], number)
    if span is not None:
        yield span
