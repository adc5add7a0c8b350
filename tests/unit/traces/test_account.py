"""Where the time of GPUs goes in traces with planted timelines, whose answer is known to the microsecond."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.causes import CAUSES
from perfdoctor.traces.account import account_for
from perfdoctor.traces.rank import summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import (
    ALL_REDUCE,
    ELEMENTWISE,
    GEMM,
    LOADER,
    MadeTrace,
    account,
    diagnose_traces,
    shares,
    steady,
)
from tests.files import TARGETS


def test_a_busy_gpu_is_healthy(tmp_path: Path) -> None:
    assert shares(steady(), tmp_path)["gpu.compute"] == pytest.approx(1.0, abs=0.001)


def test_shares_sum_to_one_whatever_happens(tmp_path: Path) -> None:
    made = steady()
    made.launch(ALL_REDUCE, 120.0, 5005.0, 11_000.0, stream=20)
    made.on_device("Memcpy HtoD (Pageable -> Device)", 11_500.0, 12_000.0, 999, category="gpu_memcpy", stream=7)
    found = account(made, tmp_path).shares
    assert sum(found.values()) == pytest.approx(1.0)
    assert found.keys() <= CAUSES.keys()


def test_what_is_hidden_behind_arithmetic_costs_nothing(tmp_path: Path) -> None:
    """Communication and copies on other streams: 4 ms hidden, 1 ms exposed of each."""
    made = steady()
    made.launch(ALL_REDUCE, 120.0, 6005.0, 11_005.0, stream=20)
    made.on_device("Memcpy HtoD (Pinned -> Device)", 8005.0, 12_005.0, made.call("cudaMemcpyAsync", 130.0, 135.0),
                   category="gpu_memcpy", stream=21)  # fmt: skip
    one = account(made, tmp_path)
    assert one.shares["communication.unattributed_wait"] == pytest.approx(1 / 12, abs=0.001)
    assert one.shares["gpu.host_transfer"] == pytest.approx(1 / 12, abs=0.001)
    assert one.devices[0].hidden_communication == 4_000_000


def test_memory_traffic_is_told_from_arithmetic(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number, name in enumerate(
        [GEMM, ELEMENTWISE, "void cudnn::bn_fw_tr_1C11_singleread<float>", "triton_red_fused_add_3"]
    ):
        made.launch(name, number * 1.0, 10.0 + number * 100, 110.0 + number * 100)
    assert shares(made, tmp_path) == {"gpu.memory_bandwidth": 0.75, "gpu.compute": 0.25}


@pytest.mark.parametrize(
    "kernel", ["ampere_sgemm_128x64_tn", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_aligna4"]
)
@pytest.mark.parametrize(("capability", "cause"), [((8, 0), "gpu.no_tensor_cores"), ((7, 0), "gpu.compute")])
def test_single_precision_is_an_illness_where_tf32_would_serve(
    tmp_path: Path, kernel: str, capability: tuple[int, int], cause: str
) -> None:
    made = MadeTrace()
    made.gpu("some GPU", capability)
    made.launch(kernel, 0.0, 10.0, 2000.0)
    assert shares(made, tmp_path) == {cause: 1.0}


def test_grids_too_small_for_the_gpu(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu(multiprocessors=132)
    made.launch(GEMM, 0.0, 10.0, 1010.0, grid=[4, 2, 1])
    made.launch(GEMM, 1.0, 1010.0, 2010.0, grid=[200, 2, 1])
    assert shares(made, tmp_path) == {"gpu.low_occupancy": 0.5, "gpu.compute": 0.5}


def test_a_grid_of_no_blocks_is_not_known(tmp_path: Path) -> None:
    """Some profilers write zeros where they do not know the grid."""
    made = MadeTrace()
    made.gpu(multiprocessors=132)
    made.launch(GEMM, 0.0, 10.0, 2010.0, grid=[0, 0, 0])
    assert shares(made, tmp_path) == {"gpu.compute": 1.0}


def test_what_recurs_is_not_the_start_where_a_first_call_comes_right_before_it(tmp_path: Path) -> None:
    """In each of three steps an operator works on the host for 6 ms; the first time, what calls it does so for 3 ms."""
    made = MadeTrace()
    made.gpu()
    for number in range(3):
        start, first = number * 20_000.0, 3000.0 if number == 0 else 5.0
        made.step(number, start, start + 20_000.0)
        made.operator("aten::randn", start, start + first + 6000.0)
        made.operator("aten::normal_", start + first, start + first + 6000.0)
        made.launch(GEMM, start + first + 6010.0, start + first + 6020.0, start + 20_000.0)
    found = shares(made, tmp_path)
    assert found["cpu.startup"] == pytest.approx(3 / 60, abs=0.01)
    assert found["cpu.python_overhead"] == pytest.approx(18 / 60, abs=0.01)


@pytest.mark.parametrize(("first", "cause"), [(True, "cpu.startup"), (False, "gpu.memory_pressure")])
def test_a_call_before_the_first_kernel_sets_the_device_up(tmp_path: Path, *, first: bool, cause: str) -> None:
    """A library's first call frees nothing and makes the driver load it; only a job that runs can lack memory."""
    made = MadeTrace()
    made.gpu()
    made.launch("Memset (Device)" if first else GEMM, 0.0, 10.0, 12.0)
    made.operator("aten::cudnn_convolution", 50.0, 200_040.0)
    made.call("cudaFree", 100.0, 200_000.0)
    for number in range(5):
        made.launch(GEMM, 200_010.0 + number, 200_020.0 + number * 1000, 200_020.0 + (number + 1) * 1000)
    assert shares(made, tmp_path)[cause] > 0.9


def test_the_fastest_collectives_show_what_the_transfer_takes(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    message = {
        "Collective name": "allreduce",
        "In msg nelems": 25_000_000,
        "Out msg nelems": 25_000_000,
        "dtype": "Float",
    }
    for number in range(10):
        start = number * 3000.0
        lasts = 1000.0 if number < 5 else 3000.0  # half of them wait 2 ms for some other rank
        made.launch(ALL_REDUCE, start, start + 10.0, start + 10.0 + lasts, **message)
        made.launch(GEMM, start + 1.0, start + 10.0 + lasts, start + 3010.0)
    found = shares(made, tmp_path)
    assert found["communication.bandwidth"] == pytest.approx(1 / 3, abs=0.01)
    assert found["communication.unattributed_wait"] == pytest.approx(1 / 3, abs=0.01)


def test_many_small_collectives_are_latency(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(100):
        made.launch(ALL_REDUCE, number * 1.0, 200.0 + number * 40.0, 240.0 + number * 40.0)
    assert shares(made, tmp_path) == {"communication.latency": 1.0}


def test_queued_work_from_before_the_trace_is_not_idleness(tmp_path: Path) -> None:
    """The first launch of the first step has to queue for 50 ms: for work that the profiler did not see begin."""
    made = MadeTrace()
    made.gpu()
    made.step(1, 0.0, 1000.0)
    for number in range(10):
        made.launch(GEMM, 100.0 + number * 10, 50_000.0 + number * 1000, 51_000.0 + number * 1000)
    assert shares(made, tmp_path) == {"gpu.compute": 1.0}


def test_the_profilers_own_work_after_the_last_kernel_does_not_count(tmp_path: Path) -> None:
    made = steady()
    made.step(2, 200.0, 500_000.0)
    made.operator("aten::mm", 210.0, 250.0)
    assert shares(made, tmp_path)["gpu.compute"] > 0.99


def test_two_gpus_count_alike(tmp_path: Path) -> None:
    made = steady()
    made.launch(ELEMENTWISE, 150.0, 5.0, 10_005.0, device=1)
    found = shares(made, tmp_path)
    assert found["gpu.compute"] == pytest.approx(0.5, abs=0.001)
    assert found["gpu.memory_bandwidth"] == pytest.approx(0.5, abs=0.001)


def test_a_job_on_the_cpu_has_no_idle_gpu(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.annotation(LOADER, 0.0, 3000.0)
    made.operator("aten::linear", 3000.0, 8000.0)
    made.operator("aten::addmm", 3005.0, 7995.0)
    made.annotation("gloo:all_reduce", 8000.0, 10_000.0, thread=7)
    assert shares(made, tmp_path) == {
        "cpu.model_compute": pytest.approx(0.4985, abs=0.001),
        "cpu.input_preprocessing": 0.3,
        "communication.unattributed_wait": 0.2,
        "cpu.python_overhead": pytest.approx(0.0015, abs=0.001),
    }


def test_a_frame_that_waits_for_other_threads_does_no_work_of_its_own(tmp_path: Path) -> None:
    """With stacks the main thread is always in some frame; a rank that waits in the backward pass still waits."""
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.span("python_function", "train.py(3): step", 0.0, 10_000.0)
    made.operator("aten::mm", 2000.0, 5000.0)
    waiting = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
    made.span("python_function", waiting, 5000.0, 10_000.0)
    made.annotation("gloo:all_reduce", 5500.0, 9500.0, thread=7)
    assert shares(made, tmp_path) == {
        "cpu.model_compute": pytest.approx(0.3, abs=0.002),
        "communication.unattributed_wait": 0.4,
        "cpu.python_overhead": pytest.approx(0.3, abs=0.002),
    }


def test_what_the_profiler_records_while_a_batch_is_fetched_is_not_the_loaders_time(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.annotation(LOADER, 0.0, 3000.0)
    for number in range(1000):
        made.operator("aten::to", number * 3.0 + 0.5, number * 3.0 + 2.5)
    made.operator("aten::linear", 3000.0, 10_000.0)
    rank = summarize(read_trace(made.write(tmp_path / "trace.json")))
    assert rank.loading == pytest.approx(2 / 9, abs=0.002)  # 1000 records of 1 us
    assert rank.numbers["traced_loading"] == rank.loading


def test_operators_on_the_cpu_that_call_others_compute_too(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.operator("aten::convolution_backward", 0.0, 6000.0)
    made.operator("aten::empty", 1000.0, 1004.0)
    made.operator("MyFunctionBackward", 6000.0, 10_000.0)  # a user's own node, in Python
    made.operator("aten::add", 6500.0, 7500.0)
    assert shares(made, tmp_path) == {
        "cpu.model_compute": pytest.approx(0.5986 + 0.0995, abs=0.001),
        "cpu.python_overhead": pytest.approx(0.3019, abs=0.001),
    }


def test_arithmetic_that_pytorch_really_profiled_is_arithmetic(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    subprocess.run([sys.executable, str(TARGETS / "matrix_products.py"), str(file)], check=True, timeout=60)
    assert account_for(read_trace(file)).shares["cpu.model_compute"] > 0.7


@pytest.mark.parametrize(("loader", "advice"), [(False, "batch_size = 2 * batch_size"), (True, "DataLoader(")])
def test_a_loader_is_advised_only_where_batches_come_from_one(tmp_path: Path, loader: bool, advice: str) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    for number in range(900):
        made.operator("aten::add", number * 10.0, number * 10.0 + 6.0)
    if loader:
        made.annotation(LOADER, 9500.0, 9600.0)
    found = diagnose_traces([read_trace(made.write(tmp_path / "trace.json"))])
    larger = [fix for fix in found.findings[0].fixes if fix.title == "Use a larger batch"]
    assert found.verdict.cause == "cpu.python_overhead"
    assert [fix.change.startswith(advice) for fix in larger] == [True]


@pytest.mark.parametrize("workers", [False, True])
def test_what_a_trace_of_a_cpu_cannot_tell_is_said(tmp_path: Path, workers: bool) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.annotation(LOADER.replace("_SingleProcess", "_MultiProcessing") if workers else LOADER, 0.0, 300.0)
    made.operator("aten::linear", 300.0, 10_000.0)
    found = diagnose_traces([read_trace(made.write(tmp_path / "trace.json"))])
    told = " ".join(missing.reason for missing in found.not_examined)
    assert found.verdict.cause == "cpu.model_compute"
    assert "lack a core" in told
    assert ("loader workers" in told) == workers


def test_tiny_operators_on_the_cpu_are_overhead(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    for number in range(1000):
        made.operator("aten::add", number * 10.0, number * 10.0 + 6.0)
    found = shares(made, tmp_path)
    assert found["cpu.python_overhead"] == pytest.approx(0.9, abs=0.01)
