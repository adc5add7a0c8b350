"""torch.compile in traces: a bottleneck in every step, none at the start, and running compiled code is neither."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.traces.reader import read_trace
from tests.builders.traces import MadeTrace, account, diagnose_traces, loop, shares

FRAME_COMPILE = "_compile.compile_inner (dynamo_timed)"


def test_compiling_in_every_step_is_overhead_and_not_launching(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in range(10):
        made.operator(FRAME_COMPILE, number * 3600.0, number * 3600.0 + 2900.0)
        made.operator("aten::mm", number * 3600.0 + 100.0, number * 3600.0 + 2000.0)  # traced, on nothing
    found = shares(made, tmp_path)
    assert found["cpu.python_overhead"] == pytest.approx(3000 / 3600, abs=0.02)  # 0.1 ms of each is outside of PyTorch
    assert found.get("cpu.kernel_launch", 0.0) < 0.05


def test_compiling_at_the_start_is_no_illness(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in range(2):
        made.operator(FRAME_COMPILE, number * 3600.0, number * 3600.0 + 2900.0)
    one = account(made, tmp_path)
    assert not one.recompiles
    assert one.shares["cpu.startup"] == pytest.approx(0.2 * 2900 / 3600, abs=0.02)


def test_a_late_compilation_is_an_illness_however_the_job_began(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in (0, 4, 7):
        made.operator(FRAME_COMPILE, number * 3600.0, number * 3600.0 + 2900.0)
    assert account(made, tmp_path).recompiles


def test_running_compiled_code_is_not_compiling(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in range(10):
        start = number * 3600.0
        made.operator("Torch-Compiled Region: 0/1", start, start + 2990.0)
        made.operator("TorchDynamo Cache Lookup", start, start + 10.0)
        made.operator("CompiledFunction", start + 20.0, start + 2980.0)
    found = shares(made, tmp_path)
    assert found["cpu.python_overhead"] == pytest.approx(3000 / 3600, abs=0.03)  # 3 ms in which nothing is launched
    assert not account(made, tmp_path).recompiles
    assert "cpu.startup" not in found


@pytest.mark.parametrize(("captures", "cause"), [(1, "cpu.startup"), (10, "cpu.kernel_launch")])
def test_launches_that_become_a_graph_run_nothing(captures: int, cause: str, tmp_path: Path) -> None:
    """At the job's start it is set-up; a graph that is captured in each step costs what it should save."""
    made = loop(600.0, 3000.0)
    for number in range(captures):
        start = number * 3600.0
        made.call("cudaStreamBeginCapture_v10000", start + 10.0, start + 15.0)
        for launch in range(28):
            made.operator("aten::mm", start + 20.0 + 100.0 * launch, start + 110.0 + 100.0 * launch)
            made.call("cudaLaunchKernel", start + 100.0 + 100.0 * launch, start + 104.0 + 100.0 * launch)
        made.call("cudaStreamEndCapture_v10000", start + 2820.0, start + 2830.0)
        made.call("cudaGraphInstantiateWithFlags_v11040", start + 2835.0, start + 2900.0)
    found = shares(made, tmp_path)
    assert found[cause] == pytest.approx(captures / 10 * 2900 / 3600, abs=0.05)


def test_compiling_on_the_cpu_is_not_the_models_arithmetic(tmp_path: Path) -> None:
    made = MadeTrace()
    for number in range(4):
        start = number * 10_000.0
        made.step(number, start, start + 10_000.0)
        made.operator(FRAME_COMPILE, start, start + 8000.0)
        made.operator("aten::mm", start + 100.0, start + 7000.0)
        made.operator("aten::mm", start + 8000.0, start + 10_000.0)
    found = shares(made, tmp_path)
    assert found["cpu.python_overhead"] == pytest.approx(0.8, abs=0.01)
    assert found["cpu.model_compute"] == pytest.approx(0.2, abs=0.01)


def test_a_job_that_really_compiles_in_every_step_is_told_so(tmp_path: Path) -> None:
    """The marks are PyTorch's own, of the version that is installed."""
    trace = tmp_path / "trace.json"
    target = Path(__file__).parents[2] / "targets" / "recompiling.py"
    command = [sys.executable, str(target), str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert trace.exists(), done.stderr
    diagnosis = diagnose_traces([read_trace(trace)])
    assert diagnosis.verdict.cause == "cpu.python_overhead"
    assert "Compiling the model again and again" in diagnosis.findings[0].summary
    assert [fix.title for fix in diagnosis.findings[0].fixes] == ["Keep torch.compile from compiling again"]
