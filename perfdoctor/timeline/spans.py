"""Spans of time, in order and apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Spans = Sequence[tuple[int, int]]


def is_within(spans: Spans, time_ns: int) -> bool:
    """Whether an instant lies in one of them: at its begin or later, and before its end."""
    number = bisect_right(spans, time_ns, key=lambda span: span[0]) - 1
    return number >= 0 and time_ns < spans[number][1]
