"""What is reported of days of a job: changes with their dates, and nothing where nothing happened."""

import random
from collections.abc import Callable
from itertools import chain

import pytest
from msgspec.structs import replace

from perfdoctor.monitor.detector import Detector
from perfdoctor.results.history import Appeared, Beat, Happened, Incident, Line, Presence, Window
from tests.builders.histories import BEAT_S, BEGAN, HOUR, beats, told, with_long_steps

MINUTE = 60.0


def kinds(incidents: list[Incident]) -> list[Happened]:
    return [incident.what for incident in incidents]


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_a_day_without_a_change_is_a_day_without_incidents(noise: float, memory: float) -> None:
    assert kinds(told(beats(24, noise=noise, memory=memory))) == []


@pytest.mark.parametrize("factor", [1.07, 1.3, 5.0])
def test_a_job_that_becomes_slower_is_dated(factor: float) -> None:
    (incident,) = told(beats(6, lambda at: 0.1 * (factor if at >= 3 * HOUR else 1)))
    assert incident.what is Happened.SLOWER
    assert incident.since == pytest.approx(BEGAN + 3 * HOUR, abs=4 * BEAT_S)
    assert incident.until is None
    assert incident.values["after_s"] / incident.values["before_s"] == pytest.approx(factor, rel=0.03)


def test_a_change_is_told_though_the_job_had_hardly_begun_and_was_restless() -> None:
    restless = [0.018, 0.017, 0.0185, 0.019, 0.025, 0.031]
    made = [
        Beat(BEGAN + BEAT_S * number, BEAT_S, int(BEAT_S / step_s), BEAT_S)
        for number, step_s in enumerate([*restless, *[0.067, 0.062, 0.055, 0.056, 0.053] * 4])
    ]
    (incident,) = told(list(made))
    assert incident.what is Happened.SLOWER
    assert incident.since == BEGAN + 6 * BEAT_S


def test_what_came_before_a_change_belongs_to_its_level_though_it_is_new() -> None:
    """Beats of a real job that stalled for a second now and then, and was six minutes old when it became slower."""
    sound = [21.6, 21.8, 21.8, 22.6, 24.6, 24.7, 23.0, 21.9, 21.5, 22.4, 26.1]
    slow = [37.3, 37.4, 37.1, 37.3, 38.1, 38.0, 37.0, 37.2, 37.1, 38.1, 37.2, 36.6, 38.8]
    made = [
        Beat(BEGAN + BEAT_S * number, BEAT_S, int(BEAT_S / step_ms * 1000), BEAT_S)
        for number, step_ms in enumerate([*sound, *slow])
    ]
    (incident,) = told(list(made))
    assert incident.what is Happened.SLOWER
    assert incident.since == BEGAN + len(sound) * BEAT_S


def test_a_dip_ends_and_what_follows_is_no_change() -> None:
    (incident,) = told(beats(6, lambda at: 0.15 if 3 * HOUR <= at < 3 * HOUR + 4 * MINUTE else 0.1))
    assert incident.what is Happened.DIP
    assert incident.since == pytest.approx(BEGAN + 3 * HOUR, abs=BEAT_S)
    assert incident.until == pytest.approx(BEGAN + 3 * HOUR + 4 * MINUTE, abs=BEAT_S)


def hourly(at: float) -> float:
    """Ten per cent slower for five minutes each hour, and as it was otherwise."""
    return 0.11 if at % HOUR >= 50 * MINUTE and at % HOUR < 55 * MINUTE else 0.1


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_dips_that_keep_a_rhythm_are_told_together(noise: float) -> None:
    detector = Detector()
    reported = [one for beat in beats(24, hourly, noise=noise) for one in detector.take(beat)]
    *dips, rhythm = detector.incidents.values()
    assert kinds(dips) == [Happened.DIP] * 4
    assert rhythm.what is Happened.DIPS
    assert rhythm.values["every_s"] == pytest.approx(HOUR, abs=2 * BEAT_S)
    assert rhythm.values["longer_s"] == pytest.approx(5 * MINUTE * (1 - 0.1 / 0.11), rel=0.3)
    assert rhythm.values["lasted_s"] == pytest.approx(5 * MINUTE, abs=2 * BEAT_S)
    assert rhythm.values["count"] > 15
    assert len([one for one in reported if one.since > BEGAN + 5 * HOUR]) == 0


@pytest.mark.parametrize(
    ("other", "told_at_s"),
    [(lambda at: 0.3 if at >= 10.85 * HOUR else 0.1, 0.0), (lambda at: 0.11 if at >= 10.85 * HOUR else 0.1, 600.0)],
    ids=["a deeper one at once", "one that stays when it does"],
)
def test_what_begins_as_a_dip_of_a_rhythm_and_is_another_change_is_told(
    other: Callable[[float], float], told_at_s: float
) -> None:
    detector, told_at = Detector(), None
    for beat in beats(12, lambda at: max(hourly(at) if at < 10.5 * HOUR else 0.0, other(at)), noise=0.005):
        slower = [one for one in detector.take(beat) if one.what is Happened.SLOWER and one.since > BEGAN + 10 * HOUR]
        told_at = told_at or (beat.ended if slower else None)
    (incident,) = [one for one in detector.incidents.values() if one.what is Happened.SLOWER]
    assert incident.since == pytest.approx(BEGAN + 10.85 * HOUR, abs=2 * BEAT_S)
    assert told_at == pytest.approx(BEGAN + 10.85 * HOUR + told_at_s, abs=5 * BEAT_S)


def test_a_job_that_recovers_is_told_twice() -> None:
    found = told(beats(8, lambda at: 0.13 if 3 * HOUR <= at < 5 * HOUR else 0.1))
    assert kinds(found) == [Happened.SLOWER, Happened.FASTER]
    assert found[1].since == pytest.approx(BEGAN + 5 * HOUR, abs=2 * BEAT_S)


def test_a_pace_that_wanes_slowly_is_a_drift_with_what_drifts_beside_it() -> None:
    found = told(
        beats(
            12,
            lambda at: 0.1 * (1 + 0.015 * at / HOUR),
            readings=lambda at: {"page_cache_bytes": 8e9 * (1 - 0.05 * at / HOUR), "job_cores": 2.0},
        )
    )
    assert kinds(found) == [Happened.DRIFT]
    values = found[0].values
    assert values["after_s"] > 1.05 * values["before_s"]
    assert values["page_cache_bytes_ratio"] < 0.9
    assert "job_cores_ratio" not in values


def test_memory_that_grows_is_told_with_when_there_is_none_left() -> None:
    chance = random.Random(2)

    def readings(at: float) -> dict[str, float]:
        grown = 1e9 * at / HOUR
        return {"job_memory_bytes": 4e9 + grown + chance.gauss(0, 5e7), "memory_available_bytes": 3e10 - grown}

    (incident,) = told(beats(6, readings=readings))
    assert incident.what is Happened.MEMORY
    assert incident.values["per_s"] * HOUR == pytest.approx(1e9, rel=0.1)
    assert incident.values["exhausted_in_s"] == pytest.approx(24 * HOUR, rel=0.3)


def test_memory_is_not_said_to_be_exhausted_where_as_much_is_left_as_before() -> None:
    def readings(at: float) -> dict[str, float]:
        return {"job_memory_bytes": 4e9 + 1e9 * at / HOUR, "memory_available_bytes": 3e10}

    (incident,) = told(beats(6, readings=readings))
    assert incident.what is Happened.MEMORY
    assert "exhausted_in_s" not in incident.values


def test_memory_that_settles_is_not() -> None:
    def readings(at: float) -> dict[str, float]:
        return {"job_memory_bytes": 4e9 + 2e9 * min(at / HOUR, 1.0), "memory_available_bytes": 3e10}

    found = told(beats(8, readings=readings))
    assert [incident for incident in found if incident.since > BEGAN + HOUR] == []


def test_checkpoints_keep_the_rhythm_of_steps() -> None:
    every = 6000  # ten minutes at the usual pace; the job becomes slower half way

    def at(beat: Beat, count: int) -> float:
        return 8.0 if count // every != (count + beat.steps) // every and count > every / 2 else 0.0

    made = beats(8, lambda at: 0.1 if at < 4 * HOUR else 0.17)
    found = told(with_long_steps(made, at))
    assert kinds(found) == [Happened.RECURRING, Happened.SLOWER]
    values = found[0].values
    assert values["every_steps"] == pytest.approx(every, rel=0.06)
    assert values["longer_s"] == pytest.approx(8.0)
    assert not values["by_the_clock"]


def test_a_neighbour_s_cron_job_keeps_that_of_the_clock() -> None:
    def at(beat: Beat, count: int) -> float:
        return 5.0 if (beat.began - BEGAN) % (15 * MINUTE) < BEAT_S else 0.0

    chance = random.Random(3)
    made = beats(10, lambda at: 0.1 + 0.05 * chance.random(), noise=0.0)
    found = told(with_long_steps(made, at))
    assert kinds(found) == [Happened.RECURRING]
    assert found[0].values["by_the_clock"]
    assert found[0].values["every_s"] == pytest.approx(15 * MINUTE)
    assert "every_steps" not in found[0].values


def test_stalls_that_come_by_chance_keep_no_rhythm() -> None:
    chance = random.Random(4)
    found = told(with_long_steps(beats(6), lambda beat, count: 6.0 if chance.random() < 0.08 else 0.0))
    assert kinds(found) == [Happened.RECURRING]
    assert "every_s" not in found[0].values
    assert found[0].values["share"] == pytest.approx(0.08 * 6 / BEAT_S, rel=0.4)


def test_a_job_that_makes_no_step_is_told_before_it_goes_on() -> None:
    def step_s(at: float) -> float:
        return float("inf") if HOUR <= at < HOUR + 10 * MINUTE else 0.1

    (silent,) = [one for one in told(beats(2, step_s)) if one.what is Happened.NO_STEPS]
    assert silent.since == pytest.approx(BEGAN + HOUR, abs=BEAT_S)
    assert silent.until == pytest.approx(BEGAN + HOUR + 10 * MINUTE, abs=BEAT_S)


HANG_S = 2 * HOUR + 5.0


def hung(at_s: float) -> Window:
    """A window of a job that sits in a debugger, as older versions kept it: with shares."""
    seen = window(at_s, communication__latency=1.0)
    return replace(seen, cause=None, stuck="debugger", summary="Rank 3 waits.", recording="w.x")


def in_order(*lines: Line) -> list[Line]:
    """As they come: each when it is over."""
    return sorted(lines, key=when)


@pytest.mark.parametrize("seen_at_s", [HANG_S + 2, HANG_S + 9 * MINUTE], ids=["at once", "late"])
@pytest.mark.parametrize("counted", [True, False])
def test_a_job_that_is_stuck_is_told_once_with_what_it_sits_in(seen_at_s: float, counted: bool) -> None:
    def step_s(at: float) -> float:
        return float("inf") if HANG_S <= at < HANG_S + HOUR else 0.1

    def every_five_minutes(since_s: float, until_s: float) -> list[Window]:
        return [window(at, cpu__model_compute=0.9, communication__latency=0.1) for at in range(since_s, until_s, 300)]

    seen = [hung(at) for at in (seen_at_s, seen_at_s + 300, seen_at_s + 600)]
    moving = [*every_five_minutes(60, 7200), *every_five_minutes(10830, 18000)]
    made = list(beats(5, step_s)) if counted else []
    detector = Detector()
    found = [(line, one) for line in in_order(*made, *moving, *seen) for one in detector.take(line)]
    (incident,) = detector.incidents.values()
    assert (incident.what, incident.stuck, incident.summary) == (Happened.NO_STEPS, "debugger", "Rank 3 waits.")
    assert incident.recordings == ("w.x",)
    assert incident.since == pytest.approx(BEGAN + (HANG_S if counted else seen_at_s), abs=BEAT_S)
    assert incident.until == pytest.approx(BEGAN + HANG_S + HOUR, abs=2 * BEAT_S)
    assert ("ordinary_s" in incident.values) is counted
    # What it sits in is told with the first window that saw it, and not again with each.
    assert [one.stuck for line, one in found if isinstance(line, Window) and one.until is None] == ["debugger"]


def test_steps_from_before_a_hang_are_none_after_it() -> None:
    made = list(beats(1))
    last = made[-1]
    # The last beat ends after the window's diagnosis was made, with steps from before the hang.
    found = told([*made[:-1], hung(last.began - BEGAN + 5), last])
    assert [(one.what, one.until) for one in found] == [(Happened.NO_STEPS, None)]


def test_a_diagnosis_that_comes_late_tells_of_the_silence_that_is_over() -> None:
    def step_s(at: float) -> float:
        return float("inf") if HOUR <= at < HOUR + 5 * MINUTE else 0.1

    (silent,) = told([*beats(2, step_s), hung(HOUR + MINUTE)])
    assert (silent.stuck, silent.until) == ("debugger", BEGAN + HOUR + 5 * MINUTE)


def test_a_job_that_is_ended_because_it_was_stuck_is_not_stuck_any_more() -> None:
    made = list(beats(1))
    gone_at = made[-1].ended
    ended = Presence(gone_at, Appeared.ENDED, 1)
    (silent,) = told([*made, ended, hung(gone_at - BEGAN - 5)])
    assert (silent.stuck, silent.until) == ("debugger", gone_at + 5)


def test_a_stuck_job_s_windows_explain_no_change_of_its_pace() -> None:
    stuck = hung(2.5 * HOUR)
    after = window(3.2 * HOUR, communication__latency=0.1, cpu__model_compute=0.9)
    made = beats(4, lambda at: 0.18 if at >= 3 * HOUR else 0.1)
    found = told(in_order(*made, stuck, after))
    assert [(one.what, one.cause) for one in found if one.what is Happened.SLOWER] == [(Happened.SLOWER, None)]


def test_the_first_beats_of_a_job_are_no_change_when_it_starts_again() -> None:
    first = list(beats(2))
    again = Presence(first[-1].ended + 60, Appeared.STARTED_AGAIN, 2)
    # It compiles for a minute; then it is what it was.
    later = [Beat(again.at + number * BEAT_S, BEAT_S, 60, 60 * (0.5 if number < 2 else 0.1)) for number in range(100)]
    assert told([*first, again, *later]) == []


def restarting(hours: float, away_s: float, *, counted: bool) -> list[Line]:
    """A job whose trainer is gone for a while every ten minutes; each compiles for a minute before it is as fast."""
    lines: list[Line] = [Presence(BEGAN, Appeared.FOUND, 1)]
    at = BEGAN
    for number in range(int(hours * 6)):
        if counted:
            for beat in range(19 - int(away_s / BEAT_S)):
                step_s = 0.5 if beat < 2 else 0.1
                steps = int(BEAT_S / step_s)
                lines.append(Beat(at + BEAT_S * beat, BEAT_S, steps, steps * step_s))
        at += 10 * MINUTE
        lines.append(Presence(at - away_s, Appeared.ENDED, number + 1))
        silent = [Beat(at - away_s + BEAT_S * beat, BEAT_S) for beat in range(int(away_s / BEAT_S))]
        # With steps its process is there at once, and is back when it makes some.
        again = at - away_s + 2 if counted else at
        lines += sorted([*silent, Presence(again, Appeared.STARTED_AGAIN, number + 2)], key=when)
    return lines


def when(line: Line) -> float:
    """When a line is written."""
    return line.at if isinstance(line, Presence) else line.ended if isinstance(line, Beat | Window) else 0.0


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("away_s", [90.0, 270.0])
def test_time_without_a_trainer_adds_up(away_s: float, counted: bool) -> None:
    (incident,) = told(restarting(6, away_s, counted=counted))
    assert incident.what is Happened.RESTARTS
    assert incident.values["longer_s"] == pytest.approx(away_s, abs=BEAT_S)
    assert incident.values["share"] == pytest.approx(away_s / (10 * MINUTE), rel=0.1)
    assert incident.values["every_s"] == pytest.approx(10 * MINUTE)
    assert incident.values["count"] > 20


def test_a_job_that_is_started_again_now_and_then_is_no_incident() -> None:
    first = list(beats(2))
    lines: list[Line] = [*first]
    for number in range(8):
        at = lines[-1].ended if isinstance(lines[-1], Beat) else 0.0
        lines += [Presence(at, Appeared.ENDED, 1), Presence(at + 20, Appeared.STARTED_AGAIN, 2)]
        later = beats(1 + number % 3, seed=number)
        lines += [replace(beat, began=beat.began - BEGAN + at + 20) for beat in later]
    assert told(lines) == []


def test_what_a_trainer_held_is_no_trend_of_the_next_one() -> None:
    def readings(at: float) -> dict[str, float]:
        return {"job_memory_bytes": 4e9 + 1e9 * (at % HOUR) / HOUR}  # each starts as small as the one before

    lines: list[Line] = []
    for beat in beats(8, readings=readings):
        if (beat.began - BEGAN) % (HOUR / 2) == 0:
            lines += [Presence(beat.began, Appeared.ENDED, 1), Presence(beat.began, Appeared.STARTED_AGAIN, 2)]
        lines.append(beat)
    assert told(lines) == []


def window(at: float, **shares: float) -> Window:
    causes = {name.replace("__", "."): share for name, share in shares.items()}
    return Window(BEGAN + at, 10.0, "interval", max(causes, key=lambda one: causes[one]), shares=causes)


def test_windows_before_and_after_say_what_costs_more() -> None:
    before = window(2.9 * HOUR, cpu__model_compute=0.9, io__storage_read=0.1)
    after = window(3.2 * HOUR, cpu__model_compute=0.5, io__storage_read=0.5)
    made = beats(4, lambda at: 0.18 if at >= 3 * HOUR else 0.1)
    lines = sorted(chain(made, [before, after]), key=lambda line: line.began)
    (incident,) = told(lines)
    assert incident.cause == "io.storage_read"


def test_a_beat_with_the_change_in_it_tells_the_new_pace_less_than_those_after_it() -> None:
    slower_in = 8
    paces = [0.1] * slower_in + [0.15] + [0.3] * 3
    made = [
        Beat(BEGAN + BEAT_S * number, BEAT_S, round(BEAT_S / step_s), BEAT_S) for number, step_s in enumerate(paces)
    ]
    before = window(BEAT_S * 2, cpu__model_compute=0.9, io__storage_read=0.1)
    after = window(BEAT_S * (slower_in + 2), cpu__model_compute=0.3, io__storage_read=0.7)
    (incident,) = told(sorted([*made, before, after], key=lambda line: line.began + line.lasted_s))
    assert incident.cause == "io.storage_read"
    assert incident.values == pytest.approx({"before_s": 0.1, "after_s": 0.3}, rel=0.01)


def test_without_steps_shares_tell_of_a_change() -> None:
    chance = random.Random(5)

    def read(number: int) -> Window:
        share = (0.45 if number >= 40 else 0.1) + chance.gauss(0, 0.02)
        return window(300.0 * number, cpu__model_compute=1 - share, io__storage_read=share)

    found = told([read(number) for number in range(60)])
    assert [(one.what, one.cause) for one in found] == [(Happened.CAUSE, "io.storage_read")]
    assert found[0].since == pytest.approx(BEGAN + 40 * 300, abs=300)


@pytest.mark.parametrize("windows", [6, 40, 200])
def test_without_steps_a_cause_that_was_not_there_before_is_told(windows: int) -> None:
    before = [window(300.0 * number, cpu__model_compute=1.0) for number in range(windows)]
    after = [window(300.0 * (windows + at), cpu__model_compute=0.4, io__storage_read=0.6) for at in range(40)]
    (incident,) = told([*before, *after])
    assert (incident.what, incident.cause) == (Happened.CAUSE, "io.storage_read")
    assert incident.since == BEGAN + 300 * windows
    assert incident.values == pytest.approx({"before": 0.0, "after": 0.6})


def test_of_two_incidents_of_one_number_that_of_the_file_is_meant() -> None:
    detector = Detector()
    detector.take(window(HOUR, cpu__model_compute=1.0))
    made = beats(4, lambda at: 0.1 * (1.3 if at >= 3 * HOUR else 1))
    *_, slower = chain.from_iterable(map(detector.take, made))
    # As if lines from before were forgotten: what is found now has the number of what was told then.
    silent = Incident(slower.number, Happened.NO_STEPS, slower.since, values={"ordinary_s": 0.1})
    detector.take(silent)
    assert detector.take(window(5 * HOUR, cpu__model_compute=1.0)) == []
    assert detector.incidents == {silent.number: silent}


def test_a_history_that_is_read_again_tells_no_news() -> None:
    made = list(beats(6, lambda at: 0.1 * (1.3 if at >= 3 * HOUR else 1)))
    found = told(list(made))
    again = told([*made[:500], *found, *made[500:]])
    assert kinds(again)[: len(found)] == kinds(found)
