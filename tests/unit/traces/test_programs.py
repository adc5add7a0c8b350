"""Reductions of the forward pass are activations' of layers that ranks share; those of the backward pass gradients'."""

from pathlib import Path

import pytest

from perfdoctor.traces.rank import summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import ALL_REDUCE, GEMM, MAIN, MadeTrace

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
NODE = "autograd::engine::evaluate_function: MmBackward0"


@pytest.mark.parametrize(
    ("forward", "backward", "told"),
    [
        ([ALL_REDUCE], [ALL_REDUCE], "added up"),
        ([SCATTER, GATHER], [GATHER, SCATTER], "added up"),  # as sequence parallelism exchanges
        ([ALL_REDUCE], [], "added up"),  # nothing is trained
        ([], [ALL_REDUCE], None),
        ([GATHER], [GATHER, SCATTER], None),  # parameters of a sharded model
        ([ALL_REDUCE], [ALL_REDUCE] * 5, None),  # the statistics of a layer, and gradients
    ],
)
def test_which_pass_reduces(forward: list[str], backward: list[str], told: str | None, tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for step in range(3):
        at = step * 10_000.0
        made.step(step, at, at + 9_900)
        made.operator("aten::mm", at + 100, at + 2_000)
        if backward:
            made.operator(NODE, at + 3_000, at + 5_000, thread=MAIN + 1)
            made.operator("aten::mm", at + 3_100, at + 4_900, thread=MAIN + 1)
        made.launch(GEMM, at + 110, at + 120, at + 1_000)
        for number, name in enumerate(forward):
            begin = at + 1_000 + 500 * number
            made.launch(name, at + 200 + 10 * number, begin, begin + 500, stream=9)
        for number, name in enumerate(backward):
            begin = at + 4_000 + 500 * number
            made.launch(name, at + 3_200 + 10 * number, begin, begin + 500, thread=MAIN + 1, stream=9)
    assert summarize(read_trace(made.write(tmp_path / "trace.json"))).uses.get("activations") == told


@pytest.mark.parametrize(("of_tokens", "told"), [(True, "all to all"), (False, None)])
def test_what_is_sent_all_to_all_is_told_by_what_the_message_is_called(
    of_tokens: bool, told: str | None, tmp_path: Path
) -> None:
    made = MadeTrace()
    made.gpu()
    collective = {"Collective name": "all_to_allv" if of_tokens else "send", "In msg nelems": 900, "dtype": "BFloat16"}
    for step in range(3):
        at = step * 10_000.0
        made.step(step, at, at + 9_900)
        made.operator("aten::mm", at + 100, at + 2_000)
        made.launch(GEMM, at + 110, at + 120, at + 1_000)
        made.launch(SEND, at + 200, at + 1_000, at + 5_000, stream=9, **collective)
    assert summarize(read_trace(made.write(tmp_path / "trace.json"))).uses.get("activations") == told
