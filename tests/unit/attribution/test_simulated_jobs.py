"""Simulated jobs on a GPU, one of each kind, are judged by what was planted in them."""

import pytest

from tests.gpu_jobs.score import judge

SOUND = "gpu.compute"
# A share may be off by so much: the simulation's own step times vary from second to second.
TOLERANCE = 0.2


@pytest.mark.parametrize(
    ("planted", "seed"),
    [
        ("kernel_launch", 3000),
        ("synchronization", 3000),
        ("own_python", 3000),
        ("recompilation", 3000),
        ("slow_workers", 3000),
        ("slow_pinning", 3000),
        ("checkpoints", 3000),
        ("gil_contention", 3001),
        ("crowded", 3000),
        ("quota", 3000),
        ("pageable", 3000),
        ("queued_copy", 3000),
        ("churn", 3000),
        ("heat", 3000),
        ("power_brake", 3000),
        ("neighbour", 3000),
        ("no_tensor_cores", 3000),
        ("late_host", 3005),
        ("late_storage", 3002),
        ("late_gpu", 3005),
    ],
)
def test_a_simulated_job_is_judged_by_what_was_planted(planted: str, seed: int) -> None:
    judged = judge(seed, planted)
    assert judged.cause_right, judged
    assert judged.share == pytest.approx(judged.truth, abs=TOLERANCE)
    assert judged.confidence <= 0.7


@pytest.mark.parametrize("seed", [3000, 3001, 3002])
def test_nothing_is_claimed_of_a_sound_simulated_job(seed: int) -> None:
    assert judge(seed, SOUND).bottleneck_right
