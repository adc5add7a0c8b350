"""From calls that were counted from outside to steps: what ends one, and what is not called one."""

import pytest

from perfdoctor.diagnosis import BACKWARD_PASSES, OPTIMIZER_STEPS
from perfdoctor.recording.schema import BACKWARD_CALL, LOST_CALLS, OPTIMIZER_CALL, CountedCall
from perfdoctor.timeline.counted_steps import read_counted, step_ends

WHAT = {"b": BACKWARD_CALL, "o": OPTIMIZER_CALL, "-": LOST_CALLS}


def calls(made: str, *, pid: int = 1, tid: int = 1) -> list[CountedCall]:
    """One call each ms: ``b`` a backward pass, ``o`` an optimizer's step, ``-`` lost ones, a space nothing."""
    return [
        CountedCall(1_000_000 * at, pid, tid, WHAT[call]) for at, call in enumerate(made, start=1) if not call.isspace()
    ]


@pytest.mark.parametrize(
    ("made", "lengths_ms"),
    [
        ("bo bo  bo bo", [3, 4, 3]),  # an ordinary loop
        ("b b bo b b bo b b bo", [7, 7]),  # gradients of several passes
        ("boo boo boo", [4, 4]),  # an optimizer for each group of parameters
        ("bo b o bo b o", [4, 3, 4]),  # two that take turns
        ("bb o bb o bb o", [5, 5]),  # a second derivative
        ("o bo bo bo", [3, 3]),  # the first one ends a step that began before the watching
        ("oooo", [1, 1, 1]),  # gradients that torch.autograd did not make
    ],
)
def test_a_step_ends_where_weights_are_updated(made: str, lengths_ms: list[int]) -> None:
    counted = read_counted(calls(made))[1]
    assert counted.unit == OPTIMIZER_STEPS
    assert (counted.steps.lengths_ns / 1_000_000).tolist() == lengths_ms


def test_without_an_optimizer_passes_are_counted_and_not_called_steps() -> None:
    made = calls("b b  b b")
    counted = read_counted(made)[1]
    assert counted.unit == BACKWARD_PASSES
    assert (counted.steps.lengths_ns / 1_000_000).tolist() == [2, 3, 2]
    assert step_ends(made) == {}


def test_no_step_reaches_over_calls_that_were_lost() -> None:
    counted = read_counted(calls("bo bo bo - bo bo"))[1]
    assert (counted.steps.lengths_ns / 1_000_000).tolist() == [3, 3, 3]


def test_the_thread_that_makes_most_calls_is_the_one_that_trains() -> None:
    counted = read_counted([*calls("bo bo bo bo"), *calls("b   bo", tid=2)])[1]
    assert (counted.steps.lengths_ns / 1_000_000).tolist() == [3, 3, 3]


def test_processes_are_kept_apart_in_whatever_order_their_calls_come() -> None:
    made = [*calls("bo bo", pid=2), *calls("bo  bo")]
    counted = read_counted(reversed(made))
    assert {pid: one.steps.lengths_ns.tolist() for pid, one in counted.items()} == {1: [4_000_000], 2: [3_000_000]}
    assert step_ends(made) == {1: [2_000_000, 6_000_000], 2: [2_000_000, 5_000_000]}


def test_what_is_told_has_its_unit_and_no_phases() -> None:
    told = read_counted(calls("bo bo  bo"))[1].summary()
    assert told["unit"] == OPTIMIZER_STEPS
    assert told["count"] == 2
    assert told["median_s"] == pytest.approx(0.0035)
    assert told["phases"] == {}
    assert "collector_s" not in told


@pytest.mark.parametrize("made", ["", "b", "bo", "-", "b-o"])
def test_where_no_whole_step_was_seen_nothing_is_told(made: str) -> None:
    assert read_counted(calls(made)) == {}
