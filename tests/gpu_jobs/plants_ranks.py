"""Bottlenecks between ranks: each plant makes a job with it, and the same job without it."""

from __future__ import annotations

from dataclasses import replace

from tests.gpu_jobs.draw import Draw, hidden_exchange, log_uniform
from tests.gpu_jobs.job import Clocks, Exchange, Job, Step
from tests.gpu_jobs.plants_host import Pair

_BYTES_PER_S = {"nvlink": 150e9, "pcie": 9e9, "network": 2.5e9}


def _several(draw: Draw, most: int = 8) -> Job:
    """The job with two ranks at least."""
    ranks = draw.random.choice([number for number in (2, 4, 8) if number <= most])
    link = "nvlink" if draw.job.model.links else "pcie"
    exchange = draw.job.exchange or hidden_exchange(draw.random, draw.gpu_ms, link)
    return replace(draw.job, steps=(draw.step,) * ranks, exchange=exchange)


def exchange_bytes(draw: Draw) -> Pair:
    """Gradients take longer than the backward pass hides."""
    job = _several(draw)
    link = draw.random.choice(("pcie", "pcie", "network", "nvlink") if job.model.links else ("pcie", "network"))
    buckets = draw.random.randint(4, 16)
    overlapped = draw.random.random() < 0.7
    hidden_ms = 0.62 * draw.gpu_ms * (1 - 1 / buckets) if overlapped else 0.0
    bucket_ms = (draw.extra_ms + hidden_ms) / buckets
    size = round(_BYTES_PER_S[link] * bucket_ms / 1e3 * draw.random.uniform(0.8, 1.2))
    planted = replace(job, exchange=Exchange(buckets, bucket_ms, size, overlapped, link=link))
    return planted, replace(planted, exchange=Exchange(buckets, 0.02, 10_000, overlapped, link=link))


def many_collectives(draw: Draw) -> Pair:
    """A collective for each parameter, one after the other."""
    job = _several(draw)
    small_us = log_uniform(draw.random, 25, 120)
    count = max(20, round(draw.extra_ms * 1e3 / small_us))
    assert job.exchange is not None
    exchange = Exchange(0, small=count, small_us=small_us, link=job.exchange.link)
    return replace(job, exchange=exchange), replace(job, exchange=replace(exchange, small=4))


def late_host(draw: Draw) -> Pair:
    """One rank's host is slower than the others': its own Python."""
    return _late(draw, replace(draw.step, own_us=(draw.whole_ms - draw.host_ms) * 1e3))


def late_input(draw: Draw) -> Pair:
    """One rank's workers are too slow."""
    workers = draw.random.randint(1, 4)
    plan = replace(draw.step.input, workers=workers, cpu_ms=workers * draw.whole_ms, network_ms=0.0)
    return _late(draw, replace(draw.step, input=plan))


def late_storage(draw: Draw) -> Pair:
    """One rank's workers read from slower storage."""
    workers = draw.random.randint(1, 4)
    one_ms = workers * draw.whole_ms
    plan = replace(draw.step.input, workers=workers, cpu_ms=one_ms * 0.1, disk_ms=one_ms * 0.9, network_ms=0.0)
    return _late(draw, replace(draw.step, input=plan))


def _late(draw: Draw, step: Step) -> Pair:
    job = _several(draw)
    late = draw.random.randrange(job.ranks)
    return replace(job, steps=(*job.steps[:late], step, *job.steps[late + 1 :])), job


def late_gpu(draw: Draw) -> Pair:
    """One rank's GPU is too hot, or its board lowers the clocks."""
    job = _several(draw)
    late = draw.random.randrange(job.ranks)
    slow = draw.random.choice((Clocks(1 - min(draw.share, 0.55), 0x40 | 0x8, 93.0), Clocks(0.45, 0x8)))
    clocks = [Clocks()] * job.ranks
    clocks[late] = slow
    return replace(job, clocks=tuple(clocks)), job


def shared_gpu(draw: Draw) -> Pair:
    """Somebody else's kernels are on one rank's GPU."""
    job = _several(draw)
    late = draw.random.randrange(job.ranks)
    part = [0.0] * job.ranks
    part[late] = min(1.0, draw.share / (1 - draw.share))
    return replace(job, neighbour=tuple(part)), job


def late_rank(job: Job, fixed: Job) -> int | None:
    """The one rank in which two jobs differ."""
    empty = [Clocks()] * job.ranks
    alone = [0.0] * job.ranks
    different = [
        rank
        for rank in range(job.ranks)
        if job.steps[rank] != fixed.steps[rank]
        or (job.clocks or empty)[rank] != (fixed.clocks or empty)[rank]
        or (job.neighbour or alone)[rank] != (fixed.neighbour or alone)[rank]
    ]
    return different[0] if len(different) == 1 and job.ranks > 1 else None
