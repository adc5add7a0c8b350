"""How much of the time goes into what is made in each step of what never changes."""

from collections.abc import Sequence

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_detours import CostlyDetour
from perfdoctor.metrics.unchanged import find_unchanged
from perfdoctor.recording.own_source import SourceGiven, SourceUnchanged
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

FILE, TORCH = "/job/train.py", "/v/lib/python3.11/site-packages/torch"
CALL = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
LOOP, NET, CONV = Frame(FILE, "main", 50), Frame(FILE, "Net.forward", 30), Frame(FILE, "Conv.forward", 20)
HELPER, LAYER = Frame(FILE, "normalise", 5), Frame(FILE, "Conv.forward", 21)
AGAIN, ELSE = (LOOP, CALL, NET, CALL, CONV, HELPER), (LOOP, CALL, NET, CALL, LAYER)
OWN = {"cpu.python_overhead": {f"{FILE}:5 normalise": 1.0}, "cpu.model_compute": {f"{FILE}:21 Conv.forward": 3.0}}
MADE = SourceUnchanged(FILE, 20, 20, "", "1:edges", "normalise(edges, n)", "id(edges)", "adj", "forward")
GIVEN = (SourceGiven(FILE, 50, 50, "model", "0 1="), SourceGiven(FILE, 30, 30, "conv", "0 1=1:edges"))


def found(
    *stacks: tuple[Frame, ...], made: Sequence[SourceUnchanged] = (MADE,), given: Sequence[SourceGiven] = GIVEN
) -> list[CostlyDetour]:
    seen = Stacks.read(jobs.stacks(1, *stacks, times=300, every_s=0.01))
    return list(find_unchanged(seen, [1], made, given, OWN, 1.0))


def test_what_never_changes_is_followed_from_the_loop_through_what_it_calls() -> None:
    [one] = found(AGAIN, ELSE)
    assert one.share == pytest.approx(0.5, abs=0.02)
    assert (one.line, one.cause) == (f"{FILE}:20 Conv.forward", "cpu.python_overhead")
    assert one.lines == {f"{FILE}:5 normalise"}
    assert one.pieces == (("normalise(edges, n)", "id(edges)", "adj"),)
    assert not found(ELSE)


@pytest.mark.parametrize(
    ("loop", "net", "is_same"),
    [
        ("0 1=", "0 1=1:edges", True),
        ("0 edges=", "0 1=1:edges", True),  # by name
        ("0 1=", "0 edges=1:edges", True),
        ("0 1=", "0 1=", True),  # of the layer's own
        ("0 1", "0 1=1:edges", False),  # each batch has its own
        ("0=", "0 1=1:edges", False),
        ("0= 1", "0 1=0:x,1:edges", False),
        ("0= 1=", "0 1=0:x,1:edges", True),
        ("0 1=", "0 1", False),
        ("0 1=", "0 2=1:edges", False),
    ],
)
def test_each_call_has_to_be_given_what_never_changes(loop: str, net: str, *, is_same: bool) -> None:
    given = (SourceGiven(FILE, 50, 50, "model", loop), SourceGiven(FILE, 30, 30, "conv", net))
    assert bool(found(AGAIN, ELSE, given=given)) == is_same


def test_all_calls_at_a_line_that_may_be_the_one_have_to_be_given_it() -> None:
    norm = SourceGiven(FILE, 30, 30, "norm", "0")  # has no such argument at all
    other = SourceGiven(FILE, 30, 30, "other", "0 1")
    assert found(AGAIN, ELSE, given=(*GIVEN, norm))
    assert not found(AGAIN, ELSE, given=(*GIVEN, other))


def test_only_the_named_function_is_called_by_its_name() -> None:
    step = Frame(FILE, "Net.helper", 25)
    given = (GIVEN[0], SourceGiven(FILE, 30, 30, "other", "0 1=1:edges"))
    made = [MADE._replace(line=25, last_line=25, function="helper")]
    assert not found((LOOP, CALL, NET, step), ELSE, made=made, given=given)
    assert found((LOOP, CALL, NET, step), ELSE, made=made, given=(GIVEN[0], given[1]._replace(callee="helper")))


def test_a_library_in_between_hands_on_something_else() -> None:
    mapped = (LOOP, CALL, NET, Frame("/v/lib/python3.11/site-packages/joblib/parallel.py", "call", 1), CONV, HELPER)
    assert not found(mapped, ELSE)


def test_what_needs_nothing_is_the_same_wherever_it_is_called_from() -> None:
    assert found(AGAIN, ELSE, made=[MADE._replace(needs="")], given=())


def test_a_part_of_a_statement_is_known_by_what_it_calls() -> None:
    part = MADE._replace(callee="normalise", put="")
    [one] = found(AGAIN, (*AGAIN[:-1], Frame(FILE, "other", 9)), ELSE, made=[part])
    assert one.share == pytest.approx(1 / 3, abs=0.02)


def test_the_start_of_a_job_is_no_step() -> None:
    assert not found((Frame(FILE, "main", 40), HELPER), made=[MADE._replace(line=40, last_line=40, needs="")])
