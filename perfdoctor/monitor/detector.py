"""From the lines of a history to what happened: changes of the pace, what recurs, drift, silence.

Nothing here looks at the job: a history that is read again gives the same, and days can be played in a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy

from msgspec.structs import replace as updated

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.knowledge import thresholds
from perfdoctor.monitor.changes import OF_PACE, OF_SHARES, ChangeState, Level, LevelChange, LevelPoint
from perfdoctor.monitor.incidents import PACE, WORTH, Incidents
from perfdoctor.monitor.recurrences import Recurrences
from perfdoctor.monitor.rhythms import Loss, together
from perfdoctor.monitor.silence import Silence
from perfdoctor.monitor.slow_readings import MEMORY_LEFT, SIGNALS
from perfdoctor.monitor.trends import BoundedSeries, Trend
from perfdoctor.monitor.windows import Windows, most_grown, recordings_of
from perfdoctor.results.history import HERE, JOB_MEMORY, Appeared, Beat, Happened, Incident, Line, Presence, Window

# The first beats of a job, in which it compiles, tunes itself and fills its caches.
_SETTLING = 4
_DRIFT_EVERY = 20  # beats


class Detector:
    """Reads a history line by line, and says what happened."""

    def __init__(self) -> None:
        self._known = Incidents()
        self._silence = Silence(self._known)
        self._windows = Windows()
        self._pace = Level(OF_PACE)
        self._shares, self._absent = dict[str, Level](), Level(OF_SHARES)
        self._drift, self._signals = BoundedSeries(), {name: BoundedSeries() for name in SIGNALS}
        self._long = Recurrences(Happened.RECURRING, self._known, self._windows)
        self._dips = Recurrences(Happened.DIPS, self._known, self._windows)
        self._restarts = Recurrences(Happened.RESTARTS, self._known, self._windows, together)
        self._beats = self._settling = 0
        self._gone_at: float | None = None
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
        found = []
        for incident in self._take(line):
            self._known.all[incident.number] = incident
            found.append(incident)
        return found

    @property
    def is_slower(self) -> bool:
        """Whether the job has become slower just now, and no window says yet why."""
        known = self._known.open(PACE)
        return self._pace.going_on is not None and known is not None and known.cause is None

    def expected_long_step(self, now: float, ahead_s: float) -> bool:
        """Whether a long step that keeps a rhythm, and that no window has seen yet, is due so soon."""
        return self._long.is_expected(now, ahead_s)

    def _take(self, line: Beat | Window | Presence) -> Iterator[Incident]:
        if isinstance(line, Presence):
            yield from self._presence(line)
        elif isinstance(line, Window):
            yield from self._silence.window(line, self._step_s)
            if not line.stuck:  # all of a stuck job's time goes wherever it stopped: that is no share of a cause's
                self._windows.add(line)
                yield from self._window(line)
            elif self._gone_at is not None and line.began < self._gone_at:  # it was ended before the diagnosis was made
                yield from self._silence.over(line.ended)
        else:
            yield from self._beat(line)

    # --- the job comes and goes ---------------------------------------------------------------------------------

    def _presence(self, line: Presence) -> Iterator[Incident]:
        if line.what is Appeared.UNSEEN:
            return
        yield from self._silence.over(line.at)
        if line.what is Appeared.ENDED:
            self._gone_at = line.at if self._gone_at is None else self._gone_at
        elif line.what in HERE:
            self._settling = _SETTLING
            for series in self._signals.values():
                series.clear()
            self._known.close(Happened.MEMORY)
            # Where steps are counted it is back with the first of them; who was not watched meanwhile was not missed.
            if line.what is Appeared.FOUND:
                self._gone_at = None
            elif self._step_s is None:
                yield from self._back(line.at)

    def _back(self, at: float) -> Iterator[Incident]:
        """The job trains again, if it did not."""
        gone_at, self._gone_at = self._gone_at, None
        if gone_at is not None and at > gone_at:
            yield from self._restarts.add(Loss(gone_at, at, at - gone_at))

    # --- beats ----------------------------------------------------------------------------------------------------

    def _beat(self, beat: Beat) -> Iterator[Incident]:
        if beat.steps:
            yield from self._back(beat.ended - beat.steps_s)
        if self._gone_at is None:  # a job that is started is not silent before its first step
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
            steps = [Loss(step.at, step.at + step.longer_s, step.longer_s, step.number) for step in beat.long]
            yield from self._long.add(*steps)
        self._beats += 1
        if self._beats % _DRIFT_EVERY == 0:
            yield from self._drifts()

    def _changed(self, change: LevelChange) -> Iterator[Incident]:
        """What a change of the pace means: log seconds per step before and meanwhile."""
        if change.state is ChangeState.STAYS:
            self._drift.clear()
            self._known.close(Happened.DRIFT)
        if change.state is ChangeState.SEEN:  # until then a window may still say more of the change before
            self._known.close(PACE)
        if change.after <= change.before:
            if change.state is ChangeState.STAYS:
                yield self._of_pace(Happened.FASTER, change)
            return
        depth = -math.expm1(change.before - change.after)
        if change.until is not None:
            yield from self._dip(change, Loss(change.since, change.until, depth * (change.until - change.since)))
        elif change.state is ChangeState.STAYS or not self._dips.is_next(change.since, depth):
            yield self._of_pace(Happened.SLOWER, change)

    def _dip(self, change: LevelChange, loss: Loss) -> Iterator[Incident]:
        """One that is over: the next of a rhythm that is known is reported with that, and not by itself."""
        was_told = self._known.open(PACE) is not None
        found = list(self._dips.add(loss))
        if was_told or not self._dips.keep_rhythm(loss):
            yield self._of_pace(Happened.DIP, change)
        yield from found

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
            values = {"before_bytes": trend.first, "after_bytes": trend.last, "per_s": trend.lately_per_s}
            yield from self._grown(Happened.MEMORY, trend, {**values, **self._exhausted()}, grown)

    def _exhausted(self) -> dict[str, float]:
        """When no memory is left, if that does become less: what is left of it by what goes each second."""
        room, trend = self._signals[MEMORY_LEFT].last, self._signals[MEMORY_LEFT].trend()
        if room is None or trend is None or trend.lately_per_s >= 0:
            return {}
        return {"exhausted_in_s": room / -trend.lately_per_s}

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
        elif by >= WORTH * known.values["by"]:
            yield updated(known, values={**values, "by": by})

    # --- windows --------------------------------------------------------------------------------------------------

    def _window(self, window: Window) -> Iterator[Incident]:
        known = self._known.open(PACE)
        if known is not None and known.cause is None:
            change = self._pace.going_on
            explained = self._explained(known if change is None else updated(known, values=_paces(change)))
            if explained.cause is not None:
                yield explained
        yield from self._long.window(window)
        yield from self._dips.window(window)
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
