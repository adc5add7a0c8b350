"""A day of a job in a second: real recordings joined end to end, as windows, with what they read and steps between."""

import json
from functools import cache
from pathlib import Path

import pytest

from perfdoctor.monitor.apart import condensed
from perfdoctor.monitor.beats import Beats
from perfdoctor.monitor.detector import Detector
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import BACKWARD_CALL, OPTIMIZER_CALL, CountedCall, Reading, Sample
from perfdoctor.reports.json import document
from perfdoctor.results.history import Beat, Happened, Incident, Line, Window
from tests.builders.histories import BEGAN, HOUR
from tests.recordings import corpus, packing

MINUTE = 60.0
EVERY_S = 300.0
# By the hour from which on a job of the corpus runs: its name, and seconds per step.
DAY = {0.0: ("sound_training", 0.25), 9.0: ("noisy_neighbours", 0.45), 11.0: ("sound_training", 0.25)}
SAVES_EVERY = 4800  # steps, twenty minutes


@cache
def window_of(name: str) -> Window:
    """What a history keeps of a recording of the corpus."""
    report = json.loads(json.dumps(document(corpus.examined(corpus.FOLDER / f"{name}{corpus.SUFFIX}"))))
    return condensed(report, Window(0.0, 0.0, "interval"))


@cache
def readings_of(name: str, folder: Path) -> tuple[int, list[Reading]]:
    """What was read in it, and when it began."""
    file = folder / f"{name}.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    with Recording.open(file) as recording:
        kept = [row for row in recording.rows(Reading) if row.probe in ("memory", "cpu")]
        return recording.start_ns, kept


def running(hour: float) -> tuple[str, float]:
    return DAY[max(since for since in DAY if since <= hour)]


def day(folder: Path, hours: float = 24.0) -> list[Line]:
    """The lines of a day: steps are counted all the time, the recordings come every five minutes."""
    beats, at_s, steps, lines = Beats(int(BEGAN * NS_PER_S), 30.0), 0.0, 0, list[Line]()
    beats.next(1)
    next_window_s, next_look_s = EVERY_S, 1.0
    calls: list[Sample] = []
    while at_s < hours * HOUR:
        name, step_s = running(at_s / HOUR)
        steps += 1
        at_s += step_s * (0.97, 1.01, 1.02)[steps % 3] + (12.0 if steps % SAVES_EVERY == 0 else 0.0)
        at_ns = int(at_s * NS_PER_S)
        calls += [CountedCall(at_ns - 1000, 1, 1, BACKWARD_CALL), CountedCall(at_ns, 1, 1, OPTIMIZER_CALL)]
        if at_s < next_look_s:
            continue
        next_look_s = at_s + 1.0
        beats.take(calls)
        calls.clear()
        if (beat := beats.next(at_ns)) is not None:
            lines.append(beat)
        if at_s >= next_window_s:
            next_window_s += EVERY_S
            began_ns, readings = readings_of(name, folder)
            beats.take(row._replace(time_ns=row.time_ns - began_ns + at_ns) for row in readings[:50])
            lines.append(_at(window_of(name), BEGAN + at_s))
    return lines


def _at(window: Window, began: float) -> Window:
    return Window(began, window.lasted_s, window.why, window.cause, window.share, window.confidence, window.shares)


@pytest.fixture(scope="module")
def incidents(tmp_path_factory: pytest.TempPathFactory) -> list[Incident]:
    detector = Detector()
    lines = day(tmp_path_factory.mktemp("day"))
    assert sum(isinstance(line, Beat) for line in lines) > 2500
    for line in lines:
        detector.take(line)
    return list(detector.incidents.values())


def test_a_day_tells_of_the_neighbours_with_dates_and_cause(incidents: list[Incident]) -> None:
    slower, faster = [one for one in incidents if one.what in (Happened.SLOWER, Happened.FASTER)]
    assert (slower.what, faster.what) == (Happened.SLOWER, Happened.FASTER)
    assert slower.since == pytest.approx(BEGAN + 9 * HOUR, abs=MINUTE)
    assert faster.since == pytest.approx(BEGAN + 11 * HOUR, abs=MINUTE)
    assert slower.values["after_s"] / slower.values["before_s"] == pytest.approx(1.8, rel=0.05)
    assert slower.cause == faster.cause == "cpu.contention"


def test_a_day_tells_of_what_comes_every_twenty_minutes(incidents: list[Incident]) -> None:
    (saves,) = [one for one in incidents if one.what is Happened.RECURRING]
    assert saves.values["every_steps"] == SAVES_EVERY
    assert saves.values["longer_s"] == pytest.approx(12.0, rel=0.02)


def test_a_day_tells_of_nothing_else(incidents: list[Incident]) -> None:
    assert len(incidents) == 3
