"""Hangs of jobs on GPUs, simulated: hosts that spin in the driver while their GPUs wait for one another.

What a GPU that hangs looks like was read in reports of others; none was seen.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor import Recording
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Stuck
from perfdoctor.stuck.follow import find_stuck
from perfdoctor.timeline.job import JobTimeline
from tests.gpu_jobs.device import H100, Use
from tests.gpu_jobs.job import Exchange, Job, Kernels, Step, Watch
from tests.gpu_jobs.loader import Input
from tests.gpu_jobs.simulate import simulate
from tests.gpu_jobs.watch import record

BUSY, LIGHT = Use(sm=0.9, tensor=0.5, dram=0.4), Use(sm=0.14, occupancy=0.03, heat=0.5)
STEP = Step(
    Kernels(300, 100, 20, BUSY), Kernels(690, 100, 20, BUSY), Kernels(10, 100, 20, BUSY), input=Input(2, 20.0)
)  # fmt: skip
HANGS = replace(STEP, hangs=True)
LONG = Step(
    Kernels(300, 30_000, 20, BUSY), Kernels(690, 30_000, 20, BUSY), Kernels(10, 100, 20, BUSY), input=Input(2, 20.0)
)  # fmt: skip
TINY = Step(Kernels(300, 100, 5, LIGHT), Kernels(690, 100, 5, LIGHT), Kernels(10, 100, 5, LIGHT), input=Input(2, 20.0))


def said(folder: Path, *steps: Step, exchange: Exchange | None = None) -> Stuck | None:
    job = Job(steps, H100, exchange=exchange or Exchange(), watch=Watch(seconds=12.0))
    with Recording.open(record(simulate(job), folder / "job.perfdoctor")) as recording:
        return find_stuck({"": JobTimeline(recording)})


def test_the_rank_in_a_lock_is_named_though_the_others_spin(tmp_path: Path) -> None:
    stuck = said(tmp_path, STEP, HANGS)
    assert stuck is not None
    assert (stuck.kind, stuck.rank) == (kinds.LOCK, 1)
    assert [(halt.rank, halt.kind) for halt in stuck.waiting] == [(0, kinds.GPU_WAIT)]


def test_ranks_that_all_wait_for_their_gpus_are_told_with_little_confidence(tmp_path: Path) -> None:
    stuck = said(tmp_path, STEP, STEP, exchange=Exchange(lost=True))
    assert stuck is not None
    assert (stuck.kind, stuck.rank) == (kinds.GPU_WAIT, None)
    assert stuck.confidence <= 0.5


@pytest.mark.parametrize(
    ("steps", "exchange"),
    [
        ((STEP, STEP), Exchange()),
        ((LONG, LONG), Exchange()),
        ((TINY, TINY), Exchange()),
        ((STEP, replace(STEP, own_us=400_000.0)), Exchange()),
        ((STEP, STEP), Exchange(buckets=2, bucket_ms=15_000.0, bucket_bytes=25_000_000_000)),
    ],
    ids=[
        "sound",
        "steps of half a minute",
        "kernels that draw as little as a collective",
        "a late rank",
        "collectives of 15 s",
    ],
)
def test_jobs_that_only_step_slowly_are_not_called_stuck(
    tmp_path: Path, steps: tuple[Step, ...], exchange: Exchange
) -> None:
    assert said(tmp_path, *steps, exchange=exchange) is None
