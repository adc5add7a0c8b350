"""Jobs on a GPU that look unlike most: other drivers, other versions, ranks that nobody watches."""

import pytest

from tests.builders.gpu_hosts import DISPATCH, FORWARD, HSA, LOOP, PYTHON, SPIN, gpu_job, shares


def test_waits_of_a_driver_that_asks_for_no_time_are_waits_also_where_the_job_asks_for_it() -> None:
    """AMD's runtime does not; the job's own loop does now and then, and that vouched for no wait."""
    draining = {HSA: 0.5, DISPATCH: 0.25, PYTHON: 0.245, SPIN: 0.005}
    found = shares(gpu_job(code=draining, stacks=(FORWARD, LOOP), busy_fraction=0.6))
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.05)
    assert found.get("cpu.kernel_launch", 0.0) < 0.05
