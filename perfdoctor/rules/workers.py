"""Loader workers: how many would keep up, what that leaves of the time and of the trainer's threads, and the advice."""

import math
from dataclasses import dataclass, replace

from perfdoctor.causes import (
    CONTENTION,
    DATA_TRANSFER,
    INPUT_CAUSES,
    MODEL_COMPUTE,
    NETWORK_READ,
    SWAP,
    THROTTLED,
    WORKER_STARTUP,
)
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.neighbours import without_neighbours

# What slows loader workers down as well, or them alone.
_OF_SUPPLY = INPUT_CAUSES | {CONTENTION, SWAP, THROTTLED}


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Workers for one trainer. All times are per second of the present wall time.

    Attributes:
        now: workers it has; 0 where most of the preparation is in a loader without workers.
        own: seconds in which the trainer does not wait for data.
        busy: seconds of preparation by all its workers (or by itself, if it has none), with ``in_loop``.
        needed: workers that would keep up: ``ceil(busy / own)``, or as many as an iterator has batches.
        useful: the most that helps, given the cores.
        pace: what is left of each second with ``useful`` workers and ``threads``.
        cores: cores that the job may use; None if unknown.
        best: as ``pace``, where everything goes well.
        worst: as ``pace``, where it does not.
        beside: workers of other loaders, which have no part in this.
        uneven: how busy the busiest worker and the next one are, if all wait for that one worker.
        threads: compute threads that leave a core to each worker; None where the trainer's need not change.
        in_loop: seconds in which the loop itself prepares batches, which workers would do in its place; 0 where that is
            not most of the waiting.
        short_of_cores: not the trainer's other work, but the number of cores is what limits the pace.
        first: seconds that go to first batches of iterators: no worker makes these ahead of the trainer.
        lost: seconds in which for that reason either nobody prepares batches or the trainer has none; part of ``pace``.
    """

    now: int
    own: float
    busy: float
    needed: int
    useful: int
    pace: float
    cores: float | None
    best: float
    worst: float
    beside: int = 0
    uneven: tuple[float, float] | None = None
    threads: int | None = None
    in_loop: float = 0.0
    short_of_cores: bool = False
    first: float = 0.0
    lost: float = 0.0

    @property
    def helps(self) -> bool:
        """Whether more workers, or more for them to do, make the job faster."""
        return (self.useful > self.now or self.in_loop > 0) and self.pace < thresholds.WORTHWHILE_LEFT


def plan_workers(case: Case, cause: str) -> WorkerPlan | None:
    """A plan for the trainer that waits for data most; None where numbers are missing, or helpers do the work."""
    trainers = case.trainers_with(cause)
    if not trainers:
        return None
    trainer, beside = _without_idle_loader(max(trainers, key=lambda one: _fetching(one) + _preparing(one)))
    fetching, in_loop = _fetching(trainer), _preparing(trainer)
    if in_loop < thresholds.MOSTLY * (fetching + in_loop):
        in_loop = 0.0
    waiting = fetching + in_loop
    if _is_helped(case, trainer, waiting):
        return None
    busy = _busy(case, trainer, waiting, in_loop)
    if busy is None or busy <= 0:
        return None
    own = max(1 - waiting, thresholds.LEAST_OWN_TIME)
    needed, first = max(1, math.ceil(busy / own - 1e-6)), _first_batches(case, trainer, fetching)
    if first:
        needed = max(1, min(needed, round(busy / first)))  # of an iterator no more batches are made at once
    cores = case.setting("cores")
    floor = cores_floor(case, busy + own if trainer.workers else 1.0, cores)
    useful, per_worker = needed, _core_per_worker(case, trainer, waiting)
    if cores is not None:
        room = cores / (len(case.trainers) * per_worker)
        useful = max(1, min(useful, int(room + 1e-6)))
        useful = min(useful, max(1, math.ceil(busy / floor - 1e-6)))
    if in_loop:
        useful = max(useful, trainer.workers)  # none of those there are is taken away
    batches = busy / useful
    pace = max(own, batches, floor if cores is not None else 0.0)
    plan = WorkerPlan(
        now=trainer.workers, own=own, busy=busy, needed=needed, useful=useful, pace=pace, cores=cores, best=pace,
        worst=pace, beside=beside, uneven=_uneven(trainer), in_loop=in_loop,
        short_of_cores=cores is not None and (useful < needed or floor >= max(own, batches)),
    )  # fmt: skip
    crowding = _crowd_out(case, trainer, own, useful * per_worker)
    if useful > trainer.workers and crowding is not None:
        plan = _with_fewer_threads(plan, crowding)
    if trainer.workers == 0:  # batches of the trainer's own are handed to nobody
        plan = _with_handing_over(plan, batches, 0.0 if case.uses_gpu else per_worker * min(own, batches))
    # The trainer waits while the first batch of an iterator is made, and workers while it trains on the last ones: of
    # both the shorter is lost, beside the longer of making all batches and training on them.
    lost = first * min(1.0, useful * own / busy)
    ends = {name: min(1.0, getattr(plan, name) + lost) for name in ("pace", "best", "worst")}
    return replace(plan, first=first, lost=lost, **ends)


def _with_handing_over(plan: WorkerPlan, batches: float, beside: float) -> WorkerPlan:
    """The plan with what handing batches over takes, of which a trainer that has no workers shows nothing.

    Each tensor that comes through a file is asked for in a thread of the worker that made it. Where that one runs
    Python meanwhile, the trainer waits until it gives the GIL away.

    Args:
        plan: without that.
        batches: seconds in which each worker makes its batches.
        beside: of them those in which both compute.
    """
    lost = thresholds.LOST_BESIDE * beside
    return replace(
        plan,
        pace=max(plan.pace, batches * thresholds.HANDED_OVER) + lost,
        worst=max(plan.worst, batches * thresholds.HANDED_OVER**2) + 2 * lost,
    )


@dataclass(frozen=True, slots=True)
class _Crowding:
    """That workers and the threads of the trainer's arithmetic are more than the cores.

    Attributes:
        arithmetic: seconds per second in which the trainer computes.
        threads: in which it does so today.
        fitting: that leave the workers' cores alone.
    """

    arithmetic: float
    threads: int
    fitting: int


def _crowd_out(case: Case, trainer: Trainer, own: float, worker_cores: float) -> _Crowding | None:
    """What workers would take from the trainer's pool of threads; None where there are cores for all."""
    cores, running, used = case.setting("cores"), case.number("trainer_running"), case.number("trainer_cores")
    if cores is None or running is None or used is None:
        return None
    # Threads of a pool spin between their pieces of work, so they are busy all the time that is the trainer's own.
    threads = 1 + math.ceil((used - running) / own - thresholds.POOL_THREAD)
    room = cores / len(case.trainers)
    if threads < 2 or threads + worker_cores <= room:
        return None
    fitting = max(1, int(room - worker_cores + 1e-6))
    return _Crowding(min(own, trainer.shares.get(MODEL_COMPUTE, own)), threads, min(fitting, threads))


def _with_fewer_threads(plan: WorkerPlan, crowding: _Crowding) -> WorkerPlan:
    """The plan with fewer threads for the arithmetic.

    A piece of work in a pool takes as long as its slowest thread, so a worker on the core of one of them takes from
    all: with as many threads as before, workers gain nothing where the cores are full.
    """
    batches, rest = plan.busy / plan.useful, plan.own - crowding.arithmetic
    fewer = crowding.threads / crowding.fitting
    return replace(
        plan,
        pace=max(rest + crowding.arithmetic * fewer**thresholds.POOL_SCALING, batches),
        best=max(plan.own, batches),
        worst=max(rest + crowding.arithmetic * fewer, batches),
        threads=crowding.fitting,
    )


def _uneven(trainer: Trainer) -> tuple[float, float] | None:
    """How busy the busiest worker and the next one are; None unless all others wait for the one."""
    busiest, following = trainer.number("busiest_worker"), trainer.number("next_busiest_worker")
    if trainer.workers < 2 or busiest is None or following is None:
        return None
    uneven = busiest >= thresholds.BUSY_WORKER and busiest > thresholds.UNEVEN_WORKERS * following
    return (busiest, following) if uneven else None


def _fetching(trainer: Trainer) -> float:
    """Fraction of its time in which a trainer waits for a loader, or prepares batches in one."""
    return trainer.phases.get("data", 0.0)


def _first_batches(case: Case, trainer: Trainer, fetching: float) -> float:
    """Seconds that go to first batches of iterators, without the start of workers that make them."""
    return max(0.0, fetching * (case.number("first_batches") or 0.0) - trainer.shares.get(WORKER_STARTUP, 0.0))


def _preparing(trainer: Trainer) -> float:
    """Fraction of its time in which its loop itself prepares batches, before the model's call."""
    return trainer.number("own_in_loop") or 0.0


def _without_idle_loader(trainer: Trainer) -> tuple[Trainer, int]:
    """Where a loader mostly prepares batches in the trainer, beside workers: it without them, and how many."""
    fetching = (trainer.number("own_fetching") or 0.0) - _preparing(trainer)
    if not trainer.workers or fetching <= 0 or fetching < thresholds.MOSTLY * _fetching(trainer):
        return trainer, 0
    return replace(trainer, workers=0, phases={**trainer.phases, "data": fetching}), trainer.workers


def _is_helped(case: Case, trainer: Trainer, waiting: float) -> bool:
    """Whether it waits for processes of its own, a pool or environments: a loader's workers would not do their work."""
    running = case.number("trainer_running")
    if trainer.workers or not trainer.helpers or not case.asks_helpers or running is None:
        return False
    return 1 - running >= thresholds.MOSTLY * waiting


def _busy(case: Case, trainer: Trainer, waiting: float, in_loop: float) -> float | None:
    """Seconds of preparation per second: the workers' and what its loop prepares, or all its own where it has none."""
    if trainer.workers == 0:
        return waiting
    workers = _workers_busy(case, trainer)
    return None if workers is None else workers + in_loop


def _workers_busy(case: Case, trainer: Trainer) -> float | None:
    """How many of its workers are at work, on average."""
    own = trainer.number("workers_busy")
    return own if own is not None else case.number("workers_busy")


def _core_per_worker(case: Case, trainer: Trainer, waiting: float) -> float:
    """The part of a core that a busy worker uses: less than 1 where it waits for storage or a network."""
    if trainer.workers == 0:
        running = case.number("trainer_running")
        answered = trainer.shares.get(NETWORK_READ, 0.0)
        part = None if running is None or waiting <= 0 else min(running, max(0.0, waiting - answered)) / waiting
    else:
        used, busy = case.number("worker_cores"), case.number("workers_busy")
        part = None if used is None or not busy else used / (busy * len(case.trainers))
    return 1.0 if part is None else min(1.0, max(part, 1 / thresholds.WORKERS_PER_CORE))


def cores_floor(case: Case, assumed: float, cores: float | None) -> float:
    """Work is conserved: the CPU seconds of one second cannot take less than this on the cores there are.

    Args:
        case: what was measured.
        assumed: CPU seconds per second where they were not measured: one for whoever is busy.
        cores: cores that the job may use.
    """
    if not cores:
        return thresholds.LEAST_OWN_TIME
    measured = case.number("job_cores")
    used = assumed if measured is None else measured
    neighbours = case.number("neighbour_cores") or 0.0
    # Neighbours are counted on the cores that the job may use, of which a quota may leave it a part.
    room = case.setting("affinity_cores") or case.setting("host_cores")
    free = cores if room is None else min(cores, room - neighbours)
    # What it has already, neighbours leave it, and no more is sure (beside 1.6 of 2 cores workers gained nothing). But
    # who mostly waits gets more when it asks: for a trainer that asked a slow server, beside 1.3 of 2 cores, a worker
    # brought 1.7 to 2.1.
    free = max(free, min(cores, _granted(case)))
    return max(thresholds.LEAST_OWN_TIME, min(1.0, used / free) if free > 0 else 1.0)


def _granted(case: Case) -> float:
    """How many cores the trainers' main threads get while they ask for one each."""
    running, delayed = case.number("trainer_running") or 0.0, case.number("trainer_run_delay") or 0.0
    return len(case.trainers) * running / (running + delayed) if running else 0.0


def supply_floor(case: Case, cause: str) -> float | None:
    """What of the wall time loader workers need for the batches, whatever the trainer saves of its own work.

    For workers that are always busy the trainer waits the longer the less else it does. None without such workers, for
    causes that are the supply's own or take cores from both sides, and where cores are short: workers are slow then
    because the trainer computes.
    """
    used, cores = case.number("job_cores"), case.setting("cores")
    if cause in _OF_SUPPLY or used is None or cores is None or used >= thresholds.FULL_CORES * cores:
        return None
    waiting = [one for one in case.trainers if one.workers and _fetching(one) >= thresholds.REPORTED_SHARE]
    return max(((_workers_busy(case, one) or 0.0) / one.workers for one in waiting), default=None)


def worker_fixes(case: Case, cause: str, plan: WorkerPlan | None) -> list[Advice]:
    """Workers, or work for them, with the numbers of this job; nothing where that would not help."""
    if plan is not None and plan.uneven:
        busiest, following = plan.uneven
        return [advise("workers.spread_work", busiest=busiest, following=following)]
    if plan is None or not plan.helps or case.comes_through_pipe(cause):
        return []
    if plan.in_loop or not case.may_have_loader:
        return [] if case.depends_on_steps else [_take_over(case, cause, plan)]
    advice = advise(
        "workers.more",
        now=plan.now,
        beside=plan.beside,
        needed=plan.needed,
        useful=plan.useful,
        busy=plan.busy,
        own=plan.own,
        cores=plan.cores,
        used_cores=case.number("job_cores"),
        threads=plan.threads,
        pin=_should_pin(case),
        divides=not case.uses_gpu,
        streamed=case.settings.get("streamed") == "yes",
        tight=_lacking_memory(case, plan),
        shared=_little_shared_memory(case),
        lost=plan.lost if plan.lost >= thresholds.SHOWN_PART else None,
    )
    return [replace(advice, other_loader=plan.beside > 0)]


def _take_over(case: Case, cause: str, plan: WorkerPlan) -> Advice:
    return advise(
        "workers.take_over",
        line=case.hot_line(cause),
        now=plan.now,
        useful=plan.useful,
        busy=plan.in_loop or plan.busy,
        own=plan.own,
        threads=plan.threads,
        pin=_should_pin(case),
        tight=_lacking_memory(case, plan),
        shared=_little_shared_memory(case),
        loader=case.may_have_loader,
    )


def _should_pin(case: Case) -> bool:
    return case.uses_gpu and case.settings.get("pin_thread") != "yes"


def _little_shared_memory(case: Case) -> float | None:
    """The room in /dev/shm in MB, through which batches come, where it is that of a container which asked for none."""
    free = case.number("shm_free")
    return free if free is not None and free < thresholds.LITTLE_SHARED_MEMORY else None


def _lacking_memory(case: Case, plan: WorkerPlan) -> tuple[float, float] | None:
    """What a worker has in memory and what is available, in MB, where as much for each further one would not fit."""
    size, available = case.number("worker_rss"), case.number("memory_available")
    if size is None or available is None:
        return None
    return (size, available) if (plan.useful - plan.now) * size > available else None


def no_more_workers(plan: WorkerPlan | None, share: float) -> Message | None:
    """Why more workers would not help; None where they would, or where it is not known.

    Args:
        plan: for the trainer that waits for data most.
        share: what the input costs it. What it does not wait for batches, it waits for cores.
    """
    if plan is None or plan.helps or plan.uneven:
        return None
    if plan.needed <= plan.now:
        crowded = plan.busy >= thresholds.MOSTLY * plan.now or 1 - plan.own < thresholds.MOSTLY * share
        return say("workers.take_cores", now=plan.now) if crowded else say("workers.idle", now=plan.now, busy=plan.busy)
    without = 1 - plan.pace + plan.lost  # what workers would gain if iterators never ended
    if plan.lost >= max(thresholds.REPORTED_SHARE, thresholds.MOSTLY * without):
        return say("workers.short_rounds", first=plan.first)
    return say("workers.no_free_core", cores=plan.cores) if plan.short_of_cores and plan.cores is not None else None


# What loader workers cost beside what they prepare.
OF_WORKERS = (WORKER_STARTUP, DATA_TRANSFER)


def freed_without_workers(case: Case, cause: str) -> float | None:
    """The fraction of the wall time that is freed where the trainer prepares its batches itself; None if not known.

    Nothing is started and handed over then, and nobody queues to do it for cores that others take. Where epochs are
    short that is most of it (measured: 1.8 times the pace, where kept workers brought 1.4). What the trainer draws
    indices for, it does in any case.
    """
    plan = plan_workers(case, cause)
    if plan is None or not plan.now:
        return None
    stays = plan.own + plan.busy + case.mean_of("own_sampling")
    return min(without_neighbours(case, sum(map(case.share, OF_WORKERS))), max(0.0, 1 - stays))
