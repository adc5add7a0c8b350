"""What an idle GPU is charged to, in traces with planted timelines: what the host does that its work is late."""

from pathlib import Path

import pytest

from tests.builders.traces import ELEMENTWISE, GEMM, LOADER, MadeTrace, account, loop, shares, steady


def test_idle_while_a_batch_is_fetched_is_input(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in range(10):
        made.annotation(LOADER, number * 3600.0, number * 3600.0 + 2900.0)
    assert shares(made, tmp_path)["cpu.input_preprocessing"] == pytest.approx(2900 / 3600, abs=0.02)


def test_idle_while_memory_is_allocated_is_memory_pressure(tmp_path: Path) -> None:
    made = loop(600.0, 3000.0)
    for number in range(10):
        made.call("cudaFree", number * 3600.0, number * 3600.0 + 2900.0)
    assert shares(made, tmp_path)["gpu.memory_pressure"] == pytest.approx(2900 / 3600, abs=0.02)


def test_idle_between_small_operators_is_launching(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(200):
        made.operator("aten::add", number * 50.0, number * 50.0 + 20.0)
        made.launch(ELEMENTWISE, number * 50.0 + 10.0, number * 50.0 + 16.0, number * 50.0 + 21.0)
    found = shares(made, tmp_path)
    assert found["cpu.kernel_launch"] == pytest.approx(45 / 50, abs=0.01)
    assert "cpu.synchronization" not in found


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaMemcpyAsync", "hipDeviceSynchronize"])
def test_a_wait_is_charged_for_the_lead_that_it_cost(tmp_path: Path, name: str) -> None:
    """The host needs 400 us per step and the GPU 600: without the wait it would always be ahead.

    A blocking cudaMemcpyAsync to the host is a wait too, although its name does not say so.
    """
    made = MadeTrace()
    made.gpu()
    for number in range(20):
        start = number * 1000.0
        made.operator("aten::mm", start, start + 390.0)
        made.launch(GEMM, start + 390.0, start + 400.0, start + 1000.0)
        call = made.call(name, start + 400.0, start + 1000.0)
        if name == "cudaMemcpyAsync":
            made.on_device(
                "Memcpy DtoH (Device -> Pageable)", start + 999.0, start + 1000.0, call, category="gpu_memcpy"
            )
    found = shares(made, tmp_path)
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.03)
    assert found.get("cpu.kernel_launch", 0.0) < 0.01


def test_waiting_for_a_gpu_that_works_costs_nothing(tmp_path: Path) -> None:
    """A long cudaStreamSynchronize at the end of a step, while the queue is full."""
    made = steady()
    made.call("cudaStreamSynchronize", 200.0, 10_000.0)
    assert shares(made, tmp_path)["gpu.compute"] == pytest.approx(1.0, abs=0.001)


def test_a_wait_does_not_excuse_a_slow_host(tmp_path: Path) -> None:
    """The host needs 900 us per step, the GPU 100: without the wait the GPU would idle as well."""
    made = MadeTrace()
    made.gpu()
    for number in range(20):
        start = number * 1000.0
        made.operator("aten::mm", start, start + 890.0)
        made.launch(GEMM, start + 890.0, start + 900.0, start + 1000.0)
        made.call("cudaStreamSynchronize", start + 900.0, start + 1000.0)
    found = shares(made, tmp_path)
    assert found["cpu.kernel_launch"] == pytest.approx(0.8, abs=0.03)
    assert found["cpu.synchronization"] == pytest.approx(0.1, abs=0.03)


def test_idle_that_nothing_explains_is_unattributed(tmp_path: Path) -> None:
    found = shares(loop(600.0, 3000.0), tmp_path)
    assert found["unattributed"] == pytest.approx(3000 / 3600, abs=0.02)


def test_work_that_is_queued_makes_nobody_late(tmp_path: Path) -> None:
    """Short pauses between queued kernels are the GPU's own; the host is far ahead."""
    made = MadeTrace()
    made.gpu()
    for number in range(1000):
        made.launch(GEMM, number * 1.0, 5000.0 + number * 10.0, 5008.0 + number * 10.0)
    found = shares(made, tmp_path)
    assert found["gpu.low_occupancy"] == pytest.approx(0.2, abs=0.01)
    assert found.get("cpu.kernel_launch", 0.0) == 0.0


@pytest.mark.parametrize("pause", [40.0, 150.0])
def test_a_host_that_waits_does_not_hold_up_queued_kernels_of_one_stream(pause: float, tmp_path: Path) -> None:
    """All was launched long before: the device takes its time from one kernel to the next."""
    made = MadeTrace()
    made.gpu()
    for number in range(100):
        made.launch(GEMM, number * 5.0, 5000.0 + number * 500.0, 5500.0 - pause + number * 500.0)
    made.call("cudaDeviceSynchronize", 600.0, 55_000.0)
    found = shares(made, tmp_path)
    assert found["gpu.low_occupancy"] == pytest.approx(pause / 500, abs=0.01)
    assert found.get("cpu.synchronization", 0.0) == 0.0


def test_what_is_queued_behind_another_stream_waits_with_the_host(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(100):
        start = 5000.0 + number * 500.0
        made.launch(GEMM, number * 5.0, start, start + 400.0, stream=7 + number % 2)
    made.call("cudaDeviceSynchronize", 600.0, 55_000.0)
    assert shares(made, tmp_path)["cpu.synchronization"] == pytest.approx(0.2, abs=0.01)


def test_a_call_that_launches_for_long_is_launching(tmp_path: Path) -> None:
    """A graph of many kernels: its launch takes three quarters of the GPU's idle time, an operator the rest."""
    made = MadeTrace()
    made.gpu()
    for number in range(20):
        start = number * 1200.0
        made.operator("aten::copy_", start, start + 300.0)
        launched = made.call("cudaGraphLaunch", start + 300.0, start + 1195.0)
        made.on_device(GEMM, start + 1200.0, start + 1210.0, launched)
    found = shares(made, tmp_path)
    assert found["cpu.kernel_launch"] == pytest.approx(900 / 1200, abs=0.03)
    assert found["cpu.python_overhead"] == pytest.approx(290 / 1200, abs=0.03)


def test_first_time_work_is_not_launching(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(5):
        start = number * 100_000.0
        made.on_device(
            GEMM, start + 90_000.0, start + 100_000.0, made.call("cudaLaunchKernel", start, start + 89_995.0)
        )
    found = shares(made, tmp_path)
    assert found["cpu.startup"] > 0.85
    assert found.get("cpu.kernel_launch", 0.0) < 0.01


def test_operators_that_launch_nothing_for_long_are_not_launching(tmp_path: Path) -> None:
    """Per step of 3.6 ms, 3 ms of operators; with a launch every 0.2 ms the same ones are launching."""
    made, launching = loop(600.0, 3000.0), loop(600.0, 3000.0)
    for number in range(10):
        for one in range(14):
            start = number * 3600.0 + one * 200.0
            for trace in (made, launching):
                trace.operator("aten::add", start, start + 190.0)
            launching.launch(GEMM, start + 180.0, start + 190.0, start + 195.0)
    found, other = shares(made, tmp_path), shares(launching, tmp_path)
    assert found["cpu.python_overhead"] == pytest.approx(3000 / 3600, abs=0.03)
    assert found.get("cpu.kernel_launch", 0.0) < 0.02
    assert other["cpu.kernel_launch"] == pytest.approx(3000 / 3600, abs=0.05)
    assert other.get("cpu.python_overhead", 0.0) < 0.02


def test_work_that_queues_at_the_beginning_waited_for_what_was_not_recorded(tmp_path: Path) -> None:
    """A trace without steps: the second kernel was launched at once, and begins when earlier work is done."""
    made = MadeTrace()
    made.gpu()
    made.launch(GEMM, 0.0, 10.0, 15.0)
    for number in range(20):
        made.launch(GEMM, 20.0 + number * 10.0, 50_000.0 + number * 1000.0, 50_990.0 + number * 1000.0)
    one = account(made, tmp_path)
    assert one.window.start == pytest.approx(50_000_000, abs=1000)
    assert one.shares["gpu.compute"] > 0.98


@pytest.mark.parametrize("parallel", [True, False])
def test_spreading_a_model_over_gpus_is_data_parallels_only_where_that_runs(tmp_path: Path, *, parallel: bool) -> None:
    """Per step of 3600 us, 1900 us of replicating on an idle GPU, and 500 us of exposed collectives."""
    made = loop(600.0, 3000.0)
    for number in range(10):
        start = number * 3600.0
        if parallel:
            made.annotation("DataParallel.forward", start, start + 3500.0)
        made.operator("Broadcast", start + 100.0, start + 2000.0)
        made.launch("ncclKernel_Broadcast_RING_LL_Sum_int8_t", start + 1990.0, start + 2000.0, start + 2500.0)
    found = shares(made, tmp_path)
    share = found.get("communication.data_parallel", 0.0)
    if parallel:
        assert share == pytest.approx(2400 / 3600, abs=0.06)
        assert not any(cause in found for cause in ("communication.bandwidth", "communication.unattributed_wait"))
    else:
        assert share == 0
        assert found["cpu.python_overhead"] > 0.4
