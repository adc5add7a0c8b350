"""Steps with their parts kept apart, against steps as they are: what overlaps, what does not, and who is slower."""

import pytest

from perfdoctor.metrics.overlap import device_parts, measure_longer, measure_overlap, serialised_parts, summary
from perfdoctor.recording.schema import Mark
from perfdoctor.timeline.steps import Steps
from tests.builders.marks import Script, with_tracks


def observed(step_ms: float) -> Script:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(5):
        script.call("forward", step_ms, 3)
        script.ends()
    return script


def serialised(data_ms: float, wait_ms: float = 7) -> Script:
    """Four steps of a rank that waits for the others before and after each phase, which count for nothing."""
    script = Script()
    script.now = 10**12
    script.mark("begin", "serialised")
    for _ in range(4):
        for what, ms in (("data", data_ms), ("forward", 20), ("backward", 30), ("optimizer", 10)):
            script.call("rank wait", wait_ms)
            script.mark("begin", what, 3)
            script.wait(ms)
            script.call("rank wait", wait_ms)
            script.mark("end", what)
        script.call("rank wait", wait_ms)
        script.ends()
    script.mark("end", "serialised")
    return script


def steps(step_ms: float, script: Script, track: str = "serialised") -> Steps:
    return Steps(with_tracks({"": observed(step_ms).marks, track: script.marks}))


def test_waits_count_for_nothing_and_parts_sum_to_the_step() -> None:
    parts = serialised_parts(steps(80, serialised(40)))
    assert parts is not None
    assert parts.count == 4
    means = {"data": 0.040, "backward": 0.030, "forward": 0.020, "optimizer": 0.010}
    assert dict(parts.phases) == pytest.approx(means)
    assert parts.step_s == pytest.approx(parts.sum_s) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("step_ms", "overlap", "exposed"), [(100, 0.0, 0.040), (80, 0.2, 0.020), (60, 0.4, 0.0), (130, 0.0, 0.040)]
)
def test_what_the_step_saves_is_hidden(step_ms: float, overlap: float, exposed: float) -> None:
    told = summary(steps(step_ms, serialised(40)))["serialised"]
    assert told["overlap"] == pytest.approx(overlap)
    assert told["phases"]["data"]["exposed_s"] == pytest.approx(exposed)
    numbers = measure_overlap({0: steps(step_ms, serialised(40))})
    assert measure_longer({0: steps(step_ms, serialised(40))}) == {}, "one rank is slower than nobody"
    assert numbers["overlap"].value == pytest.approx(overlap)
    assert numbers["exposed_data"].value == pytest.approx(1000 * exposed / step_ms, abs=1e-3)
    assert numbers["exposed_rest"].value == 0
    assert set(numbers) == {"overlap", "exposed_data", "exposed_rest"}


def test_the_slower_rank_is_told_by_its_phase() -> None:
    longer = measure_longer({0: steps(100, serialised(10)), 1: steps(100, serialised(40))})
    assert 0 not in longer
    assert longer[1].value == "data: 40 ms, at most 10 ms in the others"
    assert longer[1].name.startswith("what takes rank 1 longer ")


def test_a_step_that_was_cut_short_does_not_count() -> None:
    script = serialised(40)
    cut = [mark for mark in script.marks if mark.time_ns < script.marks[-10].time_ns]
    script.marks = [*cut, Mark(cut[-1].time_ns + 1, 1, "end", "serialised", 3)]
    parts = serialised_parts(steps(100, script))
    assert parts is not None
    assert parts.count == 3


def test_the_devices_track_counts_its_timed_steps_only() -> None:
    script = Script()
    for pause in (0, 500):
        script.wait(pause)
        script.mark("device point", "step", 1)
        for _ in range(2):
            for what, ms in (("forward", 20), ("backward", 30)):
                script.mark("device begin", what, 3)
                script.wait(ms)
                script.mark("device end", what)
            script.mark("device point", "step")
    parts = device_parts(steps(100, script, "device"))
    assert parts is not None
    assert parts.count == 4
    assert dict(parts.phases) == pytest.approx({"backward": 0.030, "forward": 0.020})


def test_nothing_is_told_where_nothing_was_serialised() -> None:
    plain = Steps(with_tracks({"": observed(50).marks}))
    assert summary(plain) == {}
    assert measure_overlap({0: plain}) == {}
