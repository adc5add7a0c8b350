"""Windows in which the job was watched closely: which show a change or a loss of time, and what they have more of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.monitor.rhythms import Loss
from perfdoctor.results.history import Window

_MOST = 300  # windows that are remembered: the usual pace needs no more


class Windows:
    """Those that came last."""

    def __init__(self) -> None:
        self._all: deque[Window] = deque(maxlen=_MOST)

    def add(self, window: Window) -> None:
        """Takes the next one; those that saw nothing are left out."""
        if window.shares:
            self._all.append(window)

    def around(self, since: float, until: float | None) -> tuple[Window | None, Window | None]:
        """The last one before something began and the first one while it went on, None where there is none."""
        before = [window for window in self._all if window.ended <= since]
        within = [window for window in self._all if window.began >= since and window.began < (until or window.ended)]
        return next(reversed(before), None), next(iter(within), None)

    def at(self, losses: Iterable[Loss]) -> list[Window]:
        """Those that saw one of these losses of time."""
        return [window for window in self._all if any(covers(window, loss) for loss in losses)]

    def without(self, losses: Iterable[Loss]) -> list[Window]:
        """Those that saw none of them."""
        seen = self.at(losses)
        return [window for window in self._all if window not in seen]


def covers(window: Window, loss: Loss) -> bool:
    """Whether a window saw some of a loss of time."""
    return loss.at < window.ended and loss.ended > window.began


def recordings_of(*windows: Window | None) -> tuple[str, ...]:
    """The files of those that have one."""
    return tuple(window.recording for window in windows if window is not None and window.recording)


def mean_shares(windows: Sequence[Window]) -> dict[str, float]:
    """The mean of what causes take, over some windows."""
    causes = {cause for window in windows for cause in window.shares}
    return {cause: sum(window.shares.get(cause, 0.0) for window in windows) / len(windows) for cause in causes}


def most_grown(before: Mapping[str, float], after: Mapping[str, float], by: float) -> str | None:
    """The cause that costs more than before, and that by most; None where none explains the change.

    Args:
        before: what causes cost.
        after: likewise.
        by: the change, in the same unit.
    """
    grown = {cause: cost - before.get(cause, 0.0) for cause, cost in after.items()}
    cause = max(grown, key=lambda one: grown[one], default=UNATTRIBUTED)
    return cause if cause != UNATTRIBUTED and grown[cause] >= thresholds.CULPRIT * by > 0 else None


def seen_of(window: Window, losses: Iterable[Loss]) -> float:
    """The part of a window that some losses took."""
    within = (max(0.0, min(window.ended, loss.ended) - max(window.began, loss.at)) * loss.depth for loss in losses)
    return sum(within) / window.lasted_s
