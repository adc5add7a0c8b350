"""Where one counted step ends and the next begins, found call by call: while the job runs, or in a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perfdoctor.recording.schema import BACKWARD_CALL, LOST_CALLS, CountedCall


class Border(NamedTuple):
    """Where a step ends and the next one begins.

    Attributes:
        after_gap: calls were lost since the border before, so that no step lies between the two.
    """

    time_ns: int
    after_gap: bool


class BorderFinder:
    """Finds the borders among the calls of one thread.

    Args:
        what: the kind of call that makes one.
        after_backward: only the first such call after a backward pass, or after several, does.
    """

    def __init__(self, what: str, *, after_backward: bool = False) -> None:
        self._what, self._after_backward = what, after_backward
        self._passed = self._lost = False

    def take(self, call: CountedCall) -> Border | None:
        """The border that a call makes; None if it makes none. Calls come in order of time."""
        if call.what == LOST_CALLS:
            self._lost, self._passed = True, False
        elif call.what == self._what and (self._passed or not self._after_backward):
            border = Border(call.time_ns, self._lost)
            self._lost = self._passed = False
            return border
        elif call.what == BACKWARD_CALL:
            self._passed = True
        return None

    def find(self, calls: Iterable[CountedCall]) -> Iterator[Border]:
        """The borders that several calls make."""
        for call in calls:
            if (border := self.take(call)) is not None:
                yield border
