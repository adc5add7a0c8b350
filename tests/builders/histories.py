"""Histories of jobs that were never watched: beats of steps whose length a test says, at any time of the day."""

import random
from collections.abc import Callable, Iterator

from perfdoctor.monitor.detector import Detector
from perfdoctor.results.history import Beat, Incident, Line, LongStep

BEGAN = 1_800_000_000.0
BEAT_S = 30.0
HOUR = 3600.0


def beats(
    hours: float,
    step_s: Callable[[float], float] = lambda _: 0.1,
    *,
    noise: float = 0.03,
    memory: float = 0.0,
    readings: Callable[[float], dict[str, float]] = lambda _: {},
    seed: int = 1,
) -> Iterator[Beat]:
    """The beats of some hours, from ``BEGAN`` on.

    Args:
        hours: how many.
        step_s: seconds per step at an instant, in seconds since the beginning; infinite where none is made.
        noise: by what fraction beats differ.
        memory: how much a beat remembers of the one before, 0 to less than 1.
        readings: what was read at an instant.
        seed: of the noise.
    """
    chance, state, count = random.Random(seed), 0.0, 0
    for number in range(int(hours * HOUR / BEAT_S)):
        state = memory * state + (1 - memory**2) ** 0.5 * chance.gauss(0, noise)
        length = step_s(number * BEAT_S) * (1 + state)
        steps = int(BEAT_S / length)
        count += steps
        yield Beat(BEGAN + number * BEAT_S, BEAT_S, steps, steps * length, readings=readings(number * BEAT_S))


def with_long_steps(made: Iterator[Beat], at: Callable[[Beat, int], float]) -> Iterator[Beat]:
    """The same with a long step in some beats.

    Args:
        made: beats without.
        at: by how many seconds a step of a beat is longer, by how many steps there were before; 0 for none.
    """
    count = 0
    for beat in made:
        longer_s = at(beat, count)
        if longer_s:
            steps = max(1, round(beat.steps * (1 - longer_s / BEAT_S)))
            ordinary = beat.steps_s / beat.steps
            long = (LongStep(beat.began + 1, longer_s, count),)
            beat = Beat(beat.began, BEAT_S, steps, steps * ordinary + longer_s, long, beat.readings)
        count += beat.steps
        yield beat


def told(lines: Iterator[Line] | list[Line]) -> list[Incident]:
    """What a detector says of a history in the end, incident by incident."""
    detector = Detector()
    for line in lines:
        detector.take(line)
    return list(detector.incidents.values())
