"""Advice about GPUs fits the GPU, its memory, and what traces show: checkpointing only where work is done again."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.traces.account import account_for
from perfdoctor.traces.rank import measure_trace
from perfdoctor.traces.reader import read_trace
from tests.builders.cases import changes, finding, titles
from tests.builders.traces import GEMM, MadeTrace, diagnose_traces
from tests.files import real

GPU_BYTES = 80_000_000_000


def fixes(**numbers: float) -> list[Fix]:
    return [fix for fix in finding("gpu.compute", numbers=numbers).fixes if fix.title.startswith("Checkpoint")]


@pytest.mark.parametrize(
    ("memory", "first", "words"),
    [
        ({}, "fewer", "was not seen: check that first"),
        ({"traced_memory": 0.4}, "fewer", "60% of the memory is free"),
        ({"gpu_memory_share": 0.5, "traced_memory": 0.95}, "fewer", "50% of the memory is free"),
        ({"traced_memory": 0.95}, "selectively", "95% of the memory is in use"),
    ],
)
def test_what_memory_allows_comes_first(memory: dict[str, float], first: str, words: str) -> None:
    found = fixes(traced_recomputed=0.3, **memory)
    assert first in found[0].title
    assert words in " ".join(fix.why for fix in found)
    # Half of the time is the GPU's work, and three tenths of that are done again.
    assert [fix.predicted_speedup for fix in found] == [pytest.approx(1 / (1 - 0.15))] * 2


def test_without_such_work_nothing_is_advised() -> None:
    assert fixes() == []
    assert fixes(traced_recomputed=0.05) == []  # 2.5 % of the time
    assert fixes(traced_memory=0.1) == []


@pytest.mark.parametrize("cause", ["gpu.memory_bandwidth", "gpu.low_occupancy"])
def test_what_is_compiled_is_not_told_to_compile(cause: str) -> None:
    assert "model.compile()" in changes(finding(cause))
    assert "model.compile()" not in changes(finding(cause, settings={"compiled": "yes"}))


def test_what_runs_in_graphs_is_not_told_to_record_some() -> None:
    assert titles(finding("cpu.kernel_launch"))[0] == "Compile with CUDA graphs"
    found = finding("cpu.kernel_launch", settings={"graphs": "yes"}, lines=("serve.py:7 replay",))
    assert titles(found)[0] == "Launch less between the CUDA graphs"
    assert "serve.py:7 replay" in found.fixes[0].why


@pytest.mark.parametrize(
    ("cause", "settings"),
    [
        ("gpu.no_tensor_cores", {"compute_capability": 8.0}),
        ("gpu.no_tensor_cores", {"compute_capability": 7.5}),
        ("gpu.memory_bandwidth", {}),
    ],
)
def test_where_nothing_is_trained_no_loss_is_advised(cause: str, settings: dict[str, str | float]) -> None:
    assert "backward()" in changes(finding(cause, settings=settings))
    found = finding(cause, settings={**settings, "trains": "no"})
    assert "torch.inference_mode(), torch.autocast" in changes(found)
    assert "backward()" not in changes(found)
    assert not any("Train" in title for title in titles(found))


RUN = """
import sys, torch
linear = torch.nn.Linear(16, 16)
block, x = lambda x: torch.relu(linear(x)), torch.ones(4, 16, requires_grad=True)
*before, last = sys.stdin.read().splitlines()
exec("\\n".join([*before, f"y = {last}"]))
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    y.sum().backward()
names = [event.name for event in profiler.events()]
print(names.count("aten::addmm"), names.count("aten::relu"))
"""


def test_the_advice_runs_and_keeps_what_it_says() -> None:
    """Of a checkpointed block the matrix product is not computed again, and the rest is."""

    def computed_again(change: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", RUN], input=change, capture_output=True, text=True, check=True)
        return [int(number) for number in done.stdout.split()[-2:]]

    [change] = [fix.change for fix in fixes(traced_recomputed=0.3) if "selectively" in fix.title]
    products, relus = computed_again(change)
    # What is dispatched counts, and what is computed counts once more.
    assert computed_again(change.replace("operator in kept", "False")) == [products + 1, relus]


def with_memory(reserved: list[int], *, device: int = 0) -> MadeTrace:
    trace = MadeTrace()
    trace.gpu()
    trace.document["deviceProperties"][0]["totalGlobalMem"] = GPU_BYTES
    for number in range(10):
        trace.launch(GEMM, 100.0 * number, 100.0 * number + 10, 100.0 * number + 90)
    for number, size in enumerate(reserved):
        arguments = {"Device Type": 1, "Device Id": device, "Bytes": 512, "Total Reserved": size}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 100}
        trace.events.append({**event, "ts": 100.0 * number, "args": arguments})
    return trace


@pytest.mark.parametrize(
    ("trace", "used"),
    [
        (with_memory([8_000_000_000, 40_000_000_000, 20_000_000_000]), 0.5),
        (with_memory([8_000_000_000], device=-1), None),
        (with_memory([]), None),
    ],
)
def test_the_most_memory_is_read_from_the_trace(trace: MadeTrace, used: float | None, tmp_path: Path) -> None:
    measured = measure_trace(account_for(read_trace(trace.write(tmp_path / "trace.json"))))
    assert measured.get("traced_memory") == used


def test_a_real_job_with_checkpoints_is_told_what_they_cost() -> None:
    diagnosis = diagnose_traces([read_trace(real("resnet-checkpointing-mi300x-rank0-of-8"))])
    [fix] = [fix for one in diagnosis.findings for fix in one.fixes if fix.title.startswith("Checkpoint")]
    assert fix.predicted_speedup == pytest.approx(1.06, abs=0.02)
    assert "was not seen" in fix.why


@pytest.mark.parametrize("name", ["qwen-0.5b-h100", "resnet-ddp-v100-sound", "nanogpt-h100-adam-after"])
def test_real_jobs_without_are_not(name: str) -> None:
    diagnosis = diagnose_traces([read_trace(real(name))])
    assert not any(fix.title.startswith("Checkpoint") for one in diagnosis.findings for fix in one.fixes)


def test_who_empties_the_cache_with_room_left_is_told_that_first() -> None:
    keep = "Remove torch.cuda.empty_cache() from the step"
    assert titles(finding("gpu.memory_pressure", numbers={"gpu_memory_share": 0.5}))[0] == keep
    assert titles(finding("gpu.memory_pressure", numbers={"gpu_memory_share": 0.97}))[0] != keep


def test_allocator_settings_that_are_set_are_not_advised() -> None:
    title = "Let the allocator grow its segments"
    assert title in titles(finding("gpu.memory_pressure"))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        given = {f"env.{name}": "max_split_size_mb:64, expandable_segments: True"}
        assert title not in titles(finding("gpu.memory_pressure", settings=dict(given)))
    assert titles(finding("gpu.memory_pressure", settings={"env.PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}))[0].startswith(
        "Unset"
    )


def test_precision_follows_the_gpu() -> None:
    assert "bfloat16" in changes(finding("gpu.no_tensor_cores", settings={"compute_capability": 9.0}))
    old = changes(finding("gpu.no_tensor_cores", settings={"compute_capability": 7.0}))
    assert "bfloat16" not in old
    assert "GradScaler" in old
    forbidden = finding("gpu.no_tensor_cores", settings={"env.NVIDIA_TF32_OVERRIDE": "0"})
    assert "Unset NVIDIA_TF32_OVERRIDE" in titles(forbidden)


@pytest.mark.parametrize(("capability", "words"), [(9.0, "bfloat16"), (7.0, "GradScaler"), (6.1, None), (None, None)])
def test_precision_is_asked_for_where_no_counter_tells(capability: float | None, words: str | None) -> None:
    settings: dict[str, str | float] = {} if capability is None else {"compute_capability": capability}
    blind = finding("gpu.compute", settings=settings)
    assert [words in fix.change for fix in blind.fixes] == ([] if words is None else [True])
    for seen in ("gpu_tensor", "traced_kernel_time"):
        assert finding("gpu.compute", settings=settings, numbers={seen: 0.5}).fixes == ()


def test_full_precision_on_tensor_cores_for_half_precision_only_is_advice() -> None:
    """No bottleneck: it takes a change of the training recipe."""

    def advised(name: str, capability: float, full: float) -> Finding:
        numbers = {"traced_kernel_time": 100.0, "traced_matrix_fp32": full}
        return finding("gpu.compute", settings={"gpu_name": name, "compute_capability": capability}, numbers=numbers)

    old = advised("Tesla V100-SXM2-32GB", 7.0, 0.9)
    assert "GradScaler" in changes(old)
    # Of nine tenths of it seven eighths may go, by the peaks in float16 and float32.
    assert old.fixes[0].speedup_range is not None
    assert old.fixes[0].speedup_range[1] == pytest.approx(1 / (1 - old.share * 0.9 * (1 - 15.7 / 125)))
    for others in (("Tesla V100-SXM2-32GB", 7.0, 0.2), ("NVIDIA GeForce GTX 1650", 7.5, 1.0), ("NVIDIA A10", 8.6, 1.0)):
        assert advised(*others).fixes == ()


@pytest.mark.parametrize(("capability", "words"), [(None, "bfloat16"), (9.0, "bfloat16"), (7.0, "float16")])
def test_bytes_are_halved_in_what_the_gpu_computes_in(capability: float | None, words: str) -> None:
    settings: dict[str, str | float] = {} if capability is None else {"compute_capability": capability}
    halved = next(
        fix for fix in finding("gpu.memory_bandwidth", settings=settings).fixes if fix.title.startswith("Halve")
    )
    assert halved.why.startswith(f"Activations in {words} ")
    assert f"dtype=torch.{words}" in halved.change


def test_pinned_batches_are_not_pinned_again() -> None:
    assert "pin_memory=True" in changes(finding("gpu.host_transfer", settings={"pin_thread": "no"}))
    pinned = changes(finding("gpu.host_transfer", settings={"pin_thread": "yes"}))
    assert "pin_memory=True" not in pinned
    assert "non_blocking=True" in pinned


def test_the_reason_for_low_clocks_decides_the_remedy() -> None:
    assert titles(finding("gpu.throttled", numbers={"gpu_limited_by_heat": 0.9}))[0] == "Cool the GPU"
    power = finding("gpu.throttled", numbers={"gpu_limited_by_power": 0.9, "gpu_limited_by_heat": 0.0})
    assert titles(power)[0].startswith("Raise the power limit")
    assert titles(finding("gpu.throttled")) == ["Check for locked clocks"]


def test_copies_that_a_trace_shows_pinned_are_not_pinned_again() -> None:
    pinned = changes(finding("gpu.host_transfer", numbers={"traced_pageable": 0.0}))
    assert "pin_memory=True" not in pinned
    assert "non_blocking=True" in pinned
    assert "pin_memory=True" in changes(finding("gpu.host_transfer", numbers={"traced_pageable": 0.5}))


def test_tensor_cores_do_not_make_matrix_products_free() -> None:
    traced = {"traced_kernel_time": 1.0}
    assert finding("gpu.no_tensor_cores", numbers=traced, settings={"compute_capability": 9.0}).predicted_speedup < 8
    board = finding("gpu.no_tensor_cores", numbers=traced, settings={"compute_capability": 8.9})
    assert board.fixes[0].speedup_range is not None
    assert board.fixes[0].speedup_range[1] == pytest.approx(1 / (1 - board.share * 3 / 4))


@pytest.mark.parametrize("traced", [True, False], ids=["traced", "sampled"])
def test_what_tensor_cores_bring_follows_the_peaks_of_the_gpu(traced: bool) -> None:
    """The share of counters is what the fastest precision frees already."""
    settings: dict[str, str | float] = {"gpu_name": "NVIDIA H200", "compute_capability": 9.0}
    found = finding("gpu.no_tensor_cores", settings=settings, numbers={"traced_kernel_time": 1.0} if traced else {})
    half, single = (fix.speedup_range for fix in found.fixes[:2])
    assert half is not None
    assert single is not None
    full = found.share if traced else found.share / (1 - 67 / 989.5)
    assert half == pytest.approx((1 / (1 - full / 2), 1 / (1 - full * (1 - 67 / 989.5))))
    assert single == pytest.approx((1 / (1 - full / 2), 1 / (1 - full * (1 - 67 / 494.5))))


def test_fused_attention_and_layouts_are_advised_where_kernels_ask_for_them() -> None:
    attention, layouts = "Use fused attention", "Keep convolutions in channels last"
    assert attention in titles(finding("gpu.memory_bandwidth"))
    for convolutions in (True, False):
        settings: dict[str, str | float] = {"convolutions": "yes"} if convolutions else {}
        assert (layouts in titles(finding("gpu.memory_bandwidth", settings=settings))) is convolutions
    traced = titles(finding("gpu.memory_bandwidth", numbers={"traced_kernel_time": 9.0, "traced_softmax": 0.2}))
    assert attention in traced
    assert layouts not in traced


def test_padding_is_advised_for_gpus_too() -> None:
    found = finding("gpu.compute", settings={"pads_all": "data.py:40 encode"})
    assert "Pad each batch to its longest text instead of every text to one length" in titles(found)


@pytest.mark.parametrize(("optimizer", "told"), [(0.55, True), (0.05, False)])
def test_an_update_on_the_cpu_is_taken_to_the_gpu(optimizer: float, told: bool) -> None:
    found = finding("cpu.python_overhead", share=0.6, trainer={"own_on_host": 0.6}, optimizer=optimizer)
    assert found.title == "Work of operators on the host"
    assert ("Update the parameters on the GPU" in titles(found)) is told
