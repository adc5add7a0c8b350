"""What of a compiled model runs as it was written."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.uncompiled import find_uncompiled
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

FILE, TORCH = "/job/train.py", "/v/lib/python3.11/site-packages/torch"
LOOP, FORWARD = Frame(FILE, "main", 20), Frame(FILE, "Net.forward", 7)
COMPILED = Frame(f"{TORCH}/_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>.compile_wrapper", 9)
LEFT_ALONE = Frame(COMPILED.file, "DisableContext.__call__.<locals>._fn", 9)
BEFORE_2_8 = Frame(COMPILED.file, "_TorchDynamoContext.__call__.<locals>._fn", 9)
WITHOUT_CLASS = Frame(COMPILED.file, "_fn", 9)  # Python 3.10
LAYER = Frame(f"{TORCH}/nn/modules/linear.py", "Linear.forward", 134)
RUNS = Frame(f"{TORCH}/_functorch/_aot_autograd/runtime_wrappers.py", "runtime_wrapper", 3)
GRAPH = Frame("<eval_with_key>.12", "forward", 5)


@pytest.mark.parametrize(
    ("stacks", "part"),
    [
        ([(LOOP, COMPILED, FORWARD, LAYER), (LOOP,)], 0.5),
        ([(LOOP, BEFORE_2_8, FORWARD, LAYER), (LOOP,)], 0.5),
        ([(LOOP, WITHOUT_CLASS, FORWARD, LAYER), (LOOP,)], None),  # of either kind
        ([(LOOP, COMPILED, FORWARD, RUNS), (LOOP,)], None),
        ([(LOOP, COMPILED, FORWARD, GRAPH, LAYER), (LOOP,)], None),
        ([(LOOP, COMPILED, FORWARD), (LOOP,)], None),  # guards and what is between graphs
        ([(LOOP, FORWARD, LAYER), (LOOP,)], None),  # nothing is compiled
        ([(LOOP, LEFT_ALONE, FORWARD, LAYER), (LOOP,)], None),  # torch's own checkpointing, for instance
        ([(LOOP, COMPILED, FORWARD, LAYER), (LOOP, COMPILED, FORWARD, RUNS), (LOOP, COMPILED, RUNS)], None),
    ],
)
def test_what_torch_compile_leaves_out_is_told_where_it_is_most(
    stacks: list[tuple[Frame, ...]], part: float | None
) -> None:
    found = find_uncompiled(Stacks.read(jobs.stacks(1, *stacks, times=300, every_s=0.01)), {1})
    assert (found and found.part) == (part and pytest.approx(part, abs=0.02))
    assert found is None or found.place == f"{FILE}:7 Net.forward"
