"""Bottlenecks on the host: each plant makes a job with it, and the same job without it."""

from __future__ import annotations

from dataclasses import replace

from tests.gpu_jobs.device import QUEUE, Use
from tests.gpu_jobs.draw import Draw, log_uniform, with_steps
from tests.gpu_jobs.host import Cores
from tests.gpu_jobs.job import Host, Job, Kernels, Rarely

Pair = tuple[Job, Job]


def kernel_launch(draw: Draw) -> Pair:
    """Many small kernels; fixed by replaying graphs of them."""
    rng = draw.random
    host_ms = log_uniform(rng, 50, 250)
    forward_us, backward_us = rng.uniform(12, 25), rng.uniform(9, 14)
    count = round(host_ms * 1e3 / (forward_us + 1.6 * backward_us))
    device_us = max(1.5, host_ms * 1e3 * (1 - draw.share) / (2.6 * count))
    use = Use(sm=rng.uniform(0.15, 0.45), occupancy=0.1, tensor=rng.uniform(0.0, 0.1), dram=rng.uniform(0.05, 0.2))
    planted = draw.with_step(
        forward=Kernels(count, device_us, forward_us, use),
        backward=Kernels(round(1.6 * count), device_us, backward_us, use),
        optimizer=replace(draw.step.optimizer, count=4, device_us=20),
        input=replace(draw.step.input, cpu_ms=10.0, network_ms=0.0, pin_ms=0.5),
    )
    planted = replace(planted, exchange=planted.exchange and replace(planted.exchange, bucket_ms=0.05))
    step = planted.steps[0]
    forward, backward = (replace(part, host_us=0.4) for part in (step.forward, step.backward))
    return planted, with_steps(planted, forward=forward, backward=backward, compiled=True)


def synchronization(draw: Draw) -> Pair:
    """Numbers are read within the forward pass: what the host could have launched ahead comes after each wait."""
    rng = draw.random
    share = min(draw.share, 0.48)
    host_ms = draw.gpu_ms * rng.uniform(0.85, 1.0)
    hidden = share / (1 - share)  # of the host's time, what the waits expose
    host_us = rng.uniform(12, 22)
    count = round(host_ms * 1e3 * min(1.0, hidden * 1.15) / host_us)
    # Further ahead than the queue is long the host cannot be in any case.
    items = max(rng.choice((4, 8, 16, 32)), count // (QUEUE * 3 // 4) + 1)
    use = draw.step.forward.use
    large_us = max(30.0, draw.gpu_ms * 1e3 / items / 8)
    planted = draw.with_step(
        forward=Kernels(count, 3.0, host_us, replace(use, sm=0.3, tensor=0.05)),
        large=Kernels(8 * items, large_us, host_us, use),
        backward=replace(draw.step.backward, count=max(10, draw.step.backward.count // 8)),
        sections=items,
        items=items,
    )
    return planted, with_steps(planted, items=0)


def own_python(draw: Draw) -> Pair:
    """Python of the job's own between the launches."""
    return draw.with_step(own_us=(draw.whole_ms - draw.host_ms) * 1e3), draw.job


def recompilation(draw: Draw) -> Pair:
    """New shapes every few steps, each compiled for."""
    rng = draw.random
    compile_ms = log_uniform(rng, 300, 2000)
    every = max(1, round(compile_ms * (1 - draw.share) / draw.share / draw.gpu_ms))
    forward, backward = (replace(part, host_us=3.0) for part in (draw.step.forward, draw.step.backward))
    fixed = draw.with_step(forward=forward, backward=backward, compiled=True, item_every=1)
    elsewhere = rng.choice((0.0, 0.3, 0.5))  # in processes that compile kernels
    return with_steps(fixed, compiling=Rarely(every, compile_ms * (1 - elsewhere), compile_ms * elsewhere)), fixed


def slow_workers(draw: Draw) -> Pair:
    """Too few workers for what a batch takes."""
    workers = draw.random.randint(1, 8)
    return draw.with_input(workers=workers, cpu_ms=workers * draw.whole_ms, network_ms=0.0), draw.job


def no_workers(draw: Draw) -> Pair:
    """The trainer prepares its batches itself."""
    plan = replace(draw.step.input, workers=0, cpu_ms=draw.extra_ms, network_ms=0.0)
    return draw.with_step(input=plan, item_every=1), draw.with_step(item_every=1)


def slow_storage(draw: Draw) -> Pair:
    """Workers that are blocked in reads of files."""
    workers, busy = draw.random.randint(1, 8), draw.random.uniform(0.02, 0.2)
    one_ms = workers * draw.whole_ms
    plan = {"workers": workers, "cpu_ms": one_ms * busy, "disk_ms": one_ms * (1 - busy), "network_ms": 0.0}
    return draw.with_input(**plan, folder=draw.random.choice(("/data/train", "/local/train"))), draw.job


def slow_network(draw: Draw) -> Pair:
    """Workers that wait for a server."""
    workers, busy = draw.random.randint(1, 8), draw.random.uniform(0.02, 0.2)
    one_ms = workers * draw.whole_ms
    return draw.with_input(workers=workers, cpu_ms=one_ms * busy, network_ms=one_ms * (1 - busy)), draw.job


def slow_pinning(draw: Draw) -> Pair:
    """Workers keep up, and the thread that pins their batches does not."""
    return draw.with_input(pin=True, pin_ms=draw.whole_ms), draw.job


def checkpoints(draw: Draw) -> Pair:
    """Checkpoints are written while training waits; by the first rank."""
    rng = draw.random
    save_ms = log_uniform(rng, 200, 1500)
    every = max(1, round(save_ms * (1 - draw.share) / draw.share / draw.gpu_ms))
    part = rng.uniform(0.5, 0.95)
    save = Rarely(every, save_ms * (1 - part), save_ms * part, round(save_ms * 1.5e6))
    steps = (replace(draw.step, save=save), *draw.job.steps[1:])
    return replace(draw.job, steps=steps), draw.job


def logging(draw: Draw) -> Pair:
    """A line of metrics is forced to disk after each step."""
    log = Rarely(1, draw.extra_ms * 0.05, draw.extra_ms * 0.95, 4096)
    return draw.with_step(log=log, item_every=1), draw.with_step(item_every=1)


def gil_contention(draw: Draw) -> Pair:
    """Another Python thread wants the GIL for most of the time, and launching needs it."""
    fixed = draw.with_host_near(draw.random.uniform(0.7, 0.95))
    return replace(fixed, hog=draw.random.uniform(0.4, 1.0)), fixed


def collecting(draw: Draw) -> Pair:
    """A full garbage collection after each step."""
    return draw.with_step(collect_ms=draw.extra_ms, item_every=1), draw.with_step(item_every=1)


def crowded(draw: Draw) -> Pair:
    """More runnable threads than cores: the thread that launches waits for one."""
    rng = draw.random
    fixed = draw.with_host_near(rng.uniform(0.8, 0.95))
    wait = Cores(delay=min(0.85, draw.share * 1.05), slice_ns=rng.choice((3, 4, 6)) * 1_000_000)
    # All that want a core share them, and together they get no more than there are: alone the job would find room.
    wanted = fixed.ranks * (1 + fixed.steps[0].input.cpu_ms / draw.gpu_ms)
    cores = rng.choice([cores for cores in (8, 16, 32, 64, 128) if cores >= 2 * wanted][:3])
    host = Host(cores, load=cores / (1 - wait.delay) - wanted, wait=wait, worker_wait=wait)
    return replace(fixed, host=host), fixed


def quota(draw: Draw) -> Pair:
    """The control group has used up its quota for a part of each period."""
    fixed = draw.with_host_near(draw.random.uniform(0.8, 0.95))
    wait = Cores(stopped=min(0.85, draw.share * 1.05))
    return replace(fixed, host=Host(64, quota=True, wait=wait, worker_wait=wait)), fixed
