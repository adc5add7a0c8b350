"""A fix that is proposed for a cause, and what it frees, as fractions of the wall time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import CAUSES, KERNEL_LAUNCH
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case
from perfdoctor.rules.neighbours import with_queueing


@dataclass(frozen=True, slots=True)
class Gain:
    """What a change frees, as fractions of the wall time.

    Attributes:
        least: where little comes of it; 0 where that depends on how well the change is made.
        likely: what to expect.
        most: where everything goes well.
    """

    least: float
    likely: float
    most: float

    def within(self, left: float | None) -> Gain:
        """The same, where some fraction of the wall time remains whatever is changed."""
        room = 1.0 if left is None else max(0.0, 1 - left)
        return Gain(min(self.least, room), min(self.likely, room), min(self.most, room))


@dataclass(frozen=True, slots=True)
class Proposed:
    """A fix for a cause, to be asked for what its advice says: ``fix["lines"]``.

    Attributes:
        case: what was measured.
        cause: its id.
        values: what the advice says, by name.
    """

    case: Case
    cause: str
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def share(self) -> float:
        """Fraction of the wall time that went into the cause."""
        return self.case.share(self.cause)

    def worked(self, part: float) -> float:
        """A part of the wall time that holds its queueing for cores, without that.

        So are phases, and activities that are told by where a thread is. ``with_gain`` adds the queueing of all work.
        """
        return part / with_queueing(self.case, self.cause)

    def frees(self, least: float, likely: float, most: float) -> Gain:
        """Parts of the cause, each of the share that sampling would have shown at least and at most."""
        low, high = self.case.range_of(self.cause)
        return Gain(least * low, likely * self.share, most * high)

    def frees_calls(self, likely: float, most: float) -> Gain:
        """The same of what calls operators: no more than a GPU idles, which may hide all of it as long as it works.

        A host that is behind launches all the time in which it does nothing else, and the GPU's own work goes on
        beside that.
        """
        if self.cause != KERNEL_LAUNCH:
            return self.frees(0.0, likely, most)
        beside = sum(share for cause, share in self.case.shares.items() if CAUSES[cause].bottleneck == "gpu")
        times = (self.share + beside) / max(self.share, thresholds.LEAST_LEFT)
        return self.frees(0.0, min(1.0, likely * times), min(1.0, most * times))

    def frees_phases(self, share: float, least: float, likely: float) -> Gain:
        """Parts of what a host that launches all the time calls in some phases: no more than the GPU idles."""
        return Gain(*(min(part * share, self.share) for part in (least, likely, 1.0)))

    def frees_exactly(self, part: float) -> Gain:
        """A part of the cause that is sure but for the sampling."""
        return self.frees(part, part, part)


# What a fix frees; None where the numbers for it are missing.
Estimate = Callable[[Proposed], Gain | None]
