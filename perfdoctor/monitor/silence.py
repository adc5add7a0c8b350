"""A job that makes no step: since when, and what it sits in, as far as a window has seen that.

A window that sees the job stuck says so at once, whether steps are counted or not; beats without a step say it after
some minutes. Both tell of the same silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace as updated

from perfdoctor.knowledge import thresholds
from perfdoctor.monitor.incidents import Incidents
from perfdoctor.results.history import Beat, Happened, Incident, Window


class Silence:
    """Follows a job's silences, one after the other.

    Args:
        incidents: what happened so far.
    """

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents
        self._since: float | None = None
        self._stuck_until = 0.0

    def beat(self, beat: Beat, ordinary_s: float | None) -> Iterator[Incident]:
        """What the next beat shows.

        Args:
            beat: it.
            ordinary_s: seconds that a step takes; None where that is not known.
        """
        if beat.steps:
            # Steps of a beat that began before the job was seen stuck may have ended before that.
            if beat.began >= self._stuck_until:
                yield from self.over(beat.began)
        elif ordinary_s is not None:
            self._since = beat.began if self._since is None else self._since
            enough_s = max(float(thresholds.SILENT_S), thresholds.SILENT_STEPS * ordinary_s)
            if beat.ended - self._since > enough_s and self._incidents.open(Happened.NO_STEPS) is None:
                yield self._begin(self._since, ordinary_s)

    def window(self, window: Window, ordinary_s: float | None) -> Iterator[Incident]:
        """What the next window shows; the arguments are those of ``beat``."""
        if window.stuck:
            self._stuck_until = window.ended
            known = self._around(window)
            if known is None:
                known = self._begin(window.began if self._since is None else self._since, ordinary_s)
            if known.stuck != window.stuck:
                files = (window.recording,) if window.recording else known.recordings
                yield updated(known, stuck=window.stuck, summary=window.summary, recordings=files)
        elif ordinary_s is None and window.shares:  # where steps are counted they say when it goes on
            yield from self.over(window.began)

    def over(self, at: float) -> Iterator[Incident]:
        """The job goes on, or is not there any more."""
        self._since, self._stuck_until = None, 0.0
        if (known := self._incidents.close(Happened.NO_STEPS)) is not None:
            yield updated(known, until=at)

    def _around(self, window: Window) -> Incident | None:
        """The silence that a window lies in, which may be over by the time that its diagnosis is made."""
        return self._incidents.open(Happened.NO_STEPS) or next(
            (
                one
                for one in self._incidents.all.values()
                if one.what is Happened.NO_STEPS and one.since <= window.began < (one.until or one.since)
            ),
            None,
        )

    def _begin(self, since: float, ordinary_s: float | None) -> Incident:
        return self._incidents.put(Happened.NO_STEPS, Happened.NO_STEPS, since, {"ordinary_s": ordinary_s})
