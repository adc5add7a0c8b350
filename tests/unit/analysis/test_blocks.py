"""Blocks of what was watched: they hold all of the time, all of the steps, and the causes of each."""

import numpy as np
import pytest

from perfdoctor.analysis.blocks import KEPT, count_steps, recorded_blocks, traced_blocks
from perfdoctor.attribution.attribute import attribute
from perfdoctor.recording.schema import Mark
from perfdoctor.results.blocks import Block, in_batches
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs
from tests.builders.marks import Script


def test_steps_that_cross_a_border_count_on_both_sides() -> None:
    steps = [(0, 10), (10, 30), (40, 50)]
    assert count_steps(steps, np.array([0.0, 20.0, 45.0, 60.0])).tolist() == [1.5, 1.0, 0.5]


def test_batches_hold_what_the_blocks_held() -> None:
    blocks = [Block(1.0, number / 2, {"a": 0.25, "b": 0.5}) for number in range(7)]
    batches = in_batches(blocks, 3)
    assert [batch.seconds for batch in batches] == [2.0, 2.0, 3.0]
    assert sum(batch.steps or 0.0 for batch in batches) == sum(range(7)) / 2
    assert batches[0].causes == {"a": 0.5, "b": 1.0}
    assert in_batches(blocks, 10) == blocks
    assert in_batches([], 3) == in_batches(blocks, 0) == []


def test_blocks_without_steps_stay_so_together() -> None:
    assert in_batches([Block(1.0, None), Block(1.0, None)], 1) == [Block(2.0, None)]


def watched(marks: list[Mark]) -> JobTimeline:
    """A job that computes for 10 s, and what it marked."""
    job = [*jobs.process(1), *jobs.thread(1, 1, "R", run=1.0)]
    return jobs.timeline([*job, *(mark._replace(time_ns=mark.time_ns + jobs.START) for mark in marks)])


def test_seconds_of_a_recording_have_its_causes() -> None:
    job = watched([])
    accounts = attribute(job)
    blocks = recorded_blocks(job, accounts, traced=False)
    assert [block.steps for block in blocks] == [None] * len(blocks)
    assert sum(block.seconds for block in blocks) == pytest.approx(accounts[0].seconds)
    assert sum(sum(block.causes.values()) for block in blocks) == pytest.approx(accounts[0].seconds)


def trained(steps: int, ms: float) -> list[Mark]:
    """Marks of steps that take 18 ms of training and some of their own."""
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(steps):
        script.train()
        script.wait(ms - 18)
        script.ends()
    script.mark("end", "observed")
    script.mark("end", "scope", 1)
    return script.marks


def test_marked_steps_are_counted_in_their_seconds() -> None:
    job = watched(trained(24, 250))
    blocks = recorded_blocks(job, attribute(job), traced=False)
    observed = job.steps[1]
    assert sum(block.steps or 0.0 for block in blocks) == pytest.approx(len(observed.all))
    assert sum(block.seconds for block in blocks) == pytest.approx(observed.lengths_ns.sum() / 1e9)
    assert [block.steps for block in blocks[1:-1]] == pytest.approx([4.0] * (len(blocks) - 2))
    spent = sum(sum(block.causes.values()) for block in blocks)
    assert spent == pytest.approx(observed.lengths_ns.sum() / 1e9, rel=0.01)


def test_where_the_causes_are_those_of_a_trace_they_stand_apart() -> None:
    job = watched(trained(24, 250))
    blocks = recorded_blocks(job, attribute(job), traced=True)
    assert all((block.steps is None) == bool(block.causes) for block in blocks)
    assert {block.steps is None for block in blocks} == {True, False}


def test_traced_steps_stand_where_none_were_marked() -> None:
    job = watched([])
    blocks = recorded_blocks(job, attribute(job), traced=False, traced_ns=[20_000_000, 30_000_000])
    assert [(block.seconds, block.steps) for block in blocks[:2]] == [(0.02, 1.0), (0.03, 1.0)]
    assert not any(block.causes for block in blocks[:2])
    assert all(block.steps is None and block.causes for block in blocks[2:])


def test_a_long_trace_is_kept_in_few_blocks() -> None:
    blocks = traced_blocks([10_000_000] * 1000, [])
    assert len(blocks) == KEPT
    assert sum(block.steps or 0.0 for block in blocks) == 1000
    assert sum(block.seconds for block in blocks) == pytest.approx(10.0)
