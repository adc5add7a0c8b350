"""Bottlenecks on the GPU: each plant makes a job with it, and the same job without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.gpu_jobs.device import Use
from tests.gpu_jobs.draw import Draw
from tests.gpu_jobs.job import Churn, Clocks, Copy, Job
from tests.gpu_jobs.plants_host import Pair


def pageable(draw: Draw) -> Pair:
    """Batches are copied from memory that is not pinned, at 3 to 6 GB/s, and the host waits."""
    rate = draw.random.uniform(3e9, 6e9)
    copy = Copy(round(draw.extra_ms / 1e3 * rate), "pageable", rate)
    return draw.with_step(copy=copy), draw.with_step(copy=replace(copy, how="hidden"))


def waited_copy(draw: Draw) -> Pair:
    """Pinned batches, and the host waits for each copy."""
    return _copied(draw, "waiting")


def queued_copy(draw: Draw) -> Pair:
    """Pinned batches, copied in the stream of the kernels."""
    return _copied(draw, "queued")


def _copied(draw: Draw, how: str) -> Pair:
    copy = Copy(round(draw.extra_ms / 1e3 * draw.job.model.pcie), how)
    return draw.with_step(copy=copy), draw.with_step(copy=replace(copy, how="hidden"))


def churn(draw: Draw) -> Pair:
    """The allocator gives memory back and asks for it anew."""
    rng = draw.random
    times = rng.choice((1, 1, 2, 6))
    call_us = rng.uniform(250, 900)
    calls = max(1, round(draw.extra_ms * 1e3 / times / call_us))
    return draw.with_step(churn=Churn(times, calls, call_us)), draw.job


def heat(draw: Draw) -> Pair:
    """Too hot: software or hardware lowers the clocks."""
    reasons = draw.random.choice((0x20, 0x40 | 0x8))
    return _slowed(draw, Clocks(1 - min(draw.share, 0.55), reasons, draw.random.uniform(86, 95)))


def hardware_slowdown(draw: Draw) -> Pair:
    """The board lowers the clocks to a half or less."""
    return _slowed(draw, Clocks(draw.random.uniform(0.2, 0.5), 0x8))


def power_brake(draw: Draw) -> Pair:
    """The power supply asks for less."""
    return _slowed(draw, Clocks(draw.random.uniform(0.25, 0.6), 0x80 | 0x8))


def _slowed(draw: Draw, clocks: Clocks) -> Pair:
    return replace(draw.job, clocks=(clocks,) * draw.job.ranks), draw.job


def neighbour(draw: Draw) -> Pair:
    """Somebody else's kernels take turns with the job's."""
    part = min(1.0, draw.share / (1 - draw.share))
    return replace(draw.job, neighbour=(part,) * draw.job.ranks), draw.job


def low_occupancy(draw: Draw) -> Pair:
    """Kernels with work for a few multiprocessors; with larger ones the same work takes as much less time."""
    rng = draw.random
    full = Use(sm=0.9, occupancy=0.3, tensor=rng.uniform(0.3, 0.5), dram=rng.uniform(0.25, 0.5))
    return draw.with_use(_mixed([(full, 1 - draw.share)]), longer=1 / (1 - draw.share)), draw.with_use(full)


def no_tensor_cores(draw: Draw) -> Pair:
    """Single precision, where tensor cores would do the same 3 to 8 times as fast."""
    rng = draw.random
    matrices, faster = rng.uniform(0.6, 0.95), rng.uniform(3, 8)
    longer = 1 / (1 - matrices + matrices / faster)
    sm, at_work, bytes_each = rng.uniform(0.85, 0.97), rng.uniform(0.8, 0.95), rng.uniform(1, 2)
    fp32 = matrices * at_work + (1 - matrices) * draw.use.fp32
    use = Use(sm=sm, occupancy=0.25, fp32=fp32, dram=draw.use.dram * bytes_each / longer)
    return draw.with_use(use, longer), draw.job


def memory_bandwidth(draw: Draw) -> Pair:
    """Chains of element-wise kernels between those of a sound job; fused they move as much less."""
    rng = draw.random
    chains = Use(
        sm=rng.uniform(0.75, 0.95), occupancy=0.6, tensor=0.0, dram=rng.uniform(0.78, 0.92), fp32=rng.uniform(0.1, 0.25)
    )
    use = _mixed([(chains, draw.share), (draw.use, 1 - draw.share)])
    return draw.with_use(use, 1 / (1 - draw.share)), draw.job


def _mixed(parts: Sequence[tuple[Use, float]]) -> Use:
    """What is in use in the mean where kernels of several kinds take turns, each for a part of the time.

    So the work that a fixed job does as well is the same amount of work before.
    """
    names = ("sm", "occupancy", "tensor", "dram", "fp32", "fp16")
    return Use(**{name: sum(part * getattr(use, name) for use, part in parts) for name in names})


def sound_at_power_limit(job: Job) -> Job:
    """A sound job whose kernels draw all that the board may have."""
    use = Use(sm=0.93, occupancy=0.35, tensor=0.62, dram=0.42, fp32=0.08)
    steps = tuple(
        replace(step, forward=replace(step.forward, use=use), backward=replace(step.backward, use=use))
        for step in job.steps
    )
    return replace(job, steps=steps)
