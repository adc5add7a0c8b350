"""Where the time of GPUs goes in traces with planted timelines, whose answer is known to the microsecond."""

from pathlib import Path

import pytest

from perfdoctor.causes import CAUSES
from tests.builders.traces import ALL_REDUCE, ELEMENTWISE, GEMM, MadeTrace, account, shares, steady


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


@pytest.mark.parametrize(("capability", "cause"), [((8, 0), "gpu.no_tensor_cores"), ((7, 0), "gpu.compute")])
def test_single_precision_is_an_illness_where_tf32_would_serve(
    tmp_path: Path, capability: tuple[int, int], cause: str
) -> None:
    made = MadeTrace()
    made.gpu("some GPU", capability)
    made.launch("ampere_sgemm_128x64_tn", 0.0, 10.0, 2000.0)
    assert shares(made, tmp_path) == {cause: 1.0}


def test_grids_too_small_for_the_gpu(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu(multiprocessors=132)
    made.launch(GEMM, 0.0, 10.0, 1010.0, grid=[4, 2, 1])
    made.launch(GEMM, 1.0, 1010.0, 2010.0, grid=[200, 2, 1])
    assert shares(made, tmp_path) == {"gpu.low_occupancy": 0.5, "gpu.compute": 0.5}


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
