"""Sets of time, against a slow count of single moments."""

import numpy as np
import pytest

from perfdoctor.traces.intervals import Intervals


def some(random: np.random.Generator) -> Intervals:
    count = int(random.integers(0, 12))
    start = random.integers(0, 90, count)
    return Intervals.union(start, start + random.integers(0, 12, count))


def moments(times: Intervals) -> set[int]:
    return {moment for start, end in zip(times.start, times.end, strict=True) for moment in range(start, end)}


@pytest.mark.parametrize("seed", range(40))
def test_sets_of_time_are_sets(seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = some(random), some(random)
    assert moments(one | other) == moments(one) | moments(other)
    assert moments(one & other) == moments(one) & moments(other)
    assert moments(one - other) == moments(one) - moments(other)
    assert one.total == len(moments(one))
    start = random.integers(0, 100, 20)
    end = start + random.integers(0, 40, 20)
    slow = [len(moments(one) & set(range(low, high))) for low, high in zip(start, end, strict=True)]
    assert one.within(start, end).tolist() == slow


@pytest.mark.parametrize("seed", range(10))
def test_intervals_do_not_touch(seed: int) -> None:
    random = np.random.default_rng(seed)
    times = some(random) | some(random)
    assert (times.start[1:] > times.end[:-1]).all()
    assert (times.end > times.start).all()


def test_near_intervals_are_joined_if_asked() -> None:
    start, end = np.array([0, 15, 40]), np.array([10, 20, 50])
    joined = Intervals.union(start, end, joining=5)
    assert (joined.start.tolist(), joined.end.tolist()) == ([0, 40], [20, 50])
