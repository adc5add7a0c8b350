"""Single fields of events, as numbers, whatever the file has in their place."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from perfdoctor.traces.events import Arguments, Loose
from perfdoctor.traces.model import UNKNOWN, Message


def whole_numbers(values: Iterable[Loose], count: int) -> npt.NDArray[np.int64]:
    """Whole numbers, also those written as text; ``UNKNOWN`` for the rest."""
    listed = list(values)
    try:
        return np.fromiter(listed, dtype=np.int64, count=count)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(whole_number, listed), dtype=np.int64, count=count)


def whole_number(value: Loose) -> int:
    """One of them."""
    if isinstance(value, str):
        try:
            number = int(value, 0)
        except ValueError:
            return UNKNOWN
        return number if abs(number) < 2**62 else UNKNOWN
    if value is None or not -(2.0**62) < value < 2.0**62:
        return UNKNOWN
    return int(value)


def product(sizes: tuple[int, ...] | None) -> int:
    """Of the sides of a grid; ``UNKNOWN`` without any, or where it is out of all measure."""
    if not sizes:
        return UNKNOWN
    found = math.prod(sizes)
    return found if 0 <= found < 2**62 else UNKNOWN


def message(arguments: Arguments) -> Message:
    """What a collective carried."""
    sends = (arguments.collective or "").startswith("send")
    return Message(
        name=arguments.collective or "",
        sequence=whole_number(arguments.sequence),
        group="" if arguments.group is None else str(arguments.group),
        group_size=whole_number(arguments.group_size),
        elements=max(whole_number(arguments.elements_in), whole_number(arguments.elements_out)),
        dtype="" if arguments.dtype is None else str(arguments.dtype),
        members="" if arguments.group_ranks is None else str(arguments.group_ranks),
        peer=whole_number(arguments.receiver if sends else arguments.sender),
    )
