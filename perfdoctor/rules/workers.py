"""How many loader workers would keep up with the trainer, and how much faster the job could then be."""

import math
from dataclasses import dataclass, replace

from perfdoctor.diagnosis import Fix
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.finding import freed
from perfdoctor.rules.lookups import culprits, setting, uses_gpu
from perfdoctor.rules.wording import counted, percent

# A gain below this is not worth a change: it drowns in the job's own scatter.
_WORTHWHILE = 0.95
# Workers that wait for storage can share a core, but each is a process with memory of its own.
_MOST_PER_CORE = 4
# The trainer's own time per second may not count as less than this, or the need for workers has no end.
_LEAST_OWN = 0.01
# A worker busy for at least this fraction of the time, and more than this many times as long as the next one, is the
# one that the trainer waits for.
_ALWAYS_BUSY = 0.8
_UNEVEN = 2.0
# Of the time in loaders, the part in the trainer's own thread from which it is a loader without workers that costs.
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Workers for one trainer. All times are per second of the present wall time.

    Attributes:
        now: workers it has; 0 where most of the preparation is in a loader without workers.
        own: seconds in which the trainer does not wait for data.
        busy: seconds of preparation by all its workers (or by itself, if it has none).
        needed: workers that would keep up: ``ceil(busy / own)``.
        useful: the most that helps, given the cores.
        pace: what is left of each second with ``useful`` workers.
        cores: cores that the job may use; None if unknown.
        beside: workers of other loaders, which have no part in this.
        uneven: how busy the busiest worker and the next one are, if all wait for that one worker.
    """

    now: int
    own: float
    busy: float
    needed: int
    useful: int
    pace: float
    cores: float | None
    beside: int = 0
    uneven: tuple[float, float] | None = None

    @property
    def helps(self) -> bool:
        """Whether more workers make the job faster."""
        return self.useful > self.now and self.pace < _WORTHWHILE


def plan_workers(case: Case, cause: str) -> WorkerPlan | None:
    """A plan for the trainer that waits for data most; None where the numbers for it are missing."""
    trainers = culprits(case, cause)
    if not trainers:
        return None
    trainer = max(trainers, key=lambda trainer: trainer.phases.get("data", 0.0))
    trainer, beside = _without_idle_loader(trainer)
    waiting = trainer.phases.get("data", 0.0)
    busy = _busy(case, trainer, waiting)
    if busy is None or busy <= 0:
        return None
    own = max(1 - waiting, _LEAST_OWN)
    needed = max(1, math.ceil(busy / own - 1e-6))
    cores = setting(case, "cores")
    floor = _cores_floor(case, busy + own if trainer.workers else 1.0, cores)
    useful = needed
    if cores is not None:
        room = cores / (len(case.trainers) * _core_per_worker(case, trainer, waiting))
        useful = max(1, min(useful, int(room + 1e-6)))
        useful = min(useful, max(1, math.ceil(busy / floor - 1e-6)))
    pace = max(own, busy / useful, floor if cores is not None else 0.0)
    uneven = _uneven(trainer)
    return WorkerPlan(trainer.workers, own, busy, needed, useful, min(1.0, pace), cores, beside, uneven)


def _uneven(trainer: Trainer) -> tuple[float, float] | None:
    """How busy the busiest worker and the next one are; None unless all others wait for the one."""
    busiest, following = trainer.number("busiest_worker"), trainer.number("next_busiest_worker")
    if trainer.workers < 2 or busiest is None or following is None:
        return None
    return (busiest, following) if busiest >= _ALWAYS_BUSY and busiest > _UNEVEN * following else None


def _without_idle_loader(trainer: Trainer) -> tuple[Trainer, int]:
    """Where the trainer mostly prepares batches itself, beside its workers: as it is without them, and how many."""
    fetching = trainer.number("own_fetching") or 0.0
    if not trainer.workers or fetching < _MOSTLY * trainer.phases.get("data", 0.0):
        return trainer, 0
    return replace(trainer, workers=0, phases={**trainer.phases, "data": fetching}), trainer.workers


def _busy(case: Case, trainer: Trainer, waiting: float) -> float | None:
    """Seconds of preparation per second: the workers', or the trainer's own where it has none."""
    if trainer.workers == 0:
        return waiting
    own = trainer.number("workers_busy")
    return own if own is not None else case.number("workers_busy")


def _core_per_worker(case: Case, trainer: Trainer, waiting: float) -> float:
    """The part of a core that a busy worker uses: less than 1 where it waits for storage or a network."""
    if trainer.workers == 0:
        running = case.number("trainer_running")
        part = None if running is None or waiting <= 0 else running / waiting
    else:
        used, busy = case.number("worker_cores"), case.number("workers_busy")
        part = None if used is None or not busy else used / (busy * len(case.trainers))
    return 1.0 if part is None else min(1.0, max(part, 1 / _MOST_PER_CORE))


def _cores_floor(case: Case, assumed: float, cores: float | None) -> float:
    """Work is conserved: the CPU seconds of one second cannot take less than this on the cores there are.

    Args:
        case: what was measured.
        assumed: CPU seconds per second where they were not measured: one for whoever is busy.
        cores: cores that the job may use.
    """
    if not cores:
        return _LEAST_OWN
    used = case.number("job_cores")
    neighbours = case.number("neighbour_cores") or 0.0
    host = setting(case, "host_cores")
    free = cores if host is None else min(cores, host - neighbours)
    return max(_LEAST_OWN, (assumed if used is None else used) / max(free, 0.5))


def worker_fixes(case: Case, cause: str, plan: WorkerPlan | None) -> list[Fix]:
    """More workers, or work spread evenly, with the numbers of this job; nothing where that would not help."""
    if plan is not None and plan.uneven:
        return [_spread(case, cause, plan, *plan.uneven)]
    if plan is None or not plan.helps:
        return []
    need = (
        f"In each second, preparing batches takes {plan.busy:.2g} s and the trainer's other work {plan.own:.2g} s: "
        f"with {counted(plan.needed, 'worker')} the trainer would not wait. It has {plan.now or 'none'}"
    )
    need += f" in this loader, the {plan.beside} there are serve another" if plan.beside else ""
    if plan.useful < plan.needed and plan.cores is not None:
        used = case.number("job_cores")
        taken = f", of which the job keeps {used:.2g} busy already" if used else ""
        need += f", and on {counted(plan.cores, 'core')}{taken}, more than {plan.useful} would gain nothing"
    pinned = uses_gpu(case) and case.settings.get("pin_thread") != "yes"
    pin = ", pin_memory=True" if pinned else ""
    change = f"DataLoader(..., num_workers={plan.useful}, persistent_workers=True{pin})"
    if plan.now == 0:
        change += "\n# An IterableDataset must split its data by torch.utils.data.get_worker_info() first."
    # Workers help against all causes in the input; this finding may promise no more than its own share.
    pace = freed(case.share(cause), plan.pace)
    return [Fix(f"Use {counted(plan.useful, 'loader worker')}", f"{need}.", change, pace)]


def _spread(case: Case, cause: str, plan: WorkerPlan, busiest: float, following: float) -> Fix:
    return Fix(
        "Give each loader worker as much to do",
        f"One worker is busy {percent(busiest)} of the time, the next one {percent(following)}: batches are handed "
        "over in turn, so the trainer and the other workers wait for that one. More workers will not help.",
        "itertools.islice(samples, info.id, None, info.num_workers)  # by samples, where it was by files\n"
        "DataLoader(..., in_order=False)  # or, from PyTorch 2.6: batches as they come, fewer from a slow worker",
        freed(case.share(cause), max(plan.own, plan.busy / plan.now)),
    )


def no_more_workers(plan: WorkerPlan | None, share: float) -> str:
    """Why more workers would not help, as a sentence; empty where they would, or where it is not known.

    Args:
        plan: for the trainer that waits for data most.
        share: what the input costs it. What it does not wait for batches, it waits for cores.
    """
    if plan is None or plan.helps or plan.uneven:
        return ""
    crowded = plan.busy >= _MOSTLY * plan.now or (plan.now and 1 - plan.own < _MOSTLY * share)
    if plan.needed <= plan.now and crowded:
        count = "the one there is" if plan.now == 1 else f"the {plan.now} there are"
        return (
            f" More workers will not help: {count} can prepare batches as fast as the trainer takes them, but "
            "preparing them takes cores that the trainer's arithmetic needs."
        )
    if plan.needed <= plan.now:
        have = "the one there is has" if plan.now == 1 else f"the {plan.now} there are have"
        return (
            f" More workers will not help: {have} only {plan.busy:.2g} s of work in "
            "each second, so it is the order or the size of their pieces that makes the trainer wait."
        )
    if plan.cores is not None:
        return f" More workers will not help: no core of the {plan.cores:g} that the job may use is free."
    return ""
