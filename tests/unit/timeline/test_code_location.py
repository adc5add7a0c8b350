"""Phases are determined from frames of torch and the standard library, whatever the job's own code is called."""

from dataclasses import replace

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.timeline.code_location import (
    AFTERWARDS,
    PREPARES,
    CodeLocation,
    is_beside,
    locate,
    marked_location,
    with_calls_below,
    with_loop_positions,
)

PACKAGES = "/env/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch"
PYTHON = "/usr/lib/python3.11"
LIGHTNING = f"{PACKAGES}/lightning"
ADAM = Frame(f"{TORCH}/optim/adam.py", "Adam.step", 226)
CLOSURE = Frame(f"{LIGHTNING}/pytorch/loops/optimization/automatic.py", "Closure.closure", 132)
MAIN = Frame("/home/me/train.py", "<module>", 10)
LOADER = Frame(f"{TORCH}/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._next_data", 1400)
LOADER_START = Frame(f"{TORCH}/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._reset", 1276)
SAVEZ = Frame("/env/lib/python3.11/site-packages/numpy/lib/_npyio_impl.py", "savez_compressed", 723)
NEXT_INDEX = Frame(f"{TORCH}/utils/data/dataloader.py", "_BaseDataLoaderIter._next_index", 714)
MODULE = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1789)


@pytest.mark.parametrize(
    ("frames", "phase", "detail"),
    [
        ([], "other", ""),
        ([MAIN], "other", ""),
        ([MAIN, MODULE], "forward", ""),
        ([MAIN, Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 623)], "backward", "engine"),
        ([MAIN, Frame(f"{TORCH}/optim/sgd.py", "SGD.step", 120)], "optimizer", ""),
        ([MAIN, Frame(f"{TORCH}/optim/lr_scheduler.py", "step", 9)], "other", ""),
        ([MAIN, MODULE, Frame(f"{TORCH}/nn/functional.py", "cross_entropy", 3555)], "loss", ""),
        # A compiler runs the model, to see what it does.
        ([MAIN, MODULE, Frame(f"{TORCH}/_dynamo/convert_frame.py", "_compile", 990), MODULE], "other", "compile"),
        ([MAIN, Frame(f"{TORCH}/_dynamo/eval_frame.py", "compile_wrapper", 900), MODULE], "forward", ""),
        # A checkpointed block runs its forward pass again in the backward pass.
        (
            [
                Frame(f"{TORCH}/autograd/__init__.py", "backward", 300),
                Frame(f"{TORCH}/utils/checkpoint.py", "recompute_fn", 1600),
                MODULE,
            ],
            "backward",
            "recompute",
        ),
        # A function of the job's own may call a module there, too.
        ([Frame(f"{TORCH}/autograd/__init__.py", "backward", 300), MAIN, MODULE], "forward", ""),
        # So is a backward pass when it runs for the first time.
        (
            [
                Frame(f"{TORCH}/autograd/__init__.py", "backward", 300),
                Frame(f"{TORCH}/_inductor/compile_fx.py", "compile_fx_inner", 837),
            ],
            "other",
            "compile",
        ),
        ([MAIN, Frame(f"{TORCH}/serialization.py", "save", 900)], "saving", ""),
        # Compressing is the larger part of saving arrays; below a dataset it is the dataset's.
        ([MAIN, SAVEZ, Frame(f"{PYTHON}/zipfile.py", "_ZipWriteFile.write", 1140)], "saving", ""),
        ([MAIN, Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52), SAVEZ], "data", "fetch"),
        ([MAIN, Frame(f"{PYTHON}/logging/__init__.py", "StreamHandler.flush", 1100)], "logging", ""),
        ([MAIN, Frame(f"{TORCH}/distributed/distributed_c10d.py", "all_reduce", 3000)], "gradient sync", "collective"),
        ([MAIN, LOADER, Frame(f"{PYTHON}/selectors.py", "select", 415)], "data", "loader wait"),
        ([MAIN, LOADER, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 122)], "data", "hand over"),
        # What other processes send outside of a loader, and what a pool of them makes.
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 122)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/connection.py", "_ConnectionBase.recv", 250)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/pool.py", "Pool.map", 367)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.put", 90)], "other", ""),
        ([MAIN, LOADER, NEXT_INDEX, Frame("/home/me/data.py", "Hard.__iter__", 9)], "data", "sampling"),
        ([MAIN, LOADER_START, NEXT_INDEX, Frame("/home/me/data.py", "Hard.__iter__", 9)], "data", "sampling"),
        # A transform may be a module: below the loader it is input work all the same.
        ([MAIN, Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52), MODULE], "data", "fetch"),
        ([MAIN, MODULE, Frame(f"{PACKAGES}/torchvision/transforms/v2/_geometry.py", "forward", 9)], "data", "fetch"),
        ([MAIN, Frame(f"{PACKAGES}/transformers/tokenization_utils_base.py", "__call__", 9)], "data", "fetch"),
        ([MAIN, Frame("/home/me/datasets/load.py", "load", 9)], "other", ""),
        ([MAIN, Frame(f"{TORCH}/optim/lbfgs.py", "step", 300), MODULE], "forward", ""),
        ([MAIN, ADAM, CLOSURE, Frame("/home/me/module.py", "Net.training_step", 30)], "other", ""),
        ([MAIN, ADAM, CLOSURE, MODULE], "forward", ""),
        ([MAIN, Frame(f"{LIGHTNING}/pytorch/loggers/csv_logs.py", "CSVLogger.save", 80)], "logging", ""),
        ([MAIN, Frame(f"{LIGHTNING}/fabric/utilities/cloud_io.py", "_atomic_save", 117)], "saving", ""),
    ],
)
def test_places(frames: list[Frame], phase: str, detail: str) -> None:
    place = locate(frames)
    assert (place.phase, place.detail) == (phase, detail)


def test_names_of_the_job_do_not_matter() -> None:
    frames = [Frame("/home/me/dataloader.py", "save_checkpoint", 3), Frame("/home/me/optimizer_step.py", "backward", 7)]
    assert locate(frames).phase == "other"


def test_own_code_inside_backward_is_not_the_engine() -> None:
    engine = Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 979)
    assert locate([MAIN, engine]).detail == "engine"
    assert locate([MAIN, engine, Frame("/home/me/layers.py", "MyFunction.backward", 4)]).detail == ""


def test_worker_places() -> None:
    loop = Frame(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", 349)
    get = Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 113)
    put = Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.put", 90)
    fetch = Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52)
    assert locate([loop, get]).detail == "worker idle"
    assert locate([loop, put]).detail == "hand over"
    assert locate([loop, fetch, Frame("/home/me/data.py", "__getitem__", 8)]).detail == "fetch"
    assert locate([loop, fetch, Frame("/home/me/data.py", "__getitem__", 8)]).line == "/home/me/data.py:8 __getitem__"


def test_waiting_frames() -> None:
    assert locate([MAIN, Frame(f"{PYTHON}/threading.py", "Condition.wait", 327)]).only_waits
    received = locate([MAIN, Frame(f"{PYTHON}/multiprocessing/connection.py", "Connection._recv", 395)])
    assert received.waits
    assert not received.only_waits


def test_hooks_of_diagnose_are_nobodys_line() -> None:
    hook = Frame("/src/perfdoctor/probes/inside/entries.py", "works.<locals>.backward", 196)
    engine = Frame(f"{TORCH}/autograd/__init__.py", "backward", 300)
    assert locate([MAIN, hook, engine]).line == "/home/me/train.py:10 <module>"


def test_a_loaders_mark_does_not_hide_its_sampler() -> None:
    drawing = locate([MAIN, LOADER, NEXT_INDEX])
    assert marked_location("data", "loader wait", drawing, marked=True).detail == "sampling"
    waiting = locate([MAIN, LOADER, Frame(f"{PYTHON}/selectors.py", "select", 415)])
    assert marked_location("data", "loader wait", waiting, marked=True).detail == "loader wait"


# Above the line that calls the model, a loop of the job's own prepares the input; below it comes the rest.

OPTIMIZER = Frame(f"{TORCH}/optim/sgd.py", "SGD.step", 120)


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
    found = with_loop_positions(loop, [locate(stack) for stack in loop], amounts)
    assert [(one.phase, one.detail) for one in found] == [("other", PREPARES), ("forward", ""), ("logging", AFTERWARDS)]


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
    found = with_loop_positions(loop, [locate(one) for one in loop], [dict.fromkeys(range(4), 5.0)])
    assert [one.leads_to_backward for one in found] == [leads, False, False, False]


def test_what_lies_between_two_passes_leads_to_the_second() -> None:
    """A generator's and a discriminator's; what follows the last of them leads to none."""
    between, after = (main(27), own(7, "penalty")), (main(31), own(9, "metrics"))
    loop = [between, after, (main(22), MODULE), (main(24), BACKWARD), (main(26), MODULE), (main(29), BACKWARD)]
    found = with_loop_positions(loop, [locate(one) for one in loop], [dict.fromkeys(range(6), 5.0)])
    assert [one.leads_to_backward for one in found[:2]] == [True, False]


def test_what_lies_between_two_calls_of_the_model_may_serve_the_second() -> None:
    """An agent acts, and learns from a batch of what it has seen, which NumPy makes."""
    stacked, logged = (main(24), own(7, "draw"), LIBRARY), (main(28), own(9, "metrics"), LIBRARY)
    loop = [stacked, logged, (main(22), MODULE), (main(26), MODULE), (main(27), BACKWARD)]
    amounts = [dict.fromkeys(range(5), 5.0)]
    found = with_loop_positions(loop, [locate(one) for one in loop], amounts)
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
    found = with_loop_positions(loop, [locate(one) for one in loop], [dict.fromkeys(range(4), 5.0)], written)
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
    found = with_loop_positions(loop, [locate(one) for one in loop], [dict.fromkeys(range(3), 5.0)], calls)
    assert [(one.phase, one.leads_to_backward) for one in found] == [
        ("backward", leads), ("forward", False), ("backward", False),
    ]  # fmt: skip


def test_without_a_backward_pass_in_the_same_function_nothing_leads_to_one() -> None:
    """Of an evaluation, for instance."""
    loop = [(main(23), own(7)), (main(22), MODULE), (main(30), own(3, "step"), BACKWARD)]
    found = with_loop_positions(loop[:2], [locate(one) for one in loop[:2]], [dict.fromkeys(range(2), 5.0)])
    assert not any(one.leads_to_backward for one in found)


def test_what_an_evaluation_computes_of_its_results_is_none_of_the_steps() -> None:
    assert is_beside(CodeLocation("other", AFTERWARDS))
    assert not is_beside(CodeLocation("other", AFTERWARDS, leads_to_backward=True))
    assert not is_beside(CodeLocation("other", AFTERWARDS, in_evaluation=True))
