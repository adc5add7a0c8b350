"""What random jobs are drawn from: a sound job, how it is watched, and what sources leave open."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.gpu_jobs.device import MODELS, Use
from tests.gpu_jobs.host import Cores
from tests.gpu_jobs.job import Copy, Exchange, Host, Job, Kernels, Step, Unsure, Watch
from tests.gpu_jobs.loader import Input

LIBRARIES = ("libcuda.so.1", "libcuda.so.535.183.06", "libcuda.so.550.90.07", "libcuda.so.575.57.08")


@dataclass
class Draw:
    """What the random number generator says, and the sound job that a bottleneck is planted in.

    Attributes:
        share: the part of the wall time that the bottleneck is to take; some reach less at most.
    """

    random: random.Random
    job: Job
    share: float

    @property
    def step(self) -> Step:
        return self.job.steps[0]

    @property
    def use(self) -> Use:
        """What the kernels of the passes use of a GPU."""
        return self.step.forward.use

    @property
    def gpu_ms(self) -> float:
        """The GPU's work in a step."""
        return sum(part.count * part.device_us for part in self._parts) / 1e3

    @property
    def host_ms(self) -> float:
        """The host's work in a step."""
        return sum(part.count * part.host_us for part in self._parts) / 1e3

    @property
    def extra_ms(self) -> float:
        """What is to be added to a step to take the drawn share of it."""
        return self.gpu_ms * self.share / (1 - self.share)

    @property
    def whole_ms(self) -> float:
        """A step with it."""
        return self.gpu_ms / (1 - self.share)

    @property
    def _parts(self) -> tuple[Kernels, ...]:
        return self.step.forward, self.step.backward, self.step.optimizer

    def with_step(self, **changes: Any) -> Job:
        """The job with another step in all ranks."""
        return with_steps(self.job, **changes)

    def with_input(self, **changes: Any) -> Job:
        """The job with other input."""
        return self.with_step(input=replace(self.step.input, **changes))

    def with_use(self, use: Use, longer: float = 1.0) -> Job:
        """The job with other kernels in its passes."""
        return self.with_step(
            forward=replace(self.step.forward, use=use, device_us=self.step.forward.device_us * longer),
            backward=replace(self.step.backward, use=use, device_us=self.step.backward.device_us * longer),
        )

    def with_host_near(self, ratio: float) -> Job:
        """The job with a host that needs this part of the GPU's time for launching."""
        factor = ratio * self.gpu_ms / self.host_ms
        return self.with_step(
            **{
                name: replace(part, count=round(part.count * factor), device_us=part.device_us / factor)
                for name, part in zip(("forward", "backward", "optimizer"), self._parts, strict=True)
            }
        )


def with_steps(job: Job, **changes: Any) -> Job:
    """The job with another step in all ranks."""
    return replace(job, steps=tuple(replace(step, **changes) for step in job.steps))


def sound_job(rng: random.Random, seed: int) -> Job:
    """A job that is bound by its GPUs' arithmetic."""
    model = rng.choice(MODELS)
    gpu_ms = log_uniform(rng, 40, 300)
    kernel_us = log_uniform(rng, 30, 300)
    host_us = rng.uniform(8, 18)
    use = compute_use(rng)
    forward = Kernels(max(20, round(gpu_ms * 320 / kernel_us)), kernel_us, host_us, use)
    backward = Kernels(max(40, round(gpu_ms * 640 / kernel_us)), kernel_us, host_us * rng.uniform(0.5, 0.8), use)
    optimizer = Kernels(max(4, round(gpu_ms * 0.4)), 100, 25, Use(sm=0.8, occupancy=0.5, dram=0.75, fp32=0.1))
    compiled = rng.random() < 0.15
    if compiled:
        forward, backward = (replace(part, host_us=rng.uniform(2, 4)) for part in (forward, backward))
    step = Step(
        forward,
        backward,
        optimizer,
        item_every=rng.choice((0, 1, 1, 10)),
        uneven=rng.choice((0.01, 0.01, 0.05, 0.1)),
        input=fast_input(rng, gpu_ms),
        copy=Copy(round(log_uniform(rng, 1e5, 3e7)), rng.choice(("hidden", "queued"))),
        compiled=compiled,
    )
    some = Cores(delay=rng.uniform(0.0, 0.01))  # a core is not always free at once
    ranks = rng.choices((1, 2, 4, 8), (10, 4, 3, 2))[0] if model.name != "NVIDIA A10" else rng.choice((1, 1, 2))
    if ranks > 1:
        step = replace(step, uneven=0.01)  # uneven steps of several ranks are a bottleneck of their own
    exchange = hidden_exchange(rng, gpu_ms, "nvlink" if model.links else "pcie") if ranks > 1 else None
    return Job(
        (step,) * ranks,
        model,
        exchange,
        unsure=unsure(rng, seed),
        watch=watch(rng),
        own_thread=rng.random() < 0.06,
        host=Host(wait=some, worker_wait=some),
        seed=seed,
    )


def fast_input(rng: random.Random, gpu_ms: float) -> Input:
    """A loader that keeps up."""
    workers = rng.randint(2, 12)
    return Input(
        workers,
        gpu_ms * workers * rng.uniform(0.1, 0.6),
        network_ms=rng.choice((0.0, 2.0)),
        pin=rng.random() < 0.8,
        pin_ms=min(2.0, gpu_ms * 0.05),
    )


def hidden_exchange(rng: random.Random, gpu_ms: float, link: str) -> Exchange:
    """Gradients that are reduced while the backward pass goes on."""
    buckets = rng.randint(12, 24)
    bucket_ms = 0.65 * gpu_ms * rng.uniform(0.1, 0.6) / buckets
    rate = {"nvlink": 100e9, "pcie": 10e9, "network": 3e9}[link] * rng.uniform(0.5, 1.0)
    return Exchange(buckets, bucket_ms, round(rate * bucket_ms / 1e3), link=link)


def compute_use(rng: random.Random) -> Use:
    """Kernels of a network in mixed precision: most of the multiprocessors, tensor cores, some memory traffic."""
    tensor = rng.uniform(0.35, 0.65)
    return Use(
        sm=rng.uniform(0.78, 0.95), occupancy=rng.uniform(0.2, 0.5), tensor=tensor, dram=rng.uniform(0.25, 0.5),
        fp32=0.08, fp16=0.02,
    )  # fmt: skip


def unsure(rng: random.Random, seed: int) -> Unsure:
    """One of the possibilities wherever sources leave something open; half the drivers are like the one that was seen.

    That is 580 on an H200. What was not known when the first seeds were judged is drawn on its own, so that seeds keep
    the jobs that they had before.
    """
    drawn = _unsure(rng, seed)
    if random.Random(seed + 1).random() < 0.5:
        return drawn
    waits = replace(drawn, vdso=0.16, full_vdso=0.0, full_system=0.63) if drawn.wait == "spin" else drawn
    return replace(waits, ioctl_blocks=0.0, counts_mapping=True, front_end_ns=1600, libcuda="libcuda.so.580.159.04")


def _unsure(rng: random.Random, seed: int) -> Unsure:
    return Unsure(
        wait=rng.choices(("spin", "yield", "futex", "poll", "ioctl"), (12, 2, 1, 1, 1))[0],
        vdso=rng.choice((0.2, 0.35, 0.5)),
        full_vdso=rng.choice((0.0, 0.35, 0.5)),
        staging=rng.choice(("libc", "driver")),
        ioctl_blocks=rng.choice((0.0, 0.3, 0.8)),
        loses_gil=rng.choice((0.0, 0.0, 0.05)),
        torch=rng.choices(("2.5", "2.4", "2.3", "2.0"), (10, 2, 1, 1))[0],
        nccl_named=rng.random() < 0.2,
        libcuda=rng.choice(LIBRARIES),
        memory_factor=rng.uniform(1.0, 1.5),
        power_factor=rng.uniform(0.92, 1.08),
        counts_links=random.Random(seed).random() < 0.7,
    )


def watch(rng: random.Random) -> Watch:
    """What can be seen: mostly all."""
    device = rng.choices(("nvml", "none", "mig", "rocm"), (36, 1, 2, 1))[0]
    container = rng.random() < 0.3
    spare = rng.choices((0, 1, 2, 4), (16, 1, 1, 2))[0]
    return Watch(
        gpm=rng.random() < 0.7,
        device=device,
        all_visible=not container,
        host_ids=container and rng.random() < 0.6,
        spare_gpus=spare,
        first_gpu=rng.randint(0, spare),
    )


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is as likely to be anywhere."""
    return float(low * (high / low) ** rng.random())
