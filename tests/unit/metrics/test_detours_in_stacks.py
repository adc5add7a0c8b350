"""What torch does again, or without need, by its frames below the job's own lines."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.detours_in_stacks import find_in_stacks
from perfdoctor.metrics.own_detours import CostlyDetour
from perfdoctor.recording.own_source import SourceDetour, SourceLoop
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

FILE, SITE = "/job/train.py", "/v/lib/python3.11/site-packages"
TORCH, LIB = f"{SITE}/torch", "/usr/lib/python3.11"
LOOP, FORWARD = Frame(FILE, "main", 20), Frame(FILE, "Net.forward", 30)
CALL = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
BACKWARD = (LOOP, Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 1))
PREPARES = Frame(FILE, "main", 19)


def find(*stack: Frame, loops: tuple[SourceLoop, ...] = ()) -> list[CostlyDetour]:
    """What is found in a job that is in a stack for half of its time, and trains for the rest."""
    stacks = Stacks.read(jobs.stacks(1, stack, (LOOP, CALL, FORWARD), stack, BACKWARD, times=300, every_s=0.01))
    return list(find_in_stacks(stacks, [1], loops, {"cpu.model_compute": {f"{FILE}:30 Net.forward": 1.0}}, 0.5))


def test_layers_that_are_made_in_each_step_are_told_with_their_class() -> None:
    made = (Frame(FILE, "Loss.__init__", 5), Frame(f"{TORCH}/nn/modules/linear.py", "Linear.__init__", 9))
    [found] = find(LOOP, CALL, FORWARD, *made, Frame(f"{TORCH}/nn/init.py", "kaiming_uniform_", 4))
    assert (found.way, found.line) == ("modules_made", f"{FILE}:30 Net.forward")
    assert [piece.kept for piece in found.pieces] == ["Loss"]
    assert found.share == pytest.approx(0.25, abs=0.02)


def test_a_model_that_is_made_at_the_start_is_made_once() -> None:
    made = (Frame(FILE, "Net.__init__", 5), Frame(f"{TORCH}/nn/modules/linear.py", "Linear.__init__", 9))
    stacks = Stacks.read(jobs.stacks(1, (Frame(FILE, "main", 2), *made), times=300, every_s=0.01))
    assert not list(find_in_stacks(stacks, [1], [], {}, 1.0))


def test_checks_of_distributions_are_told_where_they_are_asked_for() -> None:
    folder = f"{TORCH}/distributions"
    checks = Frame(f"{folder}/normal.py", "Normal.__init__", 9), Frame(f"{folder}/distribution.py", "__init__", 60)
    [found] = find(LOOP, CALL, FORWARD, *checks)
    assert (found.way, found.line) == ("checked", f"{FILE}:30 Net.forward")
    assert not find(LOOP, CALL, FORWARD, Frame(f"{folder}/normal.py", "Normal.rsample", 9))


def test_text_that_is_made_of_tensors_is_told_at_the_line_that_asks_for_it() -> None:
    text = Frame(f"{TORCH}/_tensor.py", "Tensor.__format__", 9), Frame(f"{TORCH}/_tensor_str.py", "_str", 7)
    [found] = find(LOOP, Frame(FILE, "Net.on_after_backward", 40), *text)
    assert (found.way, found.line) == ("formatted", f"{FILE}:40 Net.on_after_backward")


@pytest.mark.parametrize(("activation", "told"), [("NewGELUActivation", True), ("QuickGELUActivation", False)])
def test_an_activation_that_is_written_out_is_told_where_the_model_is_called(activation: str, told: bool) -> None:
    ways = [
        one.way for one in find(LOOP, CALL, Frame(f"{SITE}/transformers/activations.py", f"{activation}.forward", 66))
    ]
    assert ways == (["activation"] if told else [])


def test_a_manager_that_is_asked_for_each_item_and_a_log_that_is_begun_anew_are_told() -> None:
    folder = f"{LIB}/multiprocessing"
    asked = Frame(f"{folder}/managers.py", "BaseProxy._callmethod", 9), Frame(f"{folder}/connection.py", "recv", 9)
    rotated = Frame(f"{LIB}/logging/handlers.py", "RotatingFileHandler.doRollover", 9)
    assert [one.way for one in find(LOOP, *asked)] == ["proxied"]
    assert [one.way for one in find(LOOP, Frame(f"{LIB}/logging/__init__.py", "Logger.info", 9), rotated)] == [
        "rotated"
    ]


def test_text_is_generated_without_a_cache_where_the_source_says_so_and_none_is_seen() -> None:
    def found(*below: Frame, says: bool = True) -> list[str]:
        stack = LOOP, Frame(f"{SITE}/transformers/generation/utils.py", "GenerationMixin._sample", 9), CALL, *below
        written = [SourceDetour(FILE, 5, 5, "uncached", "use_cache=False", "", "", "<module>")] if says else []
        stacks = Stacks.read(jobs.stacks(1, stack, (LOOP, CALL, FORWARD), stack, BACKWARD, times=300, every_s=0.01))
        own = {"cpu.model_compute": {f"{FILE}:20 main": 1.0}}
        return [one.way for one in find_in_stacks(stacks, [1], (), own, 1.0, written)]

    assert found() == ["uncached"]
    assert found(says=False) == []
    assert found(Frame(f"{SITE}/transformers/cache_utils.py", "DynamicCache.update", 9)) == []


@pytest.mark.parametrize(
    ("stack", "again"),
    [
        ((LOOP, CALL, FORWARD), True),
        ((LOOP, CALL, FORWARD, CALL, Frame(FILE, "Cell.forward", 50)), True),  # a layer that the loop calls
        ((LOOP, CALL, Frame(FILE, "Net.forward", 33)), False),  # beside the loop
        ((LOOP, CALL), False),  # the training loop goes around all of it
    ],
)
def test_weights_are_computed_again_where_a_loop_of_the_forward_pass_asks(
    stack: tuple[Frame, ...], again: bool
) -> None:
    computes = Frame(f"{TORCH}/nn/utils/parametrize.py", "get_parametrized", 9)
    loops = SourceLoop(FILE, 29, 31, True), SourceLoop(FILE, 19, 21, True)
    assert [one.way for one in find(*stack, computes, loops=loops)] == ["computed_again"] * again
