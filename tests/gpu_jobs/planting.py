"""Random jobs: a sound one, a bottleneck planted in it, and the same job with that bottleneck fixed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.gpu_jobs.device import MODELS, Use
from tests.gpu_jobs.job import Churn, Copy, Job, Kernels, Step, Unsure, Watch
from tests.gpu_jobs.loader import Input
from tests.gpu_jobs.simulate import Run, share_of, simulate

SOUND = "gpu.compute"
# A bottleneck that takes less is none to speak of, and a sound job may have others of this size.
LEAST, NEGLIGIBLE = 0.12, 0.06
_STRENGTHS = (0.15, 0.9)


@dataclass(frozen=True)
class Planted:
    """A job with what is known of it.

    Attributes:
        name: how the bottleneck was made.
        cause: the bottleneck's cause; ``gpu.compute`` for a sound job.
        fixed: the same job without it; None for a sound one.
        accepted: causes that may be named, each with the reason why the evidence does not tell it from the true one.
        straggler: the rank that the others wait for.
    """

    seed: int
    name: str
    cause: str
    job: Job
    fixed: Job | None
    accepted: dict[str | None, str]
    straggler: int | None = None

    @property
    def sound(self) -> bool:
        return self.fixed is None

    def truth(self, run: Run) -> float:
        """The part of the wall time that the bottleneck took in this run."""
        return 0.0 if self.fixed is None else share_of(self.job, self.fixed, run)


@dataclass
class Draw:
    """What the random number generator says, and the sound job that a bottleneck is planted in."""

    random: random.Random
    job: Job
    share: float

    @property
    def step(self) -> Step:
        return self.job.steps[0]

    @property
    def gpu_ms(self) -> float:
        """The GPU's work in a step."""
        parts = (self.step.forward, self.step.backward, self.step.optimizer)
        return sum(part.count * part.device_us for part in parts) / 1e3

    @property
    def extra_ms(self) -> float:
        """What is to be added to a step to take the drawn share of it."""
        return self.gpu_ms * self.share / (1 - self.share)

    def with_step(self, **changes: object) -> Job:
        """The job with another step in all ranks."""
        return replace(self.job, steps=tuple(replace(step, **changes) for step in self.job.steps))


def sound_job(rng: random.Random, seed: int) -> Job:
    """A job that is bound by its GPU's arithmetic."""
    model = rng.choice(MODELS)
    gpu_ms = _log_uniform(rng, 40, 300)
    kernel_us = _log_uniform(rng, 60, 300)
    host_us = rng.uniform(8, 18)
    use = compute_use(rng)
    forward = Kernels(max(20, round(gpu_ms * 320 / kernel_us)), kernel_us, host_us, use)
    backward = Kernels(max(40, round(gpu_ms * 640 / kernel_us)), kernel_us, host_us * rng.uniform(0.5, 0.8), use)
    update = Use(sm=0.8, occupancy=0.5, dram=0.75, fp32=0.1)
    optimizer = Kernels(max(4, round(gpu_ms * 0.4)), 100, 25, update)
    fast = Input(rng.randint(2, 12), 0.0, pin=rng.random() < 0.8, pin_ms=min(2.0, gpu_ms * 0.05))
    fast = replace(fast, cpu_ms=gpu_ms * fast.workers * rng.uniform(0.1, 0.6), network_ms=rng.choice((0.0, 2.0)))
    step = Step(
        forward,
        backward,
        optimizer,
        item_every=rng.choice((0, 1, 1, 10)),
        input=fast,
        copy=Copy(round(_log_uniform(rng, 1e5, 3e7)), rng.choice(("hidden", "queued"))),
    )
    return Job((step,), model, unsure=unsure(rng), watch=watch(rng), seed=seed)


def compute_use(rng: random.Random) -> Use:
    """Kernels of a network in mixed precision: most of the multiprocessors, tensor cores, some memory traffic."""
    tensor = rng.uniform(0.35, 0.65)
    return Use(
        sm=rng.uniform(0.78, 0.95), occupancy=rng.uniform(0.2, 0.5), tensor=tensor, dram=rng.uniform(0.25, 0.5),
        fp32=0.08, fp16=0.02,
    )  # fmt: skip


def unsure(rng: random.Random) -> Unsure:
    """One of the possibilities wherever sources leave something open."""
    return Unsure(
        wait=rng.choices(("spin", "yield", "futex", "poll", "ioctl"), (12, 2, 1, 1, 1))[0],
        vdso=rng.choice((0.2, 0.35, 0.5)),
        full_vdso=rng.choice((0.0, 0.35, 0.5)),
        ioctl_blocks=rng.choice((0.0, 0.3, 0.8)),
        named=rng.random() < 0.7,
        libcuda=rng.choice(("libcuda.so.1", "libcuda.so.535.183.06", "libcuda.so.550.90.07", "libcuda.so.575.57.08")),
        memory_factor=rng.uniform(1.0, 1.5),
        power_factor=rng.uniform(0.92, 1.08),
    )


def watch(rng: random.Random) -> Watch:
    """What can be seen: mostly all."""
    device = rng.choices(("nvml", "none", "mig"), (18, 1, 1))[0]
    return Watch(gpm=rng.random() < 0.7, device=device, all_visible=rng.random() < 0.7)


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


@dataclass(frozen=True)
class Plant:
    """A way to plant a bottleneck.

    Attributes:
        make: yields the job with it and the job without it.
        cause: what it is.
        device_only: only the device's own counters tell it from the healthy state.
    """

    make: Callable[[Draw], tuple[Job, Job]]
    cause: str
    device_only: bool = False


def _kernel_launch(draw: Draw) -> tuple[Job, Job]:
    rng = draw.random
    host_ms = _log_uniform(rng, 50, 250)
    forward_us, backward_us = rng.uniform(12, 25), rng.uniform(9, 14)
    count = round(host_ms * 1e3 / (forward_us + 1.6 * backward_us))
    device_us = max(1.5, host_ms * 1e3 * (1 - draw.share) / (2.6 * count))
    use = Use(sm=rng.uniform(0.15, 0.45), occupancy=0.1, tensor=rng.uniform(0.0, 0.1), dram=rng.uniform(0.05, 0.2))
    optimizer = replace(draw.step.optimizer, count=4, device_us=20)
    planted = draw.with_step(
        forward=Kernels(count, device_us, forward_us, use),
        backward=Kernels(round(1.6 * count), device_us, backward_us, use),
        optimizer=optimizer,
        input=replace(draw.step.input, cpu_ms=10.0, network_ms=0.0, pin_ms=0.5),
    )
    step = planted.steps[0]
    captured = replace(
        step,
        forward=replace(step.forward, host_us=0.4),
        backward=replace(step.backward, host_us=0.4),
        compiled=True,
    )
    return planted, replace(planted, steps=(captured,) * planted.ranks)


def _synchronization(draw: Draw) -> tuple[Job, Job]:
    rng = draw.random
    share = min(draw.share, 0.48)
    host_ms = draw.gpu_ms * rng.uniform(0.85, 1.0)
    hidden = share / (1 - share)  # of the host's time, what the syncs expose
    host_us = rng.uniform(12, 22)
    count = round(host_ms * 1e3 * min(1.0, hidden * 1.15) / host_us)
    items = rng.choice((4, 8, 16, 32))
    use = draw.step.forward.use
    small = Kernels(count, 3.0, host_us, replace(use, sm=0.3, tensor=0.05))
    large_us = draw.gpu_ms * 1e3 / max(items, 4) / 8
    large = Kernels(8 * max(items, 4), max(large_us, 30.0), host_us, use)
    backward = replace(draw.step.backward, count=max(10, draw.step.backward.count // 8))
    planted = draw.with_step(forward=small, large=large, backward=backward, items=items)
    return planted, replace(planted, steps=tuple(replace(step, items=0) for step in planted.steps))


def _own_python(draw: Draw) -> tuple[Job, Job]:
    own_ms = draw.gpu_ms / (1 - draw.share) - _host_ms(draw.step)
    return draw.with_step(own_us=own_ms * 1e3), draw.job


def _host_ms(step: Step) -> float:
    parts = (step.forward, step.backward, step.optimizer)
    return sum(part.count * part.host_us for part in parts) / 1e3


def _slow_workers(draw: Draw) -> tuple[Job, Job]:
    workers = draw.random.randint(1, 8)
    plan = replace(draw.step.input, workers=workers, cpu_ms=workers * draw.gpu_ms / (1 - draw.share), network_ms=0.0)
    return draw.with_step(input=plan), draw.job


def _no_workers(draw: Draw) -> tuple[Job, Job]:
    plan = replace(draw.step.input, workers=0, cpu_ms=draw.extra_ms, network_ms=0.0)
    return draw.with_step(input=plan, item_every=1), draw.job


def _pageable(draw: Draw) -> tuple[Job, Job]:
    rate = draw.random.uniform(3e9, 6e9)
    copy = Copy(round(draw.extra_ms / 1e3 * rate), "pageable", rate)
    return draw.with_step(copy=copy), draw.with_step(copy=replace(copy, how="hidden"))


def _exposed_copy(draw: Draw) -> tuple[Job, Job]:
    copy = Copy(round(draw.extra_ms / 1e3 * draw.job.model.pcie), draw.random.choice(("waiting", "queued")))
    return draw.with_step(copy=copy), draw.with_step(copy=replace(copy, how="hidden"))


def _churn(draw: Draw) -> tuple[Job, Job]:
    rng = draw.random
    times = rng.choice((1, 1, 2, 6))
    call_us = rng.uniform(250, 900)
    calls = max(1, round(draw.extra_ms * 1e3 / times / call_us))
    return draw.with_step(churn=Churn(times, calls, call_us)), draw.job


PLANTS: dict[str, Plant] = {
    "kernel_launch": Plant(_kernel_launch, "cpu.kernel_launch"),
    "synchronization": Plant(_synchronization, "cpu.synchronization"),
    "own_python": Plant(_own_python, "cpu.python_overhead"),
    "slow_workers": Plant(_slow_workers, "cpu.input_preprocessing"),
    "no_workers": Plant(_no_workers, "cpu.input_preprocessing"),
    "pageable": Plant(_pageable, "gpu.host_transfer"),
    "exposed_copy": Plant(_exposed_copy, "gpu.host_transfer"),
    "churn": Plant(_churn, "gpu.memory_pressure"),
}
# Of so many jobs one is sound.
_SOUND_OF = 5


def random_job(seed: int, only: str | None = None) -> Planted:
    """The job of a seed.

    Args:
        seed: the same seed gives the same job.
        only: a cause, or the name of a plant; ``gpu.compute`` for sound jobs.
    """
    rng = random.Random(f"job {seed}")
    names = [name for name, plant in PLANTS.items() if only in (None, name, plant.cause)]
    sound = only == SOUND or (only is None and seed % _SOUND_OF == 0)
    if not sound and not names:
        raise ValueError(f"there is no way to plant {only}: {', '.join(PLANTS)}")
    while True:
        job = sound_job(rng, seed)
        if sound:
            return Planted(seed, "sound", SOUND, job, None, {})
        name = rng.choice(names)
        plant = PLANTS[name]
        planted, fixed = plant.make(Draw(rng, job, rng.uniform(*_STRENGTHS)))
        # A draw may miss its strength where other parts of the step hide it.
        if LEAST <= 1 - simulate(planted, 4).pace / simulate(fixed, 4).pace <= 0.92:
            return Planted(seed, name, plant.cause, planted, fixed, {})
