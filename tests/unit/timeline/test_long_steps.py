"""Which steps are long, by how much, and which samples stand for that."""

import numpy as np
import pytest

from perfdoctor.timeline.long_steps import excess, longest_ordinary, weigh_excess
from perfdoctor.timeline.steps import Steps
from tests.builders.marks import MS, Script


def loop(steps: int, *, every: int = 0, saving_ms: float = 0.0, epoch: int = 0) -> Steps:
    """Steps of 28 ms, in some of which state is saved after the optimizer's step, or workers are started."""
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for number in range(steps):
        if epoch and number % epoch == 0:
            script.call("loader start", 200)
        script.call("data", 10)
        script.train()
        if every and number % every == every - 1:
            script.wait(saving_ms)
        script.ends()
    return script.steps()


def samples(steps: Steps, every_ms: float = 20.0) -> tuple[np.ndarray, np.ndarray]:
    """When samples are taken, and the borders of what they stand for."""
    edges = np.arange(0, steps.all[-1].end_ns + every_ms * MS, every_ms * MS)
    return ((edges[1:] + edges[:-1]) / 2).astype(np.int64), edges


def test_the_excess_of_long_steps_is_theirs_alone() -> None:
    lengths = np.array([100.0, 104.0, 96.0, 102.0, 98.0, 100.0, 700.0])
    assert excess(lengths).tolist() == [0, 0, 0, 0, 0, 0, 600]
    # Median 100, median absolute deviation 2.
    assert longest_ordinary(lengths) == pytest.approx(100 + 3 * 1.4826 * 2)
    assert excess(np.zeros(0)).tolist() == []
    assert longest_ordinary(np.zeros(0)) == 0


def test_steps_that_scatter_have_no_excess() -> None:
    lengths = 100 + np.random.default_rng(1).normal(0, 8, 400)
    assert excess(lengths).sum() < 0.002 * lengths.sum()


def test_samples_in_what_is_longer_than_usual_stand_for_it() -> None:
    steps = loop(200, every=50, saving_ms=1000)
    times, edges = samples(steps)
    seconds = weigh_excess(steps, times, edges)
    assert seconds.sum() == pytest.approx(4.0, rel=0.01)
    parts = {steps.at(int(time)).name for time in times[seconds > 0]}
    assert parts == {"other"}
    long = [step for step in steps.all if step.end_ns - step.from_ns > 100 * MS]
    assert len(long) == 4
    assert all(any(one.from_ns <= time < one.end_ns for one in long) for time in times[seconds > 0])


def test_epochs_that_start_their_workers_are_long_in_that_part() -> None:
    steps = loop(120, epoch=30)
    times, edges = samples(steps)
    seconds = weigh_excess(steps, times, edges)
    assert seconds.sum() == pytest.approx(0.8, rel=0.02)
    assert {steps.at(int(time)).detail for time in times[seconds > 0]} == {"loader start"}


def test_what_was_not_sampled_goes_to_the_same_part_of_other_long_steps() -> None:
    steps = loop(200, every=50, saving_ms=1000)
    times, edges = samples(steps)
    late = times > times[len(times) // 2]
    seconds = weigh_excess(steps, times[late], np.append(edges[:-1][late], edges[-1]))
    assert seconds.sum() == pytest.approx(4.0, rel=0.01)


def test_where_no_long_step_was_sampled_nothing_stands_for_it() -> None:
    steps = loop(200, every=50, saving_ms=1000)
    times, edges = samples(steps)
    early = times < 900 * MS
    count = int(early.sum())
    assert weigh_excess(steps, times[early], edges[: count + 1]).tolist() == [0.0] * count


def test_without_steps_nothing_is_long() -> None:
    steps = Script().steps()
    assert weigh_excess(steps, np.array([5, 6]), np.array([4.0, 5.5, 7.0])).tolist() == [0.0, 0.0]
