"""What a trainer is at, whatever its time counts for: each activity becomes a number of its own, ``own_NAME``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from perfdoctor.causes import INPUT_PREPROCESSING, NETWORK_READ, PYTHON_OVERHEAD, STORAGE_READ
from perfdoctor.knowledge import thresholds
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import PREPARES

if TYPE_CHECKING:
    from perfdoctor.attribution.share import Share
    from perfdoctor.timeline.code_location import CodeLocation

Activity = Literal[
    "fetching",  # the main thread prepares batches itself
    "in_loop",  # of that, outside of loaders, in the code of the loop
    "per_pass",  # it prepares what all steps of a pass over the data share, in the code of the loop around them
    "sampling",  # it draws the indices of batches
    "compiling",  # torch.compile compiles its model
    "recompiling",  # of that, again
    "profiling",  # torch.profiler begins to record, ends, or sorts what it has recorded
    "recomputing",  # checkpointed blocks run their forward pass again
    "updating",  # the optimizer's step is interpreter and dispatch
    "clipping",  # gradients are clipped or scaled back
    "copying",  # memory is copied that was shared with a process since that was forked
    "evaluating",  # it evaluates, the reading of batches for that included
    "on_host",  # it computes on the CPU although it has a GPU
    "beside",  # its Python overhead is arithmetic below the model's passes that the training does without
]

_BY_DETAIL: dict[str, Activity] = {
    "fetch": "fetching",
    PREPARES: "fetching",
    "sampling": "sampling",
    "compile": "compiling",
    "profile": "profiling",
    "recompute": "recomputing",
    "clip": "clipping",
}
# What workers could do in the loop's place.
_OF_BATCHES = frozenset((INPUT_PREPROCESSING, STORAGE_READ, NETWORK_READ))


@dataclass
class Activities:
    """Seconds by activity; one may be part of another.

    A step compiles its backward pass and its optimizer after others of its parts have run: what is compiled after such
    parts more often than that is compiled again.
    """

    seconds: Amounts[Activity] = field(default_factory=Amounts)
    _has_run: bool = False
    _compilations_after_a_run: int = 0

    def add(self, seconds: float, location: CodeLocation, shares: Iterable[Share]) -> None:
        """Counts a span of time, in order."""
        if location.in_evaluation:
            self.seconds["evaluating"] += seconds
        if activity := "per_pass" if location.per_pass else _BY_DETAIL.get(location.detail):
            self.seconds[activity] += seconds
        self._follow_compilations(seconds, location)
        prepares = location.detail == PREPARES and not location.per_pass
        updates = location.phase == "optimizer" and location.detail != "clip"
        for share in shares:
            amount = share.weight * seconds
            if share.copying:
                self.seconds["copying"] += amount
            if share.cause == PYTHON_OVERHEAD and updates:
                self.seconds["updating"] += amount
            if share.beside and share.rank is None:
                self.seconds["beside"] += amount
            if prepares and share.rank is None and share.cause in _OF_BATCHES:
                self.seconds["in_loop"] += amount

    def _follow_compilations(self, seconds: float, location: CodeLocation) -> None:
        if location.detail == "compile":
            self._compilations_after_a_run += self._has_run
            self._has_run = False
            again = self._compilations_after_a_run > thresholds.COMPILATIONS_OF_A_STEP
            self.seconds["recompiling"] += seconds * again
        elif location.phase in ("backward", "optimizer"):
            self._has_run = True
