"""Incidents of what recurs: one for each rhythm, reported anew when it has grown, and what it takes its time for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace as updated

from perfdoctor.monitor.incidents import WORTH, Incidents, known_of
from perfdoctor.monitor.rhythms import MISSED_GAPS, Loss, Rhythm, rhythms
from perfdoctor.monitor.windows import Windows, covers, mean_shares, most_grown, recordings_of, seen_of
from perfdoctor.results.history import Happened, Incident, Window

_MOST = 400  # losses that are remembered


class Recurrences:
    """Of one sort of losses, those that recur.

    Args:
        what: what they are.
        incidents: what happened so far.
        windows: what was seen closely.
        find: the rhythms among losses.
    """

    def __init__(
        self,
        what: Happened,
        incidents: Incidents,
        windows: Windows,
        find: Callable[[Sequence[Loss]], list[Rhythm]] = rhythms,
    ) -> None:
        self._what, self._incidents, self._windows, self._find = what, incidents, windows, find
        self._losses: deque[Loss] = deque(maxlen=_MOST)
        self._rhythms: list[Rhythm] = []

    def add(self, *losses: Loss) -> Iterator[Incident]:
        """What some more of them show."""
        self._losses.extend(losses)
        yield from self._look()

    def window(self, window: Window) -> Iterator[Incident]:
        """What another window shows of them."""
        if any(covers(window, loss) for loss in self._losses):
            yield from self._look()

    def is_expected(self, now: float, ahead_s: float) -> bool:
        """Whether one that keeps a rhythm, and that no window has seen yet, is due so soon."""
        for rhythm in self._rhythms:
            if rhythm.every_s is None:
                continue
            since = now - rhythm.losses[-1].at
            due_s = rhythm.every_s - since % rhythm.every_s
            # The windows last: they are many, and this is asked once a second.
            if since < MISSED_GAPS * rhythm.every_s and due_s <= ahead_s and not self._windows.at(rhythm.losses):
                return True
        return False

    def is_next(self, at: float, depth: float) -> bool:
        """Whether what begins at an instant is likely another one of a rhythm, as ``Rhythm.is_next`` says."""
        return any(rhythm.is_next(at, depth) for rhythm in self._rhythms)

    def keep_rhythm(self, loss: Loss) -> bool:
        """Whether one of them is reported together with others in their rhythm."""
        return any(rhythm.every_s is not None and loss in rhythm.losses for rhythm in self._rhythms)

    def _look(self) -> Iterator[Incident]:
        self._rhythms = self._find(self._losses)
        for rhythm in self._rhythms:
            length = round(math.log2(rhythm.lost_s))
            near = (self._incidents.open((self._what, length + by)) for by in (0, -1, 1))
            known = next((one for one in near if one is not None), None)
            incident = self._incident(rhythm, known, (self._what, length))
            worth = known is None or len(rhythm.losses) >= WORTH * known.values["count"]
            if worth or (known is not None and incident.cause != known.cause):
                yield incident

    def _incident(self, rhythm: Rhythm, known: Incident | None, key: object) -> Incident:
        seen, others = self._windows.at(rhythm.losses), self._windows.without(self._losses)
        cause = None
        if seen and others:
            by = sum(seen_of(window, rhythm.losses) for window in seen) / len(seen)
            cause = most_grown(mean_shares(others), mean_shares(seen), by)
        values = {
            "count": float(len(rhythm.losses)),
            "longer_s": rhythm.lost_s,
            "lasted_s": rhythm.lasted_s,
            "share": rhythm.share,
            "every_s": rhythm.every_s,
            "every_steps": rhythm.every_steps,
            "by_the_clock": float(rhythm.by_the_clock),
        }
        incident = (
            self._incidents.put(key, self._what, rhythm.losses[0].at, values)
            if known is None
            else updated(known, values=known_of(values))
        )
        files = recordings_of(*others[-1:], *seen[-1:]) if seen else incident.recordings
        return updated(incident, cause=cause or incident.cause, recordings=files)
