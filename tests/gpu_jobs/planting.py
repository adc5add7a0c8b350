"""Random jobs: a sound one, a bottleneck planted in it, and the same job with that bottleneck fixed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.gpu_jobs import plants_device as device
from tests.gpu_jobs import plants_host as host
from tests.gpu_jobs import plants_ranks as ranks
from tests.gpu_jobs.draw import Draw, sound_job, with_steps
from tests.gpu_jobs.job import Job
from tests.gpu_jobs.simulate import Run, share_of, simulate

SOUND = "gpu.compute"
# A bottleneck that takes less is none to speak of.
LEAST, MOST = 0.12, 0.92
# All that could be saved in a sound job is less.
NEGLIGIBLE = 0.06
_STRENGTHS = (0.15, 0.9)
# Of so many jobs one is sound.
_SOUND_OF = 5
# These only add to a step, so that a job can have two of them; this part of those jobs has.
_ADDING = ("pageable", "churn", "logging", "collecting", "no_workers", "own_python", "heat")
_SECOND = 0.3
# A second bottleneck of this part of the first one's size may be named in its place.
_NEARLY = 0.75
_TRY_S = 4.0
_EXCHANGES = frozenset(("communication.bandwidth", "communication.latency"))


@dataclass(frozen=True)
class Plant:
    """A way to plant a bottleneck.

    Attributes:
        make: yields the job with it and the job without it.
        cause: what it is.
        needs: what alone shows it: ``device`` (NVML), ``gpm`` (its performance monitoring).
    """

    make: Callable[[Draw], tuple[Job, Job]]
    cause: str
    needs: str = ""


PLANTS: dict[str, Plant] = {
    "kernel_launch": Plant(host.kernel_launch, "cpu.kernel_launch"),
    "synchronization": Plant(host.synchronization, "cpu.synchronization", "device"),
    "own_python": Plant(host.own_python, "cpu.python_overhead"),
    "recompilation": Plant(host.recompilation, "cpu.python_overhead"),
    "slow_workers": Plant(host.slow_workers, "cpu.input_preprocessing"),
    "no_workers": Plant(host.no_workers, "cpu.input_preprocessing"),
    "slow_storage": Plant(host.slow_storage, "io.storage_read"),
    "slow_network": Plant(host.slow_network, "io.network_read"),
    "slow_pinning": Plant(host.slow_pinning, "cpu.data_transfer"),
    "checkpoints": Plant(host.checkpoints, "io.checkpoint_write"),
    "logging": Plant(host.logging, "io.log_write"),
    "gil_contention": Plant(host.gil_contention, "cpu.gil_contention"),
    "collecting": Plant(host.collecting, "cpu.garbage_collection"),
    "crowded": Plant(host.crowded, "cpu.contention"),
    "quota": Plant(host.quota, "cpu.throttled"),
    "pageable": Plant(device.pageable, "gpu.host_transfer"),
    "waited_copy": Plant(device.waited_copy, "gpu.host_transfer", "device"),
    "queued_copy": Plant(device.queued_copy, "gpu.host_transfer", "device"),
    "churn": Plant(device.churn, "gpu.memory_pressure"),
    "heat": Plant(device.heat, "gpu.throttled", "device"),
    "hardware_slowdown": Plant(device.hardware_slowdown, "gpu.throttled", "device"),
    "power_brake": Plant(device.power_brake, "gpu.throttled", "device"),
    "neighbour": Plant(device.neighbour, "gpu.contention", "device"),
    "low_occupancy": Plant(device.low_occupancy, "gpu.low_occupancy", "gpm"),
    "no_tensor_cores": Plant(device.no_tensor_cores, "gpu.no_tensor_cores", "gpm"),
    "memory_bandwidth": Plant(device.memory_bandwidth, "gpu.memory_bandwidth", "gpm"),
    "exchange_bytes": Plant(ranks.exchange_bytes, "communication.bandwidth", "device"),
    "many_collectives": Plant(ranks.many_collectives, "communication.latency", "device"),
    "late_host": Plant(ranks.late_host, "cpu.python_overhead"),
    "late_input": Plant(ranks.late_input, "cpu.input_preprocessing"),
    "late_storage": Plant(ranks.late_storage, "io.storage_read"),
    "late_gpu": Plant(ranks.late_gpu, "gpu.throttled", "device"),
    "shared_gpu": Plant(ranks.shared_gpu, "gpu.contention", "device"),
}


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


def random_job(seed: int, only: str | None = None) -> Planted:
    """The job of a seed.

    Args:
        seed: the same seed gives the same job.
        only: a cause, or the name of a plant; ``gpu.compute`` for sound jobs.

    Raises:
        ValueError: nothing is planted under that name.
    """
    rng = random.Random(f"job {seed}")
    names = [name for name, plant in PLANTS.items() if only in (None, name, plant.cause)]
    sound = only == SOUND or (only is None and seed % _SOUND_OF == 0)
    if not sound and not names:
        raise ValueError(f"there is no way to plant {only}: {', '.join(PLANTS)}")
    if sound:
        return _sound(rng, seed)
    name = rng.choice(names)
    plant = PLANTS[name]
    while True:
        planted, fixed = plant.make(Draw(rng, sound_job(rng, seed), rng.uniform(*_STRENGTHS)))
        # A draw may miss its strength where other parts of the step hide it.
        if not LEAST <= _share(planted, fixed) <= MOST:
            continue
        late = ranks.late_rank(planted, fixed) if plant.make.__module__ == ranks.__name__ else None
        first = Planted(seed, name, plant.cause, planted, fixed, _accepted(plant, planted), late)
        return _with_second(rng, first) if name in _ADDING and rng.random() < _SECOND else first


def _share(planted: Job, fixed: Job) -> float:
    return 1 - simulate(planted, _TRY_S).pace / simulate(fixed, _TRY_S).pace


def _with_second(rng: random.Random, first: Planted) -> Planted:
    """A lesser bottleneck beside the first; a job in which it would be the larger one is left as it is."""
    assert first.fixed is not None
    name = rng.choice([one for one in _ADDING if PLANTS[one].cause != first.cause])
    plant, size, state = PLANTS[name], rng.uniform(0.05, 0.5), rng.getstate()
    jobs = []
    for job in (first.job, first.fixed):
        rng.setstate(state)
        planted, without = plant.make(Draw(rng, job, size))
        jobs.append((planted, without))
    (both, only_first), (only_second, _) = jobs
    shares = _share(both, only_second), _share(both, only_first)
    if shares[1] > shares[0] or shares[0] < LEAST:
        return first
    accepted = dict(first.accepted)
    if shares[1] > _NEARLY * shares[0]:
        accepted[plant.cause] = f"it takes nearly as much: {shares[1]:.2f} beside {shares[0]:.2f}"
    return replace(first, name=f"{first.name}+{name}", job=both, fixed=only_second, accepted=accepted)


def _sound(rng: random.Random, seed: int) -> Planted:
    """A job in which nothing is worth while; some look as if something were."""
    while True:
        draw = Draw(rng, sound_job(rng, seed), 0.0)
        name = rng.choice(("sound", "at_power_limit", "busy_host"))
        job = draw.job
        if name == "at_power_limit":
            job = device.sound_at_power_limit(job)
        elif name == "busy_host":
            job = draw.with_host_near(rng.uniform(0.5, 0.8))
        step = job.steps[0]
        ideal = with_steps(
            job,
            forward=replace(step.forward, host_us=0.5),
            backward=replace(step.backward, host_us=0.5),
            optimizer=replace(step.optimizer, host_us=0.5),
            item_every=0,
            copy=replace(step.copy, how="hidden"),
        )
        ideal = replace(ideal, exchange=job.exchange and replace(job.exchange, bucket_ms=0.02))
        if _share(job, ideal) < NEGLIGIBLE:
            return Planted(seed, name, SOUND, job, None, {})


def _are_bytes_seen(job: Job) -> bool:
    """Whether the bytes of an exchange are counted all the time, also without GPM."""
    link = "" if job.exchange is None else job.exchange.link
    return link in ("", "network") or (link == "nvlink" and job.watch.device == "nvml" and job.unsure.counts_links)


def _accepted(plant: Plant, job: Job) -> dict[str | None, str]:
    """What else may be said of a job, and why."""
    watch = job.watch
    seen = watch.device == "nvml"
    units = seen and watch.gpm and job.model.gpm
    reason = ""
    if plant.needs == "device" and not seen:
        reason = "nothing of the GPU is read, and the host waits for it as it does in a sound job"
    elif plant.needs == "gpm" and not units:
        reason = "which units of a busy GPU are active is not read"
    elif plant.cause == "gpu.contention" and not watch.all_visible:
        reason = "whose processes are on the GPU is not seen from inside a container"
    accepted: dict[str | None, str] = {SOUND: reason, None: reason} if reason else {}
    if plant.cause == "cpu.synchronization" and not seen:
        accepted["cpu.kernel_launch"] = "whether the GPU was idle before it was refilled cannot be seen"
    if plant.cause in _EXCHANGES and not units and not _are_bytes_seen(job):
        reason = "bytes between GPUs are not read, or seldom"
        accepted.update(dict.fromkeys(_EXCHANGES - {plant.cause}, reason))
    return accepted
