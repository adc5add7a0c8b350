"""From the lines of a history to what happened: changes of the pace, long steps that recur, drift, silence.

Nothing here looks at the job: a history that is read again gives the same, and days can be played in a second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping

from msgspec.structs import replace as updated

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.signals import MEMORY_LEFT, SIGNALS
from perfdoctor.monitor.changes import OF_PACE, OF_SHARES, ChangeState, Level, LevelChange, LevelPoint
from perfdoctor.monitor.recurring import Rhythm, rhythms
from perfdoctor.monitor.trends import BoundedSeries, Trend
from perfdoctor.monitor.windows import Windows, covers, mean_shares, most_grown, recordings_of, seen_of
from perfdoctor.results.history import JOB_MEMORY, Appeared, Beat, Happened, Incident, Line, LongStep, Presence, Window

# The first beats of a job, in which it compiles, tunes itself and fills its caches.
_SETTLING = 4
_LONG_STEPS = 400
_DRIFT_EVERY = 20  # beats
_PACE = "pace"  # of incidents that tell of it there is one at a time
# An incident that goes on is reported anew when it has grown by so much.
_WORTH = 1.5


class Detector:
    """Reads a history line by line, and says what happened.

    Attributes:
        incidents: all of them, as they are known by now, by number.
    """

    def __init__(self) -> None:
        self.incidents: dict[int, Incident] = {}
        self._windows = Windows()
        self._pace = Level(OF_PACE)
        self._shares: dict[str, Level] = {}
        self._drift, self._signals = BoundedSeries(), {name: BoundedSeries() for name in SIGNALS}
        self._long: deque[LongStep] = deque(maxlen=_LONG_STEPS)
        self._rhythms: list[Rhythm] = []
        self._beats = self._settling = 0
        self._step_s: float | None = None
        self._silent_since: float | None = None
        self._open: dict[object, int] = {}

    def take(self, line: Line) -> list[Incident]:
        """What the next line shows that was not known."""
        if isinstance(line, Incident):
            self._know(line)
            return []
        found = list(self._take(line))
        self.incidents.update({incident.number: incident for incident in found})
        return found

    @property
    def is_slower(self) -> bool:
        """Whether the job has become slower just now, and no window says yet why."""
        known = self.incidents.get(self._open.get(_PACE, 0))
        return self._pace.going_on is not None and known is not None and known.cause is None

    def expected_long_step(self, now: float, ahead_s: float) -> bool:
        """Whether a long step that keeps a rhythm, and that no window has seen yet, is due so soon."""
        for rhythm in self._rhythms:
            if rhythm.every_s is None:
                continue
            since = now - rhythm.steps[-1].at
            due_s = rhythm.every_s - since % rhythm.every_s
            # The windows last: they are many, and this is asked once a second.
            if since < 10 * rhythm.every_s and due_s <= ahead_s and not self._windows.at(rhythm.steps):
                return True
        return False

    def _take(self, line: Beat | Window | Presence) -> Iterator[Incident]:
        if isinstance(line, Presence):
            yield from self._presence(line)
        elif isinstance(line, Window):
            self._windows.add(line)
            yield from self._window(line)
        else:
            yield from self._beat(line)

    # --- the job comes and goes ---------------------------------------------------------------------------------

    def _presence(self, line: Presence) -> Iterator[Incident]:
        if line.what in (Appeared.ENDED, Appeared.INTERRUPTED):
            yield from self._silence_over(line.at)
        if line.what in (Appeared.FOUND, Appeared.STARTED_AGAIN):
            self._settling, self._silent_since = _SETTLING, None
            for series in self._signals.values():
                series.clear()
            self._open.pop(Happened.MEMORY, None)

    # --- beats ----------------------------------------------------------------------------------------------------

    def _beat(self, beat: Beat) -> Iterator[Incident]:
        if beat.steps:
            yield from self._silence_over(beat.began)
        elif self._step_s is not None:
            yield from self._silence(beat)
        if self._settling:
            self._settling -= beat.steps > 0 or not self._step_s
            self._step_s = beat.step_s or self._step_s
            return
        if beat.step_s:
            self._step_s = beat.step_s
            point = LevelPoint(beat.began, beat.ended, math.log(beat.step_s))
            if (change := self._pace.take(point)) is not None:
                yield from self._changed(change)
            if self._pace.going_on is None:
                self._drift.take(point)
        for name, value in beat.readings.items():
            if name in self._signals:
                self._signals[name].take(LevelPoint(beat.began, beat.ended, value))
        if beat.long:
            self._long.extend(beat.long)
            yield from self._recur()
        self._beats += 1
        if self._beats % _DRIFT_EVERY == 0:
            yield from self._drifts()

    def _silence(self, beat: Beat) -> Iterator[Incident]:
        self._silent_since = beat.began if self._silent_since is None else self._silent_since
        lasted_s = beat.ended - self._silent_since
        enough_s = max(float(thresholds.SILENT_S), thresholds.SILENT_STEPS * (self._step_s or 0.0))
        if lasted_s > enough_s and Happened.NO_STEPS not in self._open:
            yield self._incident(Happened.NO_STEPS, Happened.NO_STEPS, self._silent_since, {"ordinary_s": self._step_s})

    def _silence_over(self, at: float) -> Iterator[Incident]:
        self._silent_since = None
        if (number := self._open.pop(Happened.NO_STEPS, None)) is not None:
            yield updated(self.incidents[number], until=at)

    def _changed(self, change: LevelChange) -> Iterator[Incident]:
        """What a change of the pace means: log seconds per step before and meanwhile."""
        slower = change.after > change.before
        if change.state is ChangeState.STAYS:
            self._drift.clear()
            self._open.pop(Happened.DRIFT, None)
        if change.state is ChangeState.SEEN:  # until then a window may still say more of the change before
            self._open.pop(_PACE, None)
        if slower:
            yield self._of_pace(Happened.DIP if change.state is ChangeState.OVER else Happened.SLOWER, change)
        elif change.state is ChangeState.STAYS:
            yield self._of_pace(Happened.FASTER, change)

    def _of_pace(self, what: Happened, change: LevelChange) -> Incident:
        incident = self._incident(_PACE, what, change.since, _paces(change))
        return self._explained(updated(incident, until=change.until))

    def _explained(self, incident: Incident) -> Incident:
        """A change of the pace with what costs more since, or less, once a window lies before it and one in it."""
        before, after = self._windows.around(incident.since, incident.until)
        if incident.cause is not None or before is None or after is None:
            return incident
        costs = (before.per_step(incident.values["before_s"]), after.per_step(incident.values["after_s"]))
        less, more = costs if incident.what is not Happened.FASTER else reversed(costs)
        by = abs(incident.values["after_s"] - incident.values["before_s"])
        return updated(incident, cause=most_grown(less, more, by), recordings=recordings_of(before, after))

    def _recur(self) -> Iterator[Incident]:
        self._rhythms = rhythms(self._long)
        for rhythm in self._rhythms:
            key = (Happened.RECURRING, round(math.log2(rhythm.longer_s)))
            number = self._open.get(key, self._open.get((key[0], key[1] - 1), self._open.get((key[0], key[1] + 1))))
            known = self.incidents.get(number or 0)
            incident = self._of_rhythm(rhythm, known, key if number is None else number)
            worth = known is None or len(rhythm.steps) >= _WORTH * known.values["count"]
            if worth or (known is not None and incident.cause != known.cause):
                yield incident

    def _of_rhythm(self, rhythm: Rhythm, known: Incident | None, key: object) -> Incident:
        seen = self._windows.at(rhythm.steps)
        others = self._windows.without(self._long)
        cause = None
        if seen and others:
            by = sum(seen_of(window, rhythm.steps) for window in seen) / len(seen)
            cause = most_grown(mean_shares(others), mean_shares(seen), by)
        values = {
            "count": float(len(rhythm.steps)),
            "longer_s": rhythm.longer_s,
            "share": rhythm.share,
            "every_s": rhythm.every_s,
            "every_steps": rhythm.every_steps,
            "by_the_clock": float(rhythm.by_the_clock),
        }
        incident = (
            self._incident(key, Happened.RECURRING, rhythm.steps[0].at, values)
            if known is None
            else updated(known, values=_known(values))
        )
        files = recordings_of(*others[-1:], *seen[-1:]) if seen else incident.recordings
        return updated(incident, cause=cause or incident.cause, recordings=files)

    def _drifts(self) -> Iterator[Incident]:
        trend = self._drift.trend()
        if trend is not None and trend.last - trend.first >= math.log1p(thresholds.CHANGED_PACE):
            values = {"before_s": math.exp(trend.first), "after_s": math.exp(trend.last), **self._meanwhile()}
            yield from self._grown(Happened.DRIFT, trend, values, trend.last - trend.first)
        trend = self._signals[JOB_MEMORY].trend()
        if trend is None or trend.per_s <= 0 or trend.lately_per_s < trend.per_s / 2:
            return
        grown = trend.last - trend.first
        if grown >= thresholds.MEMORY_GROWN * trend.first:
            left = self._signals[MEMORY_LEFT].last
            values = {"before_bytes": trend.first, "after_bytes": trend.last, "per_s": trend.lately_per_s}
            exhausted = {} if left is None else {"exhausted_in_s": left / trend.lately_per_s}
            yield from self._grown(Happened.MEMORY, trend, {**values, **exhausted}, grown)

    def _meanwhile(self) -> dict[str, float]:
        """Signals that drifted at the same time, as what they are of what they were."""
        trends = {name: series.trend() for name, series in self._signals.items()}
        return {
            f"{name}_ratio": trend.last / trend.first
            for name, trend in trends.items()
            if trend is not None and trend.first > 0 and abs(trend.last / trend.first - 1) >= thresholds.CHANGED_PACE
        }

    def _grown(self, what: Happened, trend: Trend, values: Mapping[str, float], by: float) -> Iterator[Incident]:
        """An incident that goes on, where it is new or has become worse."""
        known = self.incidents.get(self._open.get(what, 0))
        if known is None:
            yield self._incident(what, what, trend.since, {**values, "by": by})
        elif by >= _WORTH * known.values["by"]:
            yield updated(known, values={**values, "by": by})

    # --- windows --------------------------------------------------------------------------------------------------

    def _window(self, window: Window) -> Iterator[Incident]:
        if window.stuck and (number := self._open.get(Happened.NO_STEPS)) is not None:
            known = self.incidents[number]
            yield updated(known, recordings=(window.recording,) if window.recording else known.recordings)
        number = self._open.get(_PACE)
        if number is not None and (known := self.incidents[number]).cause is None:
            change = self._pace.going_on
            explained = self._explained(known if change is None else updated(known, values=_paces(change)))
            if explained.cause is not None:
                yield explained
        if any(covers(window, step) for step in self._long):
            yield from self._recur()
        if self._step_s is None and window.shares and window.why == "interval":
            yield from self._of_shares(window)

    def _of_shares(self, window: Window) -> Iterator[Incident]:
        """Where no steps are counted, what takes the time is all that is known."""
        for cause in {*self._shares, *window.shares} - {UNATTRIBUTED}:
            level = self._shares.setdefault(cause, Level(OF_SHARES))
            change = level.take(LevelPoint(window.began, window.ended, window.shares.get(cause, 0.0)))
            if change is None or change.after < change.before:
                continue
            key = (Happened.CAUSE, cause)
            incident = self._incident(
                key, Happened.CAUSE, change.since, {"before": change.before, "after": change.after}
            )
            before, after = self._windows.around(change.since, change.until)
            yield updated(incident, until=change.until, cause=cause, recordings=recordings_of(before, after))
            if change.state is not ChangeState.SEEN:
                self._open.pop(key, None)

    # --- incidents ------------------------------------------------------------------------------------------------

    def _know(self, known: Incident) -> None:
        """Takes an incident that was reported before.

        Of a history that was shortened other incidents may be found than were reported, under the same numbers: they
        are not those that are open.
        """
        found = self.incidents.get(known.number)
        if found is not None and _kind(found.what) != _kind(known.what):
            self._open = {key: number for key, number in self._open.items() if number != known.number}
        self.incidents[known.number] = known

    def _incident(self, key: object, what: Happened, since: float, values: Mapping[str, float | None]) -> Incident:
        """The open incident of a key with new values, or a new one."""
        number = self._open.setdefault(key, max(self.incidents, default=0) + 1)
        known = self.incidents.get(number, Incident(number, what, since))
        incident = updated(known, what=what, since=since, values=_known(values))
        self.incidents[number] = incident
        return incident


def _kind(what: Happened) -> str:
    return _PACE if what in (Happened.SLOWER, Happened.FASTER, Happened.DIP) else what.name


def _paces(change: LevelChange) -> dict[str, float]:
    return {"before_s": math.exp(change.before), "after_s": math.exp(change.after)}


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
