"""Above the line that calls the model, a loop of the job's own prepares the input; below it comes the rest.

In the midst of a pass torch calls hooks.
"""

from dataclasses import replace

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceCall, SourceLoop, SourceReadOut, SourceResult
from perfdoctor.timeline.code_location import (
    AFTERWARDS,
    HOOK,
    MAKES_LAYERS,
    PREPARES,
    CodeLocation,
    is_beside,
    location_of,
)
from perfdoctor.timeline.loop_positions import with_calls_below, with_hooks, with_loop_positions

PACKAGES = "/env/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch"
PYTHON = "/usr/lib/python3.11"
LIGHTNING = f"{PACKAGES}/lightning"
MAIN = Frame("/home/me/train.py", "<module>", 10)
MODULE = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1789)
OPTIMIZER = Frame(f"{TORCH}/optim/sgd.py", "SGD.step", 120)


def main(line: int) -> Frame:
    return Frame("/home/me/train.py", "main", line)


def own(line: int, function: str = "batches") -> Frame:
    return Frame("/home/me/data.py", function, line)


def seen(*stacks: tuple[tuple[Frame, ...], int]) -> dict[tuple[Frame, ...], str]:
    """The details that stacks are given which were seen so often."""
    frames = [stack for stack, _ in stacks]
    amounts = {number: float(times) for number, (_, times) in enumerate(stacks)}
    found = with_loop_positions(frames, [location_of(stack) for stack in frames], [amounts])
    return {stack: location.detail for stack, location in zip(frames, found, strict=True)}


def test_above_the_call_is_input_and_below_is_not() -> None:
    loop = (main(20), own(7)), (main(22), MODULE), (main(24), OPTIMIZER), (main(25), own(40))
    details = seen(*((stack, 5) for stack in loop))
    assert list(details.values()) == [PREPARES, "", "", AFTERWARDS]


@pytest.mark.parametrize("made", [("nn/init.py", "kaiming_uniform_"), ("nn/modules/linear.py", "Linear.__init__")])
def test_layers_that_are_made_above_the_call_are_no_input(made: tuple[str, str]) -> None:
    layers = main(20), Frame("/home/me/model.py", "Features.__init__", 7), Frame(f"{TORCH}/{made[0]}", made[1], 120)
    details = seen((layers, 5), ((main(21), own(7)), 5), ((main(22), MODULE), 5), ((main(24), OPTIMIZER), 5))
    assert list(details.values()) == [MAKES_LAYERS, PREPARES, "", ""]


@pytest.mark.parametrize(
    "loop", ["lightning/pytorch/loops/training_epoch_loop.py", "transformers/trainer.py", "other/trainer.py"]
)
def test_callbacks_of_a_librarys_training_loop_come_after_the_model_and_prepare_nothing(loop: str) -> None:
    def advance(line: int) -> tuple[Frame, ...]:
        return main(60), Frame(f"/v/lib/python3.11/site-packages/{loop}", "advance", line)

    details = seen(
        ((*advance(340), own(3, "on_batch_start")), 5),
        ((*advance(354), MODULE), 5),
        ((*advance(370), own(45, "on_batch_end")), 5),
    )
    assert list(details.values()) == ["", "", "" if loop.startswith("other") else AFTERWARDS]


def test_the_innermost_function_that_both_share_decides() -> None:
    step = Frame("/home/me/train.py", "train_step", 8)
    details = seen(
        ((main(20), own(7)), 5),
        ((main(21), step, MODULE), 5),
        ((main(21), Frame("/home/me/train.py", "train_step", 7), own(3, "augment")), 5),
        ((main(21), Frame("/home/me/train.py", "train_step", 9), own(3, "metrics")), 5),
    )
    assert list(details.values()) == [PREPARES, "", PREPARES, AFTERWARDS]


@pytest.mark.parametrize(("carries", "detail"), [(True, AFTERWARDS), (False, PREPARES)])
def test_in_rounds_that_need_the_one_before_what_is_above_the_call_comes_after_another(
    carries: bool, detail: str
) -> None:
    """A solver's stages, of which each is made of those before; the loop that trains makes batches above its call."""
    solve, solver = "/home/me/solver.py", "solve"
    stacks = [
        (main(20), own(7)),
        (main(22), Frame(solve, solver, 5), MODULE),
        (main(22), Frame(solve, solver, 4), Frame(f"{TORCH}/_tensor.py", "Tensor.sum", 9)),
        (main(23), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 630)),
    ]
    loops = [SourceLoop(solve, 3, 6, carries), SourceLoop(main(20).file, 18, 24, carries=True)]
    amounts = dict.fromkeys(range(4), 5.0)
    found = with_loop_positions(stacks, [location_of(stack) for stack in stacks], [amounts], loops=loops)
    assert [one.detail for one in found[:3]] == [PREPARES, "", detail]
    assert found[2].leads_to_backward is carries


def test_rounds_that_only_act_by_the_model_come_before_the_passes_of_a_function_beside_them() -> None:
    """Rollouts, and an update that calls the model again and leads back through that."""
    stacks = [
        (main(20), Frame("/home/me/rollout.py", "collect", 5), MODULE),
        (main(20), Frame("/home/me/rollout.py", "collect", 4), own(7, "observe")),
        (main(22), Frame("/home/me/train.py", "update", 61), MODULE),
        (main(22), Frame("/home/me/train.py", "update", 62), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 630)),
    ]
    loops, amounts = [SourceLoop("/home/me/rollout.py", 3, 6, carries=True)], dict.fromkeys(range(4), 5.0)
    found = with_loop_positions(stacks, [location_of(stack) for stack in stacks], [amounts], loops=loops)
    assert found[1].detail == PREPARES


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


@pytest.mark.parametrize(
    "post",
    [
        Frame(f"{PACKAGES}/requests/api.py", "post", 115),
        Frame(f"{TORCH}/_tensor_str.py", "_tensor_str", 360),
        Frame(f"{PYTHON}/json/__init__.py", "dump", 180),
        Frame(f"{PYTHON}/csv.py", "DictWriter.writerow", 154),
    ],
)
def test_what_is_sent_or_written_below_the_call_is_logged_and_above_it_belongs_to_the_input(post: Frame) -> None:
    loop = [(main(20), post), (main(22), MODULE), (main(25), post)]
    amounts = [{0: 5.0, 1: 5.0, 2: 5.0}]
    found = with_loop_positions(loop, [location_of(stack) for stack in loop], amounts)
    assert [(one.phase, one.detail) for one in found] == [("other", PREPARES), ("forward", ""), ("logging", AFTERWARDS)]


def test_who_is_given_results_below_the_call_is_told_them() -> None:
    loop = [(main(20), own(7)), (main(22), MODULE), (main(25), own(7)), (main(26), own(7))]
    results = [SourceResult(main(20).file, line, line) for line in (20, 25)]
    found = with_loop_positions(
        loop, [location_of(stack) for stack in loop], [dict.fromkeys(range(4), 5.0)], results=results
    )
    assert [one.tells_results for one in found] == [False, False, True, False]


BACKWARD = Frame(f"{TORCH}/autograd/__init__.py", "backward", 300)
LIBRARY = Frame(f"{PACKAGES}/sklearn/metrics/_classification.py", "f1_score", 12)


@pytest.mark.parametrize(
    ("stack", "leads"),
    [
        ((main(20), own(7)), False),  # prepares the input
        ((main(22), own(7, "loss")), True),  # loss(model(inputs), targets)
        ((main(23), own(7, "loss")), True),
        ((main(23), own(7, "metrics"), LIBRARY), False),  # nothing of torch's, so nothing to go back through
        ((main(24), own(7, "loss")), True),  # loss(outputs).backward()
        ((main(26), own(7, "metrics")), False),
    ],
)
def test_from_the_models_call_to_the_backward_pass_own_code_leads_to_it(stack: tuple[Frame, ...], leads: bool) -> None:
    loop = [stack, (main(22), MODULE), (main(24), BACKWARD), (main(25), OPTIMIZER)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(4), 5.0)])
    assert [one.leads_to_backward for one in found] == [leads, False, False, False]


@pytest.mark.parametrize("in_one_call", [True, False])
def test_beside_a_call_that_has_both_passes_nothing_in_its_line_leads_from_one_to_the_other(in_one_call: bool) -> None:
    """``train(*batches())``, where one function calls the model and begins the backward pass, and ``fit(loss(x))``."""
    train = Frame("/home/me/train.py", "train", 6), Frame("/home/me/train.py", "train", 8)
    forward = (main(22), *(train[:1] if in_one_call else ()), MODULE)
    loop = [(main(22), own(7)), forward, (main(22), train[1], BACKWARD)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(3), 5.0)])
    assert [one.leads_to_backward for one in found] == [not in_one_call, False, False]


def test_what_lies_between_two_passes_leads_to_the_second() -> None:
    """A generator's and a discriminator's; what follows the last of them leads to none."""
    between, after = (main(27), own(7, "penalty")), (main(31), own(9, "metrics"))
    loop = [between, after, (main(22), MODULE), (main(24), BACKWARD), (main(26), MODULE), (main(29), BACKWARD)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(6), 5.0)])
    assert [one.leads_to_backward for one in found[:2]] == [True, False]


def test_what_lies_between_two_calls_of_the_model_may_serve_the_second() -> None:
    """An agent acts, and learns from a batch of what it has seen, which NumPy makes."""
    stacked, logged = (main(24), own(7, "draw"), LIBRARY), (main(28), own(9, "metrics"), LIBRARY)
    loop = [stacked, logged, (main(22), MODULE), (main(26), MODULE), (main(27), BACKWARD)]
    amounts = [dict.fromkeys(range(5), 5.0)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], amounts)
    seen = with_calls_below(loop, found, amounts)
    assert [(one.detail, one.precedes_model) for one in seen[:2]] == [(AFTERWARDS, True), (AFTERWARDS, False)]
    # A call that evaluates learns from nothing.
    found[3] = replace(found[3], in_evaluation=True, evaluates=True)
    assert not any(one.precedes_model for one in with_calls_below(loop, found, amounts))


def test_where_no_sample_met_the_models_call_the_backward_pass_shows_what_lies_above_it() -> None:
    loop = [((main(20), own(7)), 50), ((main(22), BACKWARD), 1), ((main(25), own(40)), 5)]
    assert list(seen(*loop).values()) == [PREPARES, "engine", AFTERWARDS]


def test_what_takes_no_longer_than_the_backward_pass_may_lead_to_it() -> None:
    loop = [((main(20), own(7, "loss")), 5), ((main(22), BACKWARD), 6)]
    assert list(seen(*loop).values()) == ["", "engine"]


@pytest.mark.parametrize("function", ["main", "Trainer.main"])
def test_where_no_sample_met_a_step_the_source_shows_what_lies_above_its_backward_pass(function: str) -> None:
    above, below = (Frame("/home/me/train.py", function, line) for line in (20, 25))
    other = Frame("/home/me/train.py", "report", 30)
    loop = [(above, own(7)), (below, own(40)), (other, own(50)), (Frame("/home/me/data.py", "main", 20), own(60))]
    written = [
        SourceCall("/home/me/train.py", 24, "second.backward()", "backward", "main", None),
        SourceCall("/home/me/train.py", 22, "loss.backward()", "backward", "main", None),
        SourceCall("/home/me/train.py", 35, "x = DataLoader(y)", "DataLoader", "report", None),
    ]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(4), 5.0)], written)
    assert [one.detail for one in found] == [PREPARES, AFTERWARDS, "", ""]


@pytest.mark.parametrize(
    ("function", "callee", "leads"),
    [("penalty", "grad", True), ("attack", "grad", False), ("penalty", "backward", False)],
)
def test_gradients_that_stay_in_the_graph_lead_to_the_backward_pass(function: str, callee: str, leads: bool) -> None:
    """The rest of a penalty on them; an attack's gradients on the input stay outside."""
    taken = (main(23), own(7, function), Frame(f"{TORCH}/autograd/__init__.py", callee, 503))
    loop = [taken, (main(22), MODULE), (main(24), BACKWARD)]
    text = "torch.autograd.grad(loss, x, create_graph=True)"
    calls = [SourceCall(taken[1].file, 7, text, "grad", "penalty", None)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(3), 5.0)], calls)
    assert [(one.phase, one.leads_to_backward) for one in found] == [
        ("backward", leads), ("forward", False), ("backward", False),
    ]  # fmt: skip


def test_without_a_backward_pass_in_the_same_function_nothing_leads_to_one() -> None:
    """Of an evaluation, for instance."""
    loop = [(main(23), own(7)), (main(22), MODULE), (main(30), own(3, "step"), BACKWARD)]
    found = with_loop_positions(loop[:2], [location_of(one) for one in loop[:2]], [dict.fromkeys(range(2), 5.0)])
    assert not any(one.leads_to_backward for one in found)


def test_what_an_evaluation_computes_of_its_results_is_none_of_the_steps() -> None:
    assert is_beside(CodeLocation("other", AFTERWARDS))
    assert not is_beside(CodeLocation("other", AFTERWARDS, leads_to_backward=True))
    assert not is_beside(CodeLocation("other", AFTERWARDS, in_evaluation=True))


def test_an_operator_of_the_jobs_own_has_a_backward_pass_whatever_computes_it() -> None:
    apply = Frame(f"{TORCH}/autograd/function.py", "Function.apply", 596)
    inside = (main(23), own(7, "loss"), apply, own(9, "Aligned.forward"), LIBRARY)
    loop = [inside, (main(22), MODULE), (main(24), BACKWARD)]
    found = with_loop_positions(loop, [location_of(one) for one in loop], [dict.fromkeys(range(3), 5.0)])
    assert found[0].leads_to_backward


INNER = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl.<locals>.inner", 1845)
FORWARD = Frame("/home/me/model.py", "Net.forward", 22)
ENGINE = Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 979)


@pytest.mark.parametrize(
    ("called", "is_hook"),
    [
        ((INNER,), True),
        ((replace(INNER, line=1832),), False),  # the line at which forward is called
        ((INNER, own(30, "<lambda>")), True),
        ((BACKWARD, ENGINE), True),
        ((own(3, "helper"),), False),
    ],
    ids=["forward", "patched forward", "by a lambda", "of a gradient", "called by the model itself"],
)
def test_a_hook_that_only_reads_out_is_no_part_of_the_model(called: tuple[Frame, ...], is_hook: bool) -> None:
    reads = (main(22), MODULE, FORWARD, *called, own(7, "record"))
    loop = [reads, (main(22), MODULE, replace(INNER, line=1832), FORWARD)]
    found = with_hooks(loop, [location_of(one) for one in loop], [SourceReadOut("/home/me/data.py", 5, 9)])
    assert [one.detail == HOOK for one in found] == [is_hook, False]
    assert is_beside(found[0]) is is_hook
