"""From calls and readings to beats: steps, those that took much longer, and what was read meanwhile."""

import pytest

from perfdoctor.monitor.beats import Beats, StepCounter
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import BACKWARD_CALL, LOST_CALLS, OPTIMIZER_CALL, CountedCall, Reading

MS = NS_PER_S // 1000
EPOCH_NS = 1_800_000_000 * NS_PER_S


def steps(*lengths_ms: int, since_ms: int = 0, pid: int = 1, tid: int = 1) -> list[CountedCall]:
    """The calls of steps that end with an optimizer's."""
    found, at = [], since_ms
    for length in (0, *lengths_ms):
        at += length
        found += [CountedCall((at - 1) * MS, pid, tid, BACKWARD_CALL), CountedCall(at * MS, pid, tid, OPTIMIZER_CALL)]
    return found


def beat_of(calls: list[CountedCall], lasts_s: float = 1.0) -> Beats:
    beats = Beats(EPOCH_NS, lasts_s)
    assert beats.next(1) is None
    beats.take(calls)
    return beats


def test_a_beat_holds_the_steps_that_ended_in_it() -> None:
    beats = beat_of(steps(*[100] * 20, since_ms=1))
    assert beats.next(NS_PER_S // 2) is None
    beat = beats.next(3 * NS_PER_S)
    assert beat is not None
    assert (beat.began, beat.lasted_s, beat.steps, beat.long) == (1_800_000_000.0, 3.0, 20, ())
    assert beat.step_s == pytest.approx(0.1)


def test_a_long_step_is_told_apart_with_its_date_and_number() -> None:
    beats = beat_of(steps(*[100] * 12, 2100, *[100] * 8, since_ms=1))
    beat = beats.next(5 * NS_PER_S)
    assert beat is not None
    (long,) = beat.long
    assert (long.at - 1_800_000_000, long.longer_s) == pytest.approx((1.201, 2.0), abs=0.01)
    assert beat.step_s == pytest.approx(0.1)
    assert long.number == 13


def test_where_all_steps_are_long_the_job_is_slow() -> None:
    beats = beat_of(steps(*[100] * 9, *[900] * 9, since_ms=1))
    beat = beats.next(20 * NS_PER_S)
    assert beat is not None
    assert beat.long == ()
    assert beat.step_s == pytest.approx(0.5)


def test_a_beat_waits_for_steps_that_tell_something() -> None:
    beats = beat_of(steps(*[2000] * 3, since_ms=1))
    assert beats.next(7 * NS_PER_S) is None  # three steps tell no long one from others
    beats.take(steps(*[2000] * 8, since_ms=6001)[2:])
    beat = beats.next(23 * NS_PER_S)
    assert beat is not None
    assert beat.steps == 11


def test_no_steps_are_told_soon() -> None:
    beats = beat_of([])
    beat = beats.next(2 * NS_PER_S)
    assert beat is not None
    assert (beat.steps, beat.step_s) == (0, None)


def test_no_step_lies_where_calls_were_lost_or_nobody_counted() -> None:
    counter = StepCounter()
    lost = [CountedCall(1500 * MS, 1, 1, LOST_CALLS)]
    calls = [*steps(100, 100, since_ms=1000), *lost, *steps(100, since_ms=2000)]
    found = [counter.take(call) is not None for call in calls]
    assert [ended for ended, call in zip(found, calls, strict=True) if call.what == OPTIMIZER_CALL] == [
        False, True, True, False, True,
    ]  # fmt: skip


def test_the_steps_of_one_rank_are_counted() -> None:
    counter = StepCounter()
    assert counter.pid == 0
    both = sorted([*steps(*[100] * 5, since_ms=1), *steps(*[100] * 5, since_ms=2, pid=2)])
    assert sum(counter.take(call) is not None for call in both) == 5
    assert counter.pid == 1


def test_calls_from_before_a_trainer_was_gone_are_none_of_the_next_one_s() -> None:
    beats = Beats(EPOCH_NS, 1.0, since_ns=5 * NS_PER_S)
    beats.take(steps(*[100] * 5, since_ms=4000, pid=2))
    assert beats.steps.pid == 0
    beats.take(steps(*[100] * 5, since_ms=9000, pid=3))
    assert (beats.steps.pid, beats.steps.count) == (3, 6)


def test_backward_passes_are_counted_until_an_optimizer_is_seen() -> None:
    counter = StepCounter()
    passes = [CountedCall(100 * number * MS, 1, 1, BACKWARD_CALL) for number in range(1, 6)]
    assert sum(counter.take(call) is not None for call in passes) == 4
    later = steps(100, 100, since_ms=1000)
    assert counter.take(later[0]) is not None  # one more
    assert sum(counter.take(call) is not None for call in later[1:]) == 2


def test_readings_are_summed_or_taken_as_rates() -> None:
    beats = Beats(EPOCH_NS, 1.0)
    beats.next(1)
    beats.take(
        [
            Reading(1, "memory", "pid:1", "swap_bytes", 100.0),
            Reading(1, "memory", "pid:2", "swap_bytes", 50.0),
            Reading(1, "memory", "pid:2", "swap_bytes", None),
            Reading(1, "gpu", "gpu:0", "temperature_celsius", 60.0),
            Reading(1, "gpu", "gpu:1", "temperature_celsius", 70.0),
            Reading(0, "cpu", "job", "cpu_seconds_total", 5.0),
            Reading(2 * NS_PER_S, "cpu", "job", "cpu_seconds_total", 8.0),
        ]
    )
    beat = beats.next(2 * NS_PER_S)
    assert beat is not None
    assert beat.readings == {"swapped_bytes": 150.0, "gpu_temperature_celsius": 70.0, "job_cores": 1.5}


def test_a_rate_is_that_of_the_time_between_its_readings() -> None:
    beats = Beats(EPOCH_NS, 30.0)
    beats.next(1)
    found = []
    for number in range(7):  # every 40 s, in which two cores are used
        beats.take([Reading(40 * number * NS_PER_S, "cpu", "job", "cpu_seconds_total", 80.0 * number)])
        for later_s in (20, 39):
            if (beat := beats.next((40 * number + later_s) * NS_PER_S)) is not None:
                found.append(beat.readings.get("job_cores"))
    assert set(found) == {2.0, None}


def memory(time_ns: int, anonymous: dict[int, float], shared: float, files: float) -> list[Reading]:
    """A sample of processes that map the same shared memory, and the same files."""
    return [
        Reading(time_ns, "memory", f"pid:{pid}", name, value)
        for pid, own in anonymous.items()
        for name, value in (
            ("rss_bytes", own + shared + files),
            ("anonymous_bytes", own),
            ("shared_memory_bytes", shared),
        )
    ]


def test_memory_of_a_job_is_what_its_processes_hold_and_not_what_they_map() -> None:
    beats = Beats(EPOCH_NS, 1.0)
    beats.next(1)
    beats.take(memory(1, {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}, shared=7.0, files=1e9))
    assert beats.end(2).readings == {"job_memory_bytes": 107.0}


def test_who_has_ended_holds_no_memory_any_more() -> None:
    beats = Beats(EPOCH_NS, 300.0)
    beats.next(1)
    for number in range(10):  # of each epoch another worker
        beats.take(memory(number, {1: 10.0, 100 + number: 20.0}, shared=0.0, files=0.0))
    assert beats.end(11).readings == {"job_memory_bytes": 30.0}
    assert beats.end(12).readings == {"job_memory_bytes": 30.0}


def test_what_is_not_read_of_memory_is_no_zero() -> None:
    beats = Beats(EPOCH_NS, 1.0)
    beats.take([Reading(1, "memory", "pid:1", "rss_bytes", 5.0), Reading(1, "memory", "pid:1", "anonymous_bytes", 4.0)])
    assert beats.end(2).readings == {}


def test_the_least_room_is_what_is_left() -> None:
    beats = Beats(EPOCH_NS, 1.0)
    rooms = {"host": 1e12, "cgroup:/": 4e11, "cgroup:/pods/job": 6e9}
    beats.take([Reading(1, "memory", subject, "memory_available_bytes", room) for subject, room in rooms.items()])
    assert beats.end(2).readings == {"memory_available_bytes": 6e9}
