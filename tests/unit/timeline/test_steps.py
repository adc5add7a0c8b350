"""From marks to steps: what counts as a step, what lies between, and that all of it adds up."""

import numpy as np
import pytest

from perfdoctor.analysis.coverage import passes_per_step
from perfdoctor.recording.schema import Mark
from perfdoctor.timeline.marks import in_order
from tests.builders.marks import MS, Script


def observed_loop(epochs: int, *, validate: bool) -> Script:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(epochs):
        script.call("loader start", 2)
        for _ in range(4):
            script.call("data", 10)
            script.train()
            script.ends()
        script.call("data", 1, end=2)
        if validate:
            script.validate()
    script.mark("end", "scope", 1)
    return script


@pytest.mark.parametrize(("workers", "waits", "last"), [(1, "loader wait", "loader start"), (0, "fetch", "fetch")])
def test_a_loader_that_has_no_more_ends_its_workers(workers: int, waits: str, last: str) -> None:
    script = Script()
    script.mark("begin", "scope")
    script.call("loader start", 2)
    script.call("data", 10, begin=workers)
    script.train()
    script.call("data", 20, begin=workers, end=2)
    script.mark("end", "scope", 1)
    data = [segment for segment in in_order(script.marks).segments if segment.phase == "data"]
    assert [segment.detail for segment in data] == ["loader start", waits, last]


def test_phases_of_a_step() -> None:
    told = observed_loop(1, validate=False).steps().summary()
    assert told["count"] == 4
    assert told["median_s"] == pytest.approx(0.028)
    means = {name: phase["mean_s"] for name, phase in told["phases"].items()}
    expected = {"forward": 4, "loss": 1, "backward": 8, "other": 3, "optimizer": 2, "data": 10.5}
    assert {name: value * 1000 for name, value in means.items()} == pytest.approx(expected)
    assert sum(means.values()) == pytest.approx(told["mean_s"])


def test_validation_is_not_charged() -> None:
    told = observed_loop(5, validate=True).steps().summary()
    assert told["count"] == 20
    # In the first step of an epoch: the loader's start.
    assert told["mean_s"] == pytest.approx(0.0285)
    assert told["outside_s"] == pytest.approx(4 * 0.030)


def test_forward_of_a_teacher_is_a_part_of_the_step() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(6):
        script.call("data", 10)
        script.call("forward", 3, 0)
        script.call("data", 1)
        script.train()
        script.ends()
    told = script.steps().summary()
    assert told["count"] == 6
    assert told["mean_s"] == pytest.approx(0.032)
    assert told["outside_s"] == 0


def test_an_evaluation_without_a_loader_ends_where_training_is_called() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for number in range(6):
        if number % 3 == 2:
            script.call("forward", 5, 0)
            script.call("forward", 5, 0)
        script.train()
        script.ends()
    steps = script.steps()
    assert steps.summary()["mean_s"] == pytest.approx(0.018)
    assert steps.evaluated_ns == 20 * MS
    assert [steps.evaluates_at(time * MS) for time in (10, 38, 50)] == [False, True, False]
    edges = np.array([0, 40, 200], dtype=np.float64) * MS
    assert steps.evaluated_s(edges).tolist() == pytest.approx([0.004, 0.016])


def test_what_runs_in_a_closure_is_not_the_optimizers() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(5):
        script.call("data", 10)
        script.mark("begin", "optimizer")
        for _ in range(2):
            script.mark("begin", "closure")
            script.wait(3)
            script.call("forward", 4, 3)
            script.wait(1)
            script.call("backward", 8)
            script.mark("end", "closure")
            script.wait(2)
        script.mark("end", "optimizer")
        script.ends()
    told = script.steps().summary()
    means = {name: phase["mean_s"] * 1000 for name, phase in told["phases"].items()}
    assert means == pytest.approx({"data": 10, "other": 6, "forward": 8, "loss": 2, "backward": 16, "optimizer": 4})


def test_only_what_the_script_itself_moves_is_a_transfer() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "observed")
    for _ in range(5):
        script.call("data", 10)
        script.call("transfer", 3)
        script.mark("begin", "forward", 3)
        script.call("transfer", 2)
        script.mark("end", "forward")
        script.mark("begin", "optimizer")
        script.mark("begin", "closure")
        script.call("transfer", 5)
        script.mark("end", "closure")
        script.mark("end", "optimizer")
        script.mark("begin", "own: augment")
        script.wait(1)
        script.call("transfer", 1)
        script.mark("end", "own: augment")
        script.ends()
    told = script.steps().summary()
    means = {name: phase["mean_s"] * 1000 for name, phase in told["phases"].items()}
    assert means == pytest.approx({"data": 10, "transfer": 9, "forward": 2, "augment": 1})


def test_the_first_batch_of_new_workers_ends_their_start() -> None:
    """Even where the loop asks for the second one at once, and is hardly ever seen outside of the loader."""
    script = Script()
    script.mark("begin", "scope")
    script.call("loader start", 30, begin=1)
    script.wait(1)
    for _ in range(2):
        script.call("data", 20, begin=1)
    for _ in range(2):
        script.train()
        script.ends()
        script.call("data", 20, begin=1)
    steps = script.steps()
    assert steps.first_batch_ns(5 * MS) == 51 * MS
    assert steps.first_batch_ns(45 * MS) == 51 * MS
    assert steps.first_batch_ns(52 * MS) == 71 * MS
    assert steps.first_batch_ns(72 * MS) == 72 * MS, "it trains"
    assert steps.first_batch_ns(10_000 * MS) == 10_000 * MS


def test_what_comes_between_two_blocks_is_the_next_batch() -> None:
    script = Script()
    script.mark("begin", "scope")
    for number in range(5):
        script.train()
        script.ends()
        script.mark("end", "scope")
        if not number:
            script.mark("begin", "observed")
        script.wait(6)
        script.mark("begin", "scope")
    told = script.steps().summary()
    assert told["count"] == 4
    assert told["phases"]["data"]["median_s"] == pytest.approx(0.006)
    assert told["mean_s"] == pytest.approx(0.024)


def test_time_between_loops_belongs_to_no_step() -> None:
    script = Script()
    script.mark("begin", "observed")
    for _ in range(2):
        script.mark("begin", "scope")
        for _ in range(3):
            script.call("data", 10)
            script.train()
            script.ends()
        script.mark("end", "scope", 1)
        script.wait(500)
    told = script.steps().summary()
    assert told["count"] == 6
    assert told["p95_s"] == pytest.approx(0.028)
    assert told["outside_s"] == pytest.approx(0.5)


def test_call_without_an_end_costs_one_step_only() -> None:
    """An exception in an optimizer's step, caught by the user, leaves no end."""
    script = Script()
    script.mark("begin", "observed")
    for number in range(4):
        script.mark("begin", "scope")
        if number == 1:
            script.mark("begin", "optimizer")
        script.train()
        script.ends()
        script.mark("end", "scope")
    phases = script.steps().summary()["phases"]
    assert phases["forward"]["median_s"] == pytest.approx(0.004)
    assert phases["optimizer"]["median_s"] == pytest.approx(0.002)


def test_recomputed_activations_belong_to_the_backward_pass() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.mark("begin", "backward")
    script.call("forward", 3, 3)
    middle = script.steps().at(1 * MS)
    assert middle is not None
    assert middle.phase == "backward"


def test_samples_share_the_exact_time_of_their_phase() -> None:
    """However the samples fall: here all of them but one meet the data phase."""
    script = observed_loop(10, validate=True)
    steps = script.steps()
    times = np.arange(0, script.now, 7 * MS, dtype=np.int64)
    edges = np.concatenate([times[:1], (times[1:] + times[:-1]) / 2, times[-1:]])
    seconds = steps.weigh(times, edges)
    told = steps.summary()
    assert seconds.sum() == pytest.approx(told["count"] * told["mean_s"])
    in_backward = [getattr(steps.at(int(time)), "phase", "") == "backward" for time in times]
    assert seconds[in_backward].sum() == pytest.approx(40 * 0.008, rel=0.02)


def test_pauses_of_the_collector_are_exact() -> None:
    script = observed_loop(1, validate=False)
    script.marks += [Mark(20 * MS, 1, "begin", "collector", 2), Mark(22 * MS, 1, "end", "collector", 2)]
    script.marks.sort(key=lambda mark: mark.time_ns)
    steps = script.steps()
    assert steps.collecting_at(21 * MS)
    assert not steps.collecting_at(23 * MS)
    assert steps.summary()["collector_s"] == pytest.approx(0.002 / 4)


def test_marks_without_a_complete_step() -> None:
    script = Script()
    script.mark("begin", "scope")
    script.call("forward", 4, 3)
    assert script.steps().summary() == {}
    assert script.steps().at(0) is not None


def _epochs_of(passes: int, *, optimizer: bool = False, loader: bool = False, told: bool = False) -> Script:
    """A ``with`` around each of 4 epochs."""
    script = Script()
    script.mark("begin", "observed")
    for _ in range(4):
        script.mark("begin", "scope")
        for _ in range(passes):
            if loader:
                script.call("data", 1)
            script.call("forward", 4, 3)
            script.call("backward", 8)
            if optimizer:
                script.call("optimizer", 2)
            if told:
                script.ends()
        if not told:
            script.ends()
        script.mark("end", "scope", int(told))
        script.wait(1)
    return script


def test_an_epoch_that_counts_as_one_step_is_told() -> None:
    assert passes_per_step(_epochs_of(9).steps()) == 9
    assert passes_per_step(_epochs_of(1).steps()) == 1


@pytest.mark.parametrize("known", ["optimizer", "loader", "told"])
def test_steps_that_something_tells_apart_are_not_doubted(known: str) -> None:
    assert passes_per_step(_epochs_of(9, **{known: True}).steps()) == 0
