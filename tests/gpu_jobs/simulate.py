"""Runs a job: what its threads and GPUs did, and how fast it went."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tests.gpu_jobs.device import Gpu, Use
from tests.gpu_jobs.events import MS, S, Simulation
from tests.gpu_jobs.host import Doing, Process, Thread
from tests.gpu_jobs.job import Job
from tests.gpu_jobs.trainer import Partners, Trainer

# The job runs for so long before it is looked at.
WARM_UP_NS = 2 * S
# Without its bottleneck a job goes steadily.
_FIXED_S = 10.0
LAUNCHER, FIRST = 4000, 5000
_NEIGHBOUR = Use(sm=0.6, occupancy=0.3, tensor=0.25, dram=0.3)
# Bursts of somebody else's kernels take so long, with what lies between them.
_NEIGHBOUR_PERIOD_NS = 30 * MS


@dataclass
class Run:
    """What happened.

    Attributes:
        ends_ns: when each rank's steps ended on its GPU.
        spare: GPUs of the machine that the job does not use.
        end_ns: when the watching ends; it began at 0.
    """

    job: Job
    trainers: list[Trainer]
    processes: list[Process]
    ends_ns: list[list[int]]
    end_ns: int
    spare: list[Gpu]

    @property
    def pace(self) -> float:
        """Steps per second while the job was watched; parts of steps count as such."""
        begun, ended = (min(_progress(ends, at) for ends in self.ends_ns) for at in (0, self.end_ns))
        return (ended - begun) / (self.end_ns / S)


def _progress(ends: list[int], at_ns: int) -> float:
    """Steps that had been done at an instant, and how much of the next."""
    done = bisect_right(ends, at_ns)
    if done == 0 or done == len(ends):
        return float(done)
    return done + (at_ns - ends[done - 1]) / (ends[done] - ends[done - 1])


def simulate(job: Job, seconds: float | None = None) -> Run:
    """Runs a job for the time that it is watched, or for so many seconds."""
    sim = Simulation(-WARM_UP_NS)
    end_ns = round((seconds or job.watch.seconds) * S)
    processes = []
    environment = {"CUDA_MODULE_LOADING": "LAZY", "OMP_NUM_THREADS": "8"}
    if job.watch.spare_gpus:
        visible = range(job.watch.first_gpu, job.watch.first_gpu + job.ranks)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, visible))
    if job.ranks > 1:
        processes.append(_launcher(sim))
    trainers = []
    for rank in range(job.ranks):
        pid = FIRST + 1000 * rank
        ranked = {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(job.ranks)}
        ranked["TORCHELASTIC_RUN_ID"] = "none"
        process = Process(
            pid,
            LAUNCHER if job.ranks > 1 else 1,
            job.unsure.comm("python"),
            "/opt/venv/bin/python -u main.py --config base.yaml",
            environment={**environment, **(ranked if job.ranks > 1 else {})},
            rank=rank,
        )
        gpu = Gpu(sim, rank + job.watch.first_gpu, job.model)
        gpu.front_end_ns = job.unsure.front_end_ns
        clocks = job.clocks[rank] if job.clocks else None
        neighbour = job.neighbour[rank] if job.neighbour else 0.0
        gpu.slower = (1 / clocks.speed if clocks else 1.0) * (1 + neighbour)
        gpu.part = 1 / (1 + neighbour)
        trainer = Trainer(sim, job, rank, process, gpu)
        trainers.append(trainer)
        processes += [process, *trainer.workers]
        if neighbour:
            _add_neighbour(gpu, neighbour, end_ns)
    if job.exchange is not None and job.ranks > 1:
        partners = Partners(sim, job)
        for trainer in trainers:
            trainer.partners = partners
    sim.run(end_ns + S // 2)
    if trainers[0].partners is not None:
        trainers[0].partners.stop(end_ns + S // 2)
    ends = [[op.end for op in trainer.ends if op.end is not None] for trainer in trainers]
    return Run(job, trainers, processes, ends, end_ns, _spare_gpus(sim, job, end_ns))


def _spare_gpus(sim: Simulation, job: Job, end_ns: int) -> list[Gpu]:
    """Those that the job does not use; others use every other one."""
    own = range(job.watch.first_gpu, job.watch.first_gpu + job.ranks)
    spare = [Gpu(sim, index, job.model) for index in range(job.ranks + job.watch.spare_gpus) if index not in own]
    for gpu in spare[::2]:
        _add_neighbour(gpu, 0.9, end_ns)
    return spare


def _launcher(sim: Simulation) -> Process:
    command = "/opt/venv/bin/python /opt/venv/bin/torchrun --nproc-per-node 8 main.py"
    process = Process(LAUNCHER, 1, "pt_elastic", command)
    main = Thread(sim, process, LAUNCHER, "pt_elastic", python="MainThread", wakes=(100 * MS, 150_000))
    main.note(Doing("S", "clock_nanosleep"))
    return process


def _add_neighbour(gpu: Gpu, part: float, end_ns: int) -> None:
    """Somebody else's kernels; those of the job take turns with them."""
    gpu.neighbour = part
    start = -WARM_UP_NS
    while start < end_ns:
        gpu.note(start, start + round(_NEIGHBOUR_PERIOD_NS * part), _NEIGHBOUR)
        start += _NEIGHBOUR_PERIOD_NS


def share_of(job: Job, fixed: Job, run: Run | None = None) -> float:
    """The part of the wall time that the bottleneck takes: 1 minus the pace with it over the pace without it."""
    run = run or simulate(job)
    return 1 - run.pace / simulate(fixed, min(job.watch.seconds, _FIXED_S)).pace
