"""What a loop of the job's own does above the line that calls the model prepares the input; below it comes the rest."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.code_location import AFTERWARDS, PREPARES, locate, with_loop_positions

MODULE = Frame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1789)
OPTIMIZER = Frame("/env/lib/python3.11/site-packages/torch/optim/sgd.py", "SGD.step", 120)


def main(line: int) -> Frame:
    return Frame("/home/me/train.py", "main", line)


def own(line: int, function: str = "batches") -> Frame:
    return Frame("/home/me/data.py", function, line)


def seen(*stacks: tuple[tuple[Frame, ...], int]) -> dict[tuple[Frame, ...], str]:
    """The details that stacks are given which were seen so often."""
    frames = [stack for stack, _ in stacks]
    amounts = {number: float(times) for number, (_, times) in enumerate(stacks)}
    found = with_loop_positions(frames, [locate(stack) for stack in frames], [amounts])
    return {stack: location.detail for stack, location in zip(frames, found, strict=True)}


def test_above_the_call_is_input_and_below_is_not() -> None:
    loop = (main(20), own(7)), (main(22), MODULE), (main(24), OPTIMIZER), (main(25), own(40))
    details = seen(*((stack, 5) for stack in loop))
    assert list(details.values()) == [PREPARES, "", "", AFTERWARDS]


def test_the_innermost_function_that_both_share_decides() -> None:
    step = Frame("/home/me/train.py", "train_step", 8)
    details = seen(
        ((main(20), own(7)), 5),
        ((main(21), step, MODULE), 5),
        ((main(21), Frame("/home/me/train.py", "train_step", 7), own(3, "augment")), 5),
        ((main(21), Frame("/home/me/train.py", "train_step", 9), own(3, "metrics")), 5),
    )
    assert list(details.values()) == [PREPARES, "", PREPARES, AFTERWARDS]


def test_a_validation_at_the_top_of_the_loop_is_no_call_of_the_models_training() -> None:
    validation = (main(18), own(3, "validate"), MODULE)
    often, seldom = ({validation: times, (main(20), own(7)): 5, (main(22), MODULE): 40} for times in (20, 1))
    assert seen(*seldom.items())[main(20), own(7)] == PREPARES
    assert seen(*often.items())[main(20), own(7)] == AFTERWARDS


def test_the_same_line_tells_nothing() -> None:
    assert seen(((main(20), own(7)), 5), ((main(20), MODULE), 5))[main(20), own(7)] == ""


def test_lines_of_other_functions_and_libraries_are_not_compared() -> None:
    library = "/env/lib/python3.11/site-packages/trainer/loop.py"
    details = seen(
        ((main(20), Frame(library, "run", 5), own(7)), 5),
        ((main(20), Frame(library, "run", 9), own(30, "step"), MODULE), 5),
        ((main(20), Frame(library, "other", 5), own(7)), 5),
    )
    assert list(details.values()) == ["", "", ""]


@pytest.mark.parametrize("inner", [OPTIMIZER, Frame("/usr/lib/python3.11/logging/__init__.py", "emit", 1)])
def test_what_has_a_phase_keeps_it(inner: Frame) -> None:
    assert seen(((main(20), inner), 5), ((main(22), MODULE), 5))[main(20), inner] == ""
