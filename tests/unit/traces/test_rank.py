"""Every number that a trace gives is what was planted."""

from pathlib import Path

import pytest

from perfdoctor.analysis.from_traces import diagnose_traces as diagnose_in_no_words
from perfdoctor.reports.language import language
from perfdoctor.reports.outline import outline
from perfdoctor.traces.account import account_for
from perfdoctor.traces.rank import measure_trace, summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import ALL_REDUCE, ELEMENTWISE, GEMM, LOADER, MadeTrace

SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>()"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>()"


def measure(made: MadeTrace, folder: Path) -> dict[str, float]:
    made.gpu()
    return measure_trace(account_for(read_trace(made.write(folder / "trace.json"))))


def kernels(made: MadeTrace, names: list[str], length: float) -> None:
    """One after the other, each launched 6 us before it starts, in a step of its own."""
    for number, name in enumerate(names):
        begin = number * 1000.0
        made.step(number, begin, begin + 1000)
        made.operator("aten::mm", begin, begin + 900)
        made.launch(name, begin + 100, begin + 106, begin + 106 + length)


def test_kernels_and_launches(tmp_path: Path) -> None:
    made = MadeTrace()
    kernels(made, [GEMM] * 3, 8.0)
    made.launch(GEMM, 2500, 2506, 2906)
    found = measure(made, tmp_path)
    assert found["traced_short_kernels"] == 0.75
    assert found["traced_kernel_time"] == 8.0
    assert found["traced_launch_delay"] == 6.0
    assert found["traced_kernels"] == pytest.approx(4 / 0.002906, rel=0.001)
    assert found["traced_busy"] == pytest.approx(424 / 2906, abs=0.001)
    assert found["traced_operators"] == 1.0


def test_what_kernels_are_for(tmp_path: Path) -> None:
    made = MadeTrace()
    kernels(made, [GEMM, SOFTMAX, FLASH, LAYOUT], 200.0)
    found = measure(made, tmp_path)
    parts = ("traced_softmax", "traced_fused_attention", "traced_layout")
    assert [found[name] for name in parts] == pytest.approx([0.25, 0.25, 0.25])


def test_what_is_not_there_is_not_zero(tmp_path: Path) -> None:
    made = MadeTrace()
    kernels(made, [ELEMENTWISE] * 2, 200.0)
    found = measure(made, tmp_path)
    absent = ("layout", "softmax", "fused_attention", "pageable", "blocked", "optimizer_kernels", "tensor_cores")
    assert [name for name in (*absent, "recomputed", "collectives", "hidden") if f"traced_{name}" in found] == []


def test_waits_copies_and_allocations(tmp_path: Path) -> None:
    """Of 4 ms the host waits for 0.5, allocates for 0.2, and is held by a copy for 0.4 of which the GPU works 0.2."""
    made = MadeTrace()
    kernels(made, [GEMM] * 4, 800.0)
    made.call("cudaStreamSynchronize", 400, 900)
    made.call("cudaMalloc", 1200, 1400)
    copy = made.call("cudaMemcpyAsync", 2700, 3100)
    made.on_device("Memcpy HtoD (Pageable -> Device)", 2910, 3090, copy, category="gpu_memcpy")
    quick = made.call("cudaMemcpyAsync", 3950, 3955)
    made.on_device("Memcpy HtoD (Pinned -> Device)", 3960, 4000, quick, category="gpu_memcpy")
    found = measure(made, tmp_path)
    assert found["traced_waiting"] == pytest.approx(500 / 4000)
    assert found["traced_waits"] == found["traced_allocations"] == pytest.approx(250.0)
    assert found["traced_blocked"] == pytest.approx(400 / 4000)
    assert found["traced_pageable"] == 0.5
    assert found["traced_copies"] == pytest.approx(220 / 4000)


def test_collectives_exposed_and_hidden(tmp_path: Path) -> None:
    made = MadeTrace()
    kernels(made, [GEMM] * 2, 400.0)
    made.launch(ALL_REDUCE, 150, 306, 706, stream=9)
    found = measure(made, tmp_path)
    whole = 1900.0  # to the end of the last operator
    assert found["traced_collectives"] == pytest.approx(1 / whole * 1e6, rel=0.001)
    assert found["traced_hidden"] == pytest.approx(200 / whole, abs=0.001)
    assert found["traced_exposed"] == pytest.approx(200 / whole, abs=0.001)


@pytest.mark.parametrize(
    ("names", "uses"),
    [
        (["DistributedDataParallel.forward"], {"parallel": "ddp"}),
        (["deepspeed/runtime/engine.py(1800): forward", "torch/nn/parallel/distributed.py(1): forward"],
         {"parallel": "deepspeed"}),
        (["megatron/core/distributed/distributed_data_parallel.py(140): forward", "c10d::send"],
         {"parallel": "megatron", "pipeline": "yes"}),
        (["/opt/env/lib/python3.11/site-packages/transformers/trainer.py(3700): training_step"],
         {"loop": "transformers"}),
        (["mine/trainer.py(3): train", "deepspeed/ops/adam/fused_adam.py(80): step", "c10d::allreduce_"], {}),
    ],
)  # fmt: skip
def test_what_a_job_uses_is_told_by_marks_and_frames(names: list[str], uses: dict[str, str], tmp_path: Path) -> None:
    made = MadeTrace()
    kernels(made, [GEMM], 8.0)
    for name in names:
        made.span("python_function" if ".py" in name else "cpu_op", name, 10.0, 20.0)
    assert summarize(read_trace(made.write(tmp_path / "trace.json"))).uses == uses


@pytest.mark.parametrize(
    ("names", "calls", "uses"),
    [
        (["aten::addmm"], [], {"trains": "no"}),
        (["aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0"], [], {}),
        (["aten::addmm", "Optimizer.step#Adam.step"], [], {}),
        (["aten::addmm"], ["cudaGraphLaunch"], {}),  # it may hold a backward pass
        (["Torch-Compiled Region: 0/0", "aten::addmm"], [], {"compiled": "yes", "trains": "no"}),
        (["CompiledFunctionBackward", "aten::addmm"], [], {"compiled": "yes"}),
    ],
)
def test_what_is_compiled_or_not_trained_is_told_by_operators(
    names: list[str], calls: list[str], uses: dict[str, str], tmp_path: Path
) -> None:
    """An operator launches a kernel, after a kernel of something else that is half as long."""
    made = MadeTrace()
    made.gpu()
    made.launch(GEMM, 0.0, 10.0, 510.0)
    for name in names:
        made.operator(name, 20.0, 30.0)
    made.launch(GEMM, 21.0, 510.0, 1510.0)
    for number, name in enumerate(calls):
        made.call(name, 40.0 + number, 40.5 + number)
    assert summarize(read_trace(made.write(tmp_path / "trace.json"))).uses == uses


@pytest.mark.parametrize(("called", "uses"), [("cudaGraphLaunch", {"graphs": "yes"}), ("cudaLaunchKernel", {})])
def test_what_is_launched_as_graphs_is_told(called: str, uses: dict[str, str], tmp_path: Path) -> None:
    """One call launches most of the work; a kernel that prepares it is launched by itself."""
    made = MadeTrace()
    made.gpu()
    made.launch(ELEMENTWISE, 0.0, 10.0, 510.0)
    call = made.call(called, 20.0, 60.0)
    for number in range(10):
        made.on_device(GEMM, 510.0 + number * 100, 610.0 + number * 100, call)
    assert summarize(read_trace(made.write(tmp_path / "trace.json"))).uses == uses


@pytest.mark.parametrize(
    ("fetched", "noted"),
    [
        (0.0, None),
        (100_000.0, "Of the 0.5 s before the first event of a GPU nothing counts. "
         "In 0.1 s of them the main thread waits for a batch."),
    ],
)  # fmt: skip
def test_what_lies_before_the_first_event_of_a_gpu_is_told_to_count_for_nothing(
    fetched: float, noted: str | None, tmp_path: Path
) -> None:
    """Without marks of steps; a host that fetches a batch, and prepares it, for far longer than the GPU works."""
    made = MadeTrace()
    made.gpu()
    if fetched:
        made.annotation(LOADER, 0.0, fetched)
    made.operator("aten::copy_", 499_000.0, 499_900.0)
    made.launch(GEMM, 499_990.0, 500_000.0, 510_000.0)
    missing = [str(one.reason) for one in summarize(read_trace(made.write(tmp_path / "trace.json"))).missing]
    assert "The trace marks no steps, so all that its GPUs do counts, from their first event to their last." in missing
    assert [why for why in missing if "before the first event" in why] == ([] if noted is None else [noted])


@pytest.mark.parametrize(("operator", "silent"), [("aten::mkldnn_convolution", False), ("aten::addmm", True)])
def test_a_gpu_that_nothing_uses_does_not_keep_a_job_on_the_cpu_from_its_verdict(
    operator: str, silent: bool, tmp_path: Path
) -> None:
    made = MadeTrace()
    made.gpu()
    made.operator(operator, 0.0, 5000.0)
    made.operator("aten::relu", 5000.0, 5500.0)
    rank = summarize(read_trace(made.write(tmp_path / "trace.json")))
    assert bool(rank.silence) is silent
    assert any(str(one.reason).startswith("There is a GPU") for one in rank.missing) is not silent


@pytest.mark.parametrize(
    ("operator", "silent"), [("aten::cudnn_convolution", True), ("aten::cudnn_is_acceptable", False)]
)
def test_operators_of_a_gpu_show_that_its_activity_was_not_recorded(
    operator: str, silent: bool, tmp_path: Path
) -> None:
    made = MadeTrace()
    made.operator("aten::conv2d", 0.0, 5000.0)
    made.operator(operator, 1000.0, 4000.0)
    found = summarize(read_trace(made.write(tmp_path / "trace.json"))).silence
    assert ("record it with its GPU activity" in str(found)) is silent


@pytest.mark.parametrize(("each", "words"), [(1000, "Only a sample"), (0, "Calls have no numbers")])
def test_calls_without_numbers_are_no_sample_of_the_events(each: int, words: str, tmp_path: Path) -> None:
    """PyTorch for ROCm wrote none for years."""
    made = MadeTrace()
    made.gpu()
    for number in range(20):
        made.operator("aten::mm", number * 200.0, number * 200.0 + 50.0)
        made.launch(GEMM, number * 200.0 + 20.0, number * 200.0 + 30.0, number * 200.0 + 130.0)
    for event in made.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] *= each
    missing = [str(one.reason) for one in summarize(read_trace(made.write(tmp_path / "trace.json"))).missing]
    assert [words in why for why in missing if "known for a part" in why] == [True]


@pytest.mark.parametrize(
    ("called", "words"), [("cudaLaunchKernel", "what the GPU did"), ("cudaGetDevice", "a GPU did")]
)
def test_launches_without_kernels_are_told_apart_from_a_profiler_that_was_not_to_record_them(
    called: str, words: str, tmp_path: Path
) -> None:
    made = MadeTrace()
    made.operator("aten::addmm", 0.0, 5000.0)
    made.call(called, 100.0, 110.0)
    rank = summarize(read_trace(made.write(tmp_path / "trace.json")))
    assert words in str(rank.silence)
    launched = called == "cudaLaunchKernel"
    assert any("ERR_NVGPUCTRPERM" in str(one.enable) for one in rank.missing) is launched
    assert any("ProfilerActivity.CUDA" in str(one.enable) for one in rank.missing) is not launched


@pytest.mark.parametrize(("reading", "silent"), [(2000.0, True), (20.0, False)])
def test_long_reads_of_single_numbers_show_a_device_that_was_not_recorded(
    reading: float, silent: bool, tmp_path: Path
) -> None:
    """On the CPU a number is there at once; Metal's work is in no trace, and has to be done first."""
    made = MadeTrace()
    for number in range(4):
        made.operator("aten::linear", number * 5000.0, number * 5000.0 + 900.0)
        made.operator("aten::item", number * 5000.0 + 1000.0, number * 5000.0 + 1010.0 + reading)
        made.operator("aten::_local_scalar_dense", number * 5000.0 + 1005.0, number * 5000.0 + 1005.0 + reading)
    found = str(summarize(read_trace(made.write(tmp_path / "trace.json"))).silence)
    assert ("waits for a device" in found) is silent


def test_waiting_for_other_ranks_is_known_whatever_a_gpu_does_meanwhile(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    made.operator("gloo:recv", 0.0, 5000.0)
    made.operator("aten::add_", 5000.0, 5500.0)
    assert not summarize(read_trace(made.write(tmp_path / "trace.json"))).silence


def test_events_without_a_kind_are_not_called_a_short_trace(tmp_path: Path) -> None:
    """As PyTorch's profiler wrote them before there was Kineto: names and threads only."""
    made = MadeTrace()
    made.events.append({"ph": "X", "name": "aten::conv2d", "pid": "CPU functions", "tid": 1, "ts": 1.0, "dur": 9e6})
    assert "of a kind" in str(summarize(read_trace(made.write(tmp_path / "trace.json"))).silence)


def test_why_there_is_no_verdict_is_told_in_the_readers_language(tmp_path: Path) -> None:
    made = MadeTrace()
    made.operator("aten::cudnn_convolution", 0.0, 5000.0)
    diagnosis = diagnose_in_no_words([read_trace(made.write(tmp_path / "trace.json"))])
    with language("zh"):
        assert outline(diagnosis).summary.startswith("有 GPU")
