"""Collectives and kernels that share a GPU: their fault is no fault of the network, in planted and real traces."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from perfdoctor.cluster.files import find_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.metrics.statistics import compare_kinds
from perfdoctor.traces.account import account_for
from perfdoctor.traces.collectives import list_collectives
from perfdoctor.traces.interference import bus_factor, measure_beside_collectives
from perfdoctor.traces.reader import read_trace
from tests.builders.rank_traces import MadeJob, shares
from tests.builders.traces import ALL_REDUCE, ELEMENTWISE, GEMM, MadeTrace, diagnose_traces
from tests.files import real

STEPS = 10
SLOWER = 1.4


def overlapping(folder: Path, *, slower: float = SLOWER, noise: float = 0.01, share: bool = True) -> Path:
    """Steps of 16 kernels of 500 us; a collective runs behind the last eight, which take longer meanwhile.

    Args:
        folder: to write to.
        slower: how many times as long kernels take beside it.
        noise: what kernels of a kind differ by.
        share: whether the first eight are the same kernels; otherwise nothing shows what the last ones take alone.
    """
    random = Random(3)
    made = MadeTrace()
    made.gpu()
    now = 1000.0
    for step in range(STEPS):
        begun = now
        for number in range(16):
            behind = number >= 8
            kind = ELEMENTWISE if number % 2 else GEMM
            block = [256 if behind and not share else 128, 1, 1]
            length = 500.0 * (slower if behind else 1.0) * random.gauss(1.0, noise)
            made.operator("aten::op", now - 900.0, now - 890.0)
            made.launch(kind, now - 895.0, now, now + length, block=block)
            if number == 8:
                made.launch(ALL_REDUCE, now - 880.0, now + 1.0, now + 8 * 500.0 * slower * 0.98, stream=20)
            now += length
        made.step(step, begun - 1.0, now - 1.1)
    return made.write(folder / "trace.json")


def diagnose(path: Path) -> Diagnosis:
    return diagnose_traces(read_trace(one) for one in find_traces([path]))


def told(diagnosis: Diagnosis, cause: str, words: str) -> float | None:
    """A number of the evidence for a cause, by words of its name."""
    found = next(one for one in diagnosis.findings if one.cause == cause)
    return next((float(one.value) for one in found.evidence if words in one.name), None)


def test_kernels_that_take_longer_beside_a_collective_are_told(tmp_path: Path) -> None:
    diagnosis = diagnose(overlapping(tmp_path))
    assert diagnosis.verdict.cause == "gpu.compute"
    # What is hidden stays no cost: no share for communication.
    assert sum(share for cause, share in shares(diagnosis).items() if cause.startswith("communication.")) < 0.001
    assert told(diagnosis, "gpu.compute", "beside a collective") == pytest.approx(SLOWER, rel=0.03)
    # Eight kernels of 500 us, each 0.2 ms longer: 1.6 ms of a step of 9.6 ms.
    assert told(diagnosis, "gpu.compute", "per step") == pytest.approx(1.6, rel=0.05)
    found = next(one for one in diagnosis.findings if one.cause == "gpu.compute")
    [fix] = [one for one in found.fixes if one.title == "Give collectives fewer multiprocessors"]
    assert fix.predicted_speedup == pytest.approx(9.6 / 8.0, abs=0.02)
    assert "NCCL_MAX_CTAS" in fix.change


@pytest.mark.parametrize("slower", [1.0, 0.8])
def test_kernels_that_do_not_are_not(slower: float, tmp_path: Path) -> None:
    diagnosis = diagnose(overlapping(tmp_path, slower=slower, noise=0.05))
    assert told(diagnosis, "gpu.compute", "slowed down by collectives") == 0.0
    assert told(diagnosis, "gpu.compute", "beside a collective") is None
    assert not any("multiprocessors" in fix.title for one in diagnosis.findings for fix in one.fixes)


def test_other_blocks_are_other_kernels(tmp_path: Path) -> None:
    """The same names, longer, and only ever beside a collective: perhaps there is just more work in them."""
    diagnosis = diagnose(overlapping(tmp_path, share=False))
    assert told(diagnosis, "gpu.compute", "longer") is None


def gathering(
    *, behind: float, alone: float = 1000.0, world: int = 2, elements: int = 50_000_000, jitter: float = 0.0
) -> MadeJob:
    """Two gatherings in each step: one alone, one behind a kernel of 500 us that is too short to hide it.

    Args:
        behind: microseconds that the second one takes.
        alone: what the first one takes.
        world: ranks.
        elements: that each carries.
        jitter: by how much ranks differ in their kernels, and so come late.
    """
    job = MadeJob(world, numbered=True, size=elements)
    for made in job.traces:  # it trains
        made.operator("autograd::engine::evaluate_function: MmBackward0", 900.0, 980.0)
    random = Random(5)

    def second(made: MadeTrace, now: float) -> None:
        message = {**job._message("0", world), "Seq": job.exchanges}
        made.launch(ALL_REDUCE, now - 4.0, now + 1.0, now + 1.0 + behind, stream=20, **message)

    for _ in range(STEPS):
        begun = list(job.now)
        for rank in range(world):
            job.compute(rank, 1000.0 + jitter * random.random())
        job.meet(alone)
        for rank in range(world):
            job.compute(rank, 0.7 * behind, hidden=second)
            job.now[rank] += 0.3 * behind + 2.0
        job.exchanges += 1
        job.step(begun)
    return job


def test_a_collective_that_is_slow_behind_kernels_is_not_the_networks_fault(tmp_path: Path) -> None:
    diagnosis = gathering(behind=3000.0, jitter=300.0).diagnose(tmp_path)
    cause = "communication.bandwidth"
    assert told(diagnosis, cause, "collectives behind kernels") == pytest.approx(3.0, rel=0.02)
    # 200 MB in a millisecond between two ranks.
    assert told(diagnosis, cause, "when alone") == pytest.approx(200.0, rel=0.02)
    assert told(diagnosis, cause, "same collective behind") == pytest.approx(200.0 / 3, rel=0.02)
    found = next(one for one in diagnosis.findings if one.cause == cause)
    # Exposed are 1 ms alone and 0.9 behind a kernel; all of the latter would not be there.
    held = told(diagnosis, cause, "would not take alone")
    assert held is not None
    assert held == pytest.approx(0.9 / 1.9 * found.share, rel=0.05)


def test_where_that_is_most_of_it_the_advice_is_about_sharing(tmp_path: Path) -> None:
    diagnosis = gathering(behind=8000.0).diagnose(tmp_path)
    found = next(one for one in diagnosis.findings if one.cause == "communication.bandwidth")
    held = told(diagnosis, found.cause, "would not take alone")
    assert held is not None
    assert held > 0.5 * found.share
    assert "network is not to blame" in found.summary
    assert found.fixes[0].title == "Give collectives a stream of high priority"
    assert "faster network would not help" in found.fixes[0].why
    assert found.predicted_speedup == pytest.approx(1 / (1 - held), abs=0.01)


def test_a_slow_network_stays_to_blame(tmp_path: Path) -> None:
    """As slow alone as behind kernels."""
    diagnosis = gathering(behind=3000.0, alone=3000.0, jitter=300.0).diagnose(tmp_path)
    found = next(one for one in diagnosis.findings if one.cause == "communication.bandwidth")
    assert told(diagnosis, found.cause, "would not take alone") == 0.0
    assert "to blame" not in found.summary
    assert not any("priority" in fix.title for fix in found.fixes)


def test_one_rank_alone_tells_only_by_its_fastest(tmp_path: Path) -> None:
    """Waiting for the other rank before the first gathering does not count as transfer."""
    diagnosis = gathering(behind=3000.0, jitter=300.0).diagnose(tmp_path, ranks=[0])
    cause = "communication.unattributed_wait"
    assert told(diagnosis, cause, "collectives behind kernels") == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("allreduce", 1.75), ("_allgather_base", 0.875), ("reduce_scatter", 0.875), ("all_to_allv", 0.875), ("send", 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(operation: str, factor: float) -> None:
    assert bus_factor(operation, 8) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("kind", "size"), [("Float", 4), ("BFloat16", 2), ("c10::Half", 2), ("Long", 8), ("Float8_e4m3fn", 1), ("Byte", 1)]
)
def test_bytes_are_those_of_the_element_type(kind: str, size: int, tmp_path: Path) -> None:
    made = MadeTrace()
    message = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": kind}
    made.launch(ALL_REDUCE, 0.0, 10.0, 2000.0, **message)
    [read] = list_collectives(account_for(read_trace(made.write(tmp_path / "trace.json")))).size
    assert read == 1000 * size


def test_chance_is_no_difference() -> None:
    """The same distribution, with and without something beside it: at most one in ten such jobs is mistaken."""
    random = Random(7)
    mistaken = 0
    for _ in range(100):
        taken = np.array([random.gauss(100.0, 10.0) for _ in range(60)])
        beside = np.array([random.random() < 0.3 for _ in range(60)])
        mistaken += compare_kinds(np.repeat([0, 1, 2], 20), taken, ~beside, beside).sure
    assert mistaken <= 10


def test_what_takes_different_times_alone_is_several_kinds() -> None:
    taken = np.array([100.0, 200.0] * 10 + [300.0] * 10)
    beside = np.array([False] * 20 + [True] * 10)
    assert compare_kinds(np.zeros(30, dtype=np.int64), taken, ~beside, beside).kinds == ()


def test_real_jobs_with_contention_are_seen() -> None:
    """Kernels of one name and geometry beside reduce-scatters of an optimizer: 1.5 to 2.4 times as long."""
    found = measure_beside_collectives(account_for(read_trace(real("nanogpt-h100-adam-before"))))
    assert 1.3 < found["traced_beside"] < 2.5
    assert found["traced_lengthened"] < 0.01  # and few kernels were also seen alone
    diagnosis = diagnose(real("nanogpt-8xh100"))
    assert told(diagnosis, "communication.bandwidth", "collectives behind kernels") == pytest.approx(1.19, abs=0.05)
    alone = told(diagnosis, "communication.bandwidth", "when alone")
    assert alone is not None
    assert 200 < alone < 450  # GB/s; one H100 has 450 to the others


@pytest.mark.parametrize("name", ["resnet-checkpointing-mi300x-rank0-of-8", "mlp-ddp-v100-rank1-of-2"])
def test_real_jobs_without_are_silent(name: str) -> None:
    """In the first, kernels beside collectives take no longer; the second hides none of its collectives."""
    assert measure_beside_collectives(account_for(read_trace(real(name)))).get("traced_lengthened", 0.0) == 0.0
