"""From the lines of a history to what happened: changes of the pace, long steps that recur, drift, silence.

Nothing here looks at the job: a history that is read again gives the same, and days can be played in a second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy

from msgspec.structs import replace as updated

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.signals import MEMORY_LEFT, SIGNALS
from perfdoctor.monitor.changes import OF_PACE, OF_SHARES, ChangeState, Level, LevelChange, LevelPoint
from perfdoctor.monitor.incidents import PACE, Incidents, known_of
from perfdoctor.monitor.recurring import Rhythm, rhythms
from perfdoctor.monitor.silence import Silence
from perfdoctor.monitor.trends import BoundedSeries, Trend
from perfdoctor.monitor.windows import Windows, covers, mean_shares, most_grown, recordings_of, seen_of
from perfdoctor.results.history import JOB_MEMORY, Appeared, Beat, Happened, Incident, Line, LongStep, Presence, Window

# The first beats of a job, in which it compiles, tunes itself and fills its caches.
_SETTLING = 4
_LONG_STEPS = 400
_DRIFT_EVERY = 20  # beats
# An incident that goes on is reported anew when it has grown by so much.
_WORTH = 1.5


class Detector:
    """Reads a history line by line, and says what happened."""

    def __init__(self) -> None:
        self._known = Incidents()
        self._silence = Silence(self._known)
        self._windows = Windows()
        self._pace = Level(OF_PACE)
        self._shares, self._absent = dict[str, Level](), Level(OF_SHARES)
        self._drift, self._signals = BoundedSeries(), {name: BoundedSeries() for name in SIGNALS}
        self._long: deque[LongStep] = deque(maxlen=_LONG_STEPS)
        self._rhythms: list[Rhythm] = []
        self._beats = self._settling = 0
        self._step_s: float | None = None

    @property
    def incidents(self) -> Mapping[int, Incident]:
        """All that happened, as it is known by now, by number."""
        return self._known.all

    def take(self, line: Line) -> list[Incident]:
        """What the next line shows that was not known."""
        if isinstance(line, Incident):
            self._known.know(line)
            return []
        found = list(self._take(line))
        self._known.all.update({incident.number: incident for incident in found})
        return found

    @property
    def is_slower(self) -> bool:
        """Whether the job has become slower just now, and no window says yet why."""
        known = self._known.open(PACE)
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
            yield from self._silence.window(line, self._step_s)
            if not line.stuck:  # all of a stuck job's time goes wherever it stopped: that is no share of a cause's
                self._windows.add(line)
                yield from self._window(line)
        else:
            yield from self._beat(line)

    # --- the job comes and goes ---------------------------------------------------------------------------------

    def _presence(self, line: Presence) -> Iterator[Incident]:
        if line.what in (Appeared.ENDED, Appeared.INTERRUPTED):
            yield from self._silence.over(line.at)
        if line.what in (Appeared.FOUND, Appeared.STARTED_AGAIN):
            self._settling = _SETTLING
            for series in self._signals.values():
                series.clear()
            self._known.close(Happened.MEMORY)

    # --- beats ----------------------------------------------------------------------------------------------------

    def _beat(self, beat: Beat) -> Iterator[Incident]:
        yield from self._silence.beat(beat, self._step_s)
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

    def _changed(self, change: LevelChange) -> Iterator[Incident]:
        """What a change of the pace means: log seconds per step before and meanwhile."""
        slower = change.after > change.before
        if change.state is ChangeState.STAYS:
            self._drift.clear()
            self._known.close(Happened.DRIFT)
        if change.state is ChangeState.SEEN:  # until then a window may still say more of the change before
            self._known.close(PACE)
        if slower:
            yield self._of_pace(Happened.DIP if change.state is ChangeState.OVER else Happened.SLOWER, change)
        elif change.state is ChangeState.STAYS:
            yield self._of_pace(Happened.FASTER, change)

    def _of_pace(self, what: Happened, change: LevelChange) -> Incident:
        incident = self._known.put(PACE, what, change.since, _paces(change))
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
            near = (self._known.open((key[0], key[1] + by)) for by in (0, -1, 1))
            known = next((one for one in near if one is not None), None)
            incident = self._of_rhythm(rhythm, known, key)
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
            self._known.put(key, Happened.RECURRING, rhythm.steps[0].at, values)
            if known is None
            else updated(known, values=known_of(values))
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
        known = self._known.open(what)
        if known is None:
            yield self._known.put(what, what, trend.since, {**values, "by": by})
        elif by >= _WORTH * known.values["by"]:
            yield updated(known, values={**values, "by": by})

    # --- windows --------------------------------------------------------------------------------------------------

    def _window(self, window: Window) -> Iterator[Incident]:
        known = self._known.open(PACE)
        if known is not None and known.cause is None:
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
        for cause in sorted(window.shares.keys() - self._shares.keys() - {UNATTRIBUTED}):
            self._shares[cause] = deepcopy(self._absent)  # so far it took nothing
        self._absent.take(LevelPoint(window.began, window.ended, 0.0))
        for cause, level in self._shares.items():
            change = level.take(LevelPoint(window.began, window.ended, window.shares.get(cause, 0.0)))
            if change is None or change.after < change.before:
                continue
            key = (Happened.CAUSE, cause)
            incident = self._known.put(
                key, Happened.CAUSE, change.since, {"before": change.before, "after": change.after}
            )
            before, after = self._windows.around(change.since, change.until)
            yield updated(incident, until=change.until, cause=cause, recordings=recordings_of(before, after))
            if change.state is not ChangeState.SEEN:
                self._known.close(key)


def _paces(change: LevelChange) -> dict[str, float]:
    return {"before_s": math.exp(change.before), "after_s": math.exp(change.after)}
