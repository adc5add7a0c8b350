"""Which loops of the job's own its lines ran in."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_loops import CostlyLoop, OwnLoops
from perfdoctor.recording.own_source import HowWritten, SourceCall, SourceComprehension, SourceLoop
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

TRAIN, LOSS = "/home/me/train.py", "/home/me/loss.py"
TORCH = "/v/lib/python3.11/site-packages/torch"
EPOCHS = SourceLoop(TRAIN, 30, 40, carries=True)


def step(line: int) -> Frame:
    return Frame(TRAIN, "main", line)


BACKWARD = (step(38), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 630))
MODEL = (step(35), Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1), Frame(TRAIN, "Net.forward", 12))
PAIRS = (step(36), Frame(LOSS, "pairs", 7), Frame(LOSS, "distance", 3))


def seen(*stacks: tuple[Frame, ...]) -> Stacks:
    return Stacks.read(jobs.stacks(1, *stacks, times=10 * len(stacks), every_s=0.01))


def loops(stacks: Stacks, lines: dict[str, float], *rows: SourceLoop) -> tuple[CostlyLoop, ...]:
    return OwnLoops(stacks, rows).of(lines, 10.0)


def test_a_line_belongs_to_the_innermost_loop_around_it_or_its_callers_but_not_to_the_one_that_trains() -> None:
    lines = {
        f"{TRAIN}:12 Net.forward": 3.0,
        f"{TRAIN}:38 main": 1.0,
        f"{LOSS}:3 distance": 2.0,
        "/a/unseen.py:1 f": 1.0,
    }
    inner, outer = SourceLoop(LOSS, 6, 8, carries=False), SourceLoop(LOSS, 5, 9, carries=False)
    found = loops(seen(BACKWARD, MODEL, PAIRS), lines, EPOCHS, outer, inner)
    assert found == (CostlyLoop(f"{LOSS}:6 pairs", 0.2),)


@pytest.mark.parametrize(("outer_carries", "line"), [(False, 5), (True, 6)])
def test_of_a_loop_in_time_in_one_over_samples_the_latter_counts(outer_carries: bool, line: int) -> None:
    inner, outer = SourceLoop(LOSS, 6, 8, carries=True), SourceLoop(LOSS, 5, 9, carries=outer_carries)
    found = loops(seen(BACKWARD, MODEL, PAIRS), {f"{LOSS}:3 distance": 2.0}, EPOCHS, outer, inner)
    assert found == (CostlyLoop(f"{LOSS}:{line} pairs", 0.2, outer_carries),)


@pytest.mark.parametrize(("beside", "line"), [(1, 6), (4, 5)])
def test_of_loops_that_follow_each_other_in_one_that_one_counts(beside: int, line: int) -> None:
    """Unless one of them is nearly all of it; a comprehension has a frame of its own, but no other function."""
    other = (step(36), Frame(LOSS, "pairs", 9), Frame(LOSS, "pairs.<locals>.<listcomp>", 9))
    rows = SourceLoop(LOSS, 5, 9, carries=False), SourceLoop(LOSS, 6, 8, carries=False), SourceLoop(LOSS, 9, 9, False)
    stacks = seen(BACKWARD, MODEL, *[PAIRS] * 6, *[other] * beside)
    found = loops(stacks, {f"{LOSS}:3 distance": 2.0}, EPOCHS, *rows)
    assert [one.line for one in found] == [f"{LOSS}:{line} pairs"]
    if beside > 1:
        found = loops(stacks, {f"{LOSS}:9 pairs.<locals>.<listcomp>": 1.0}, EPOCHS, *rows)
        assert [one.line for one in found] == [f"{LOSS}:5 pairs"]


@pytest.mark.parametrize(
    ("below", "inside"),
    [
        (Frame(LOSS, "distance", 3), True),
        (Frame(LOSS, "pairs.<locals>.<listcomp>", 7), True),
        (Frame(LOSS, "Distance.__init__", 3), True),
        (Frame(LOSS, "run", 3), False),  # it is given what the comprehension makes
    ],
)
def test_a_comprehension_has_the_time_of_what_its_rounds_call(below: Frame, inside: bool) -> None:
    loop, calls = SourceLoop(LOSS, 7, 7, carries=False), SourceComprehension(LOSS, 7, 7, "distance Distance")
    stacks = seen(BACKWARD, MODEL, (*PAIRS[:2], below))
    line = f"{LOSS}:{below.line} {below.function}"
    found = OwnLoops(stacks, [EPOCHS, loop], [calls]).of({line: 2.0}, 10.0)
    assert bool(found) is inside
    assert OwnLoops(stacks, [EPOCHS, loop]).of({line: 2.0}, 10.0)  # of a loop it is not asked
    assert (
        not inside or "<" in line or not OwnLoops(stacks, [EPOCHS, loop], [calls._replace(calls="")]).of({line: 2.0}, 1)
    )


def test_arithmetic_beside_the_model_is_no_calling_of_operations() -> None:
    """Of a loop that sorts each weight, little is calls."""
    loop, lines = SourceLoop(LOSS, 6, 8, carries=False), {f"{LOSS}:3 distance": 4.0, f"{TRAIN}:38 main": 1.0}
    found = OwnLoops(seen(BACKWARD, MODEL, PAIRS), [EPOCHS, loop]).of(lines, 10.0, {f"{LOSS}:3 distance": 3.0})
    assert found == (CostlyLoop(f"{LOSS}:6 pairs", pytest.approx(0.1), computes=pytest.approx(0.3)),)


def test_a_loop_over_a_loader_is_none() -> None:
    loader = (step(51), Frame(f"{TORCH}/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700))
    model = (step(52), Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1))
    lines, loop = {f"{TRAIN}:52 main": 1.0}, SourceLoop(TRAIN, 51, 53, carries=False)
    assert loops(seen(loader, model), lines, loop) == ()
    assert [one.line for one in loops(seen(model), lines, loop)] == [f"{TRAIN}:51 main"]


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_loop_over_gradients_that_stay_in_the_graph_trains_nothing(in_graph: bool) -> None:
    """A penalty on them, sample by sample."""
    gradient = (step(36), Frame(LOSS, "penalty", 7), Frame(f"{TORCH}/autograd/__init__.py", "grad", 503))
    call = SourceCall(LOSS, 7, "torch.autograd.grad(out, row, create_graph=True)", "grad", "penalty", None)
    segments = jobs.stacks(1, BACKWARD, MODEL, gradient, times=30, every_s=0.01)
    stacks = Stacks.read(segments, HowWritten([call] if in_graph else []))
    found = loops(stacks, {f"{LOSS}:7 penalty": 4.0}, SourceLoop(LOSS, 6, 8, carries=False))
    assert found == ((CostlyLoop(f"{LOSS}:6 penalty", 0.4),) if in_graph else ())


def test_of_a_loop_it_is_known_that_it_calls_a_layer_for_one_piece_of_a_sequence() -> None:
    cell = (step(35), Frame(TRAIN, "Net.forward", 12), Frame(f"{TORCH}/nn/modules/rnn.py", "GRUCell.forward", 1500))
    loop = SourceLoop(TRAIN, 11, 13, carries=True)
    lines = {f"{TRAIN}:12 Net.forward": 10.0}
    assert loops(seen(cell, cell, MODEL), lines, loop) == (
        CostlyLoop(f"{TRAIN}:11 Net.forward", 1.0, carries=True, cell="GRUCell"),
    )


@pytest.mark.parametrize(("times", "cell"), [(1, "LSTMCell"), (3, "")])
def test_a_loop_is_one_over_pieces_only_where_most_of_it_is_the_layer_that_takes_them(times: int, cell: str) -> None:
    """A controller that reads a memory in each round, which a layer over the whole sequence has no place for."""
    layer = (step(35), Frame(TRAIN, "Net.forward", 12), Frame(f"{TORCH}/nn/modules/rnn.py", "LSTMCell.forward", 1500))
    memory = (step(35), Frame(TRAIN, "Net.forward", 12), Frame(TRAIN, "Net.read", 21))
    lines = {f"{TRAIN}:12 Net.forward": 4.0, f"{TRAIN}:21 Net.read": 6.0}
    found = loops(seen(layer, layer, *[memory] * times), lines, SourceLoop(TRAIN, 11, 13, carries=True))
    assert [(one.line, one.cell) for one in found] == [(f"{TRAIN}:11 Net.forward", cell)]
