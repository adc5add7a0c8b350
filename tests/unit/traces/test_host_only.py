"""Where time goes in traces of jobs without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.traces.account import account_for
from perfdoctor.traces.rank import summarize
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import LOADER, MadeTrace, diagnose_traces, shares
from tests.files import TARGETS


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


@pytest.mark.parametrize(("loader", "advice"), [(False, "2 * batch_size"), (True, "DataLoader(")])
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
