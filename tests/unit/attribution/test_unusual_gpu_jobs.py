"""Jobs on a GPU that look unlike most: other drivers, other versions, ranks that nobody watches."""

from collections.abc import Mapping

import pytest

from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, Fact, Sample
from tests.builders import jobs
from tests.builders.gpu_hosts import DISPATCH, FORWARD, HSA, LOOP, PID, PYTHON, SPIN, gpu_job, shares

ARITHMETIC = ("libtorch_cpu.so", "mkl_blas_avx512_sgemm_kernel")


def test_waits_of_a_driver_that_asks_for_no_time_are_waits_also_where_the_job_asks_for_it() -> None:
    """AMD's runtime does not; the job's own loop does now and then, and that vouched for no wait."""
    draining = {HSA: 0.5, DISPATCH: 0.25, PYTHON: 0.245, SPIN: 0.005}
    found = shares(gpu_job(code=draining, stacks=(FORWARD, LOOP), busy_fraction=0.6))
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.05)
    assert found.get("cpu.kernel_launch", 0.0) < 0.05


def on_cpu(variables: Mapping[str, str] | None = None) -> list[Sample]:
    """A trainer on the CPU with a PyTorch that was built for CUDA, on a machine with a GPU."""
    return [
        *jobs.process(PID, **(variables or {})),
        *jobs.thread(PID, PID, "R", run=1.0),
        *jobs.thread(PID + 1, PID, "S", name="pt_autograd_0"),
        *jobs.stacks(PID, FORWARD),
        *jobs.named(PID, PID, 1),
        *jobs.code(PID, *ARITHMETIC, round(0.6 * CODE_FREQUENCY * jobs.SECONDS)),
        *jobs.code(PID, *DISPATCH, round(0.4 * CODE_FREQUENCY * jobs.SECONDS)),
        Fact(jobs.START, "gpu", f"pid:{PID}", "device_files", "nvidia"),
    ]


def of_gpu(**levels: float) -> list[Sample]:
    return [row for name, level in levels.items() for row in jobs.readings("gpu:0", name, *[level] * 20, every_s=0.5)]


def test_a_job_that_only_counted_the_gpus_computes_on_the_cpu() -> None:
    """The first backward pass asks for the devices, which starts autograd's threads and opens the driver's files."""
    samples = [*on_cpu(), *of_gpu(busy_fraction=0.0)]
    found = shares(samples)
    assert found["cpu.model_compute"] == pytest.approx(0.6, abs=0.02)
    assert found["cpu.python_overhead"] == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(
    ("levels", "computes"),
    [
        ({"job_processes": 0.0, "foreign_processes": 0.0, "busy_fraction": 0.0}, False),
        ({"job_processes": 0.0, "foreign_processes": 1.0, "busy_fraction": 0.9}, False),
        # Nobody is listed on a GPU that works.
        ({"job_processes": 0.0, "foreign_processes": 0.0, "busy_fraction": 0.9}, True),
        ({"busy_fraction": 0.0}, True),
    ],
)
def test_without_machine_code_the_driver_tells_who_computes_on_its_gpu(
    levels: Mapping[str, float], computes: bool
) -> None:
    samples = [row for row in on_cpu() if not isinstance(row, CodeSample)]
    assert jobs.timeline([*samples, *of_gpu(**levels)]).gpus.used_by(PID) == computes
