"""The input pipeline: how many loader workers would keep up, making batches, starting workers, hand-over, and locks."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from perfdoctor.causes import DATA_TRANSFER, INPUT_PREPROCESSING, LOCK_CONTENTION, WORKER_STARTUP
from perfdoctor.diagnosis import Advice, Message, advise, say
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import POOL_THREADS
from perfdoctor.knowledge.libraries import PREPARED
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.rule import Rule, freed


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
        threads: compute threads for which ``useful`` workers leave the trainer cores; None where cores are unknown.
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
    threads: int | None = None
    beside: int = 0
    uneven: tuple[float, float] | None = None

    @property
    def helps(self) -> bool:
        """Whether more workers make the job faster."""
        return self.useful > self.now and self.pace < thresholds.WORTHWHILE_LEFT


def plan_workers(case: Case, cause: str) -> WorkerPlan | None:
    """A plan for the trainer that waits for data most; None where the numbers for it are missing."""
    trainers = case.trainers_with(cause)
    if not trainers:
        return None
    trainer = max(trainers, key=lambda trainer: trainer.phases.get("data", 0.0))
    trainer, beside = _without_idle_loader(trainer)
    waiting = trainer.phases.get("data", 0.0)
    busy = _busy(case, trainer, waiting)
    if busy is None or busy <= 0:
        return None
    own = max(1 - waiting, thresholds.LEAST_OWN_TIME)
    needed = max(1, math.ceil(busy / own - 1e-6))
    cores = case.setting("cores")
    floor = _cores_floor(case, busy + own if trainer.workers else 1.0, cores)
    useful, threads = needed, None
    if cores is not None:
        part, own_cores = _core_per_worker(case, trainer, waiting), cores / len(case.trainers)
        useful = max(1, min(useful, int(own_cores / part + 1e-6)))
        useful = min(useful, max(1, math.ceil(busy / floor - 1e-6)))
        threads = max(1, int(own_cores - min(busy, useful) * part + 1e-6))
    pace = max(own, busy / useful, floor if cores is not None else 0.0)
    uneven = _uneven(trainer)
    return WorkerPlan(trainer.workers, own, busy, needed, useful, min(1.0, pace), cores, threads, beside, uneven)


def _uneven(trainer: Trainer) -> tuple[float, float] | None:
    """How busy the busiest worker and the next one are; None unless all others wait for the one."""
    busiest, following = trainer.number("busiest_worker"), trainer.number("next_busiest_worker")
    if trainer.workers < 2 or busiest is None or following is None:
        return None
    uneven = busiest >= thresholds.BUSY_WORKER and busiest > thresholds.UNEVEN_WORKERS * following
    return (busiest, following) if uneven else None


def _without_idle_loader(trainer: Trainer) -> tuple[Trainer, int]:
    """Where the trainer mostly prepares batches itself, beside its workers: as it is without them, and how many."""
    fetching = trainer.number("own_fetching") or 0.0
    if not trainer.workers or fetching < thresholds.MOSTLY * trainer.phases.get("data", 0.0):
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
    return 1.0 if part is None else min(1.0, max(part, 1 / thresholds.WORKERS_PER_CORE))


def _cores_floor(case: Case, assumed: float, cores: float | None) -> float:
    """Work is conserved: the CPU seconds of one second cannot take less than this on the cores there are.

    Args:
        case: what was measured.
        assumed: CPU seconds per second where they were not measured: one for whoever is busy.
        cores: cores that the job may use.
    """
    if not cores:
        return thresholds.LEAST_OWN_TIME
    used = case.number("job_cores")
    neighbours = case.number("neighbour_cores") or 0.0
    host = case.setting("host_cores")
    free = cores if host is None else min(cores, host - neighbours)
    return max(thresholds.LEAST_OWN_TIME, (assumed if used is None else used) / max(free, thresholds.LEAST_FREE_CORES))


def worker_fixes(case: Case, cause: str, plan: WorkerPlan | None) -> list[Advice]:
    """More workers, or work spread evenly, with the numbers of this job; nothing where that would not help."""
    if plan is not None and plan.uneven:
        busiest, following = plan.uneven
        speedup = freed(case.share(cause), max(plan.own, plan.busy / plan.now))
        return [advise("input.spread_work", speedup, busiest=busiest, following=following)]
    if plan is None or not plan.helps or case.is_read_by_another(cause):
        return []
    computes_here = not case.uses_gpu
    advice = advise(
        "input.more_workers",
        # Workers help against all causes in the input; this finding may promise no more than its own share. Whether
        # there are cores for them beside a trainer that computes on cores too is known, or nothing is promised.
        None if computes_here and plan.cores is None else freed(case.share(cause), plan.pace),
        now=plan.now,
        beside=plan.beside,
        needed=plan.needed,
        useful=plan.useful,
        busy=plan.busy,
        own=plan.own,
        cores=plan.cores,
        used_cores=case.number("job_cores"),
        pin=case.uses_gpu and case.settings.get("pin_thread") != "yes",
        threads=plan.threads if computes_here and _has_more_threads(case, plan) else None,
        divides=computes_here,
        tight=_lacking_memory(case, plan),
    )
    return [advice]


def _has_more_threads(case: Case, plan: WorkerPlan) -> bool:
    """Whether the trainer's arithmetic may use more threads than the workers leave cores for."""
    if plan.threads is None or plan.cores is None:
        return False
    now = case.variable(POOL_THREADS)
    return plan.threads < (int(now) if now is not None and now.isdigit() else plan.cores / len(case.trainers))


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
        return (
            say("input.workers_take_cores", now=plan.now)
            if crowded
            else say("input.workers_idle", now=plan.now, busy=plan.busy)
        )
    return None if plan.cores is None else say("input.no_free_core", cores=plan.cores)


def _mostly_sampling(case: Case) -> bool:
    """Whether most of it is the sampler's: indices are drawn in the trainer, however many workers there are."""
    drawing = [trainer.number("own_sampling") or 0.0 for trainer in case.trainers]
    most = thresholds.MOSTLY * case.share(INPUT_PREPROCESSING)
    return bool(drawing) and sum(drawing) / len(drawing) >= most


def _draw_otherwise(case: Case) -> Iterator[Advice]:
    share = case.share(INPUT_PREPROCESSING)
    yield advise("input.draw_many", freed(share), line=case.hot_line(INPUT_PREPROCESSING), share=share)
    yield advise("input.draw_ahead")


def _prepare_otherwise(case: Case) -> Iterator[Advice]:
    share, below = case.share(INPUT_PREPROCESSING), case.below.get(INPUT_PREPROCESSING, {})
    plan, kind = plan_workers(case, INPUT_PREPROCESSING), _kind_of_input(below)
    arrow = str(case.settings.get("dataset", "")).startswith("arrow")
    yield from worker_fixes(case, INPUT_PREPROCESSING, plan)
    # Rows of tensors in memory, taken one by one and stacked: the preparation is torch's own.
    if _has_rows(case) and below.get("torch", 0.0) >= thresholds.MOSTLY:
        yield advise("input.whole_batches", freed(share))
        return
    if arrow and below.get("datasets", 0.0) >= thresholds.DECODING:
        yield advise("input.rows_in_order", by_number=case.settings.get("dataset") == "arrow rows by number")
    if kind == "text":  # tokens are the same in each epoch
        yield advise("input.prepare_once", kind=kind, arrow=arrow)
    yield advise(
        "input.cheaper",
        freed(share),
        line=case.hot_line(INPUT_PREPROCESSING),
        loader=case.settings.get("loader") != "no",
        share=share,
        no_more_workers=no_more_workers(plan, share),
        kind=kind,
    )
    if kind != "text":
        yield advise("input.prepare_once", kind=kind, arrow=arrow)
    if case.uses_gpu and kind in ("images", "video"):
        yield advise("input.decode_on_gpu", kind=kind)
    if case.uses_gpu and kind not in ("text", "video", "sound"):
        yield advise("input.augment_on_gpu")


def _kind_of_input(below: Mapping[str, float]) -> str:
    """What the preparation is about by the packages that work at it: ``images``, ``sound`` …; "" where none does."""
    parts = {kind: sum(below.get(name, 0.0) for name in names) for kind, names in PREPARED.items()}
    kind = max(parts, key=lambda kind: parts[kind])
    return kind if parts[kind] >= thresholds.DECODING else ""


def _has_rows(case: Case) -> bool:
    """Whether the samples are rows of tensors in memory."""
    return case.settings.get("dataset") == "tensors"


def _keep_workers(case: Case) -> Iterator[Advice]:
    yield advise("input.keep_workers", starts=case.number("worker_starts"), life=case.number("worker_life"))
    yield advise("input.longer_epochs")
    if case.settings.get("start_method") == "spawn":
        yield advise("input.fork_server")


def _hand_over_otherwise(case: Case) -> Iterator[Advice]:
    busy = case.number("worker_busy")
    slack = None if busy is None or 1 - busy < thresholds.SLACK_OF_WORKERS else 1 - busy
    yield advise("input.whole_batches") if _has_rows(case) else advise("input.fewer_tensors", slack=slack)
    if case.settings.get("pin_thread") == "yes":
        yield advise("input.pin_less")
    if slack:
        yield advise("input.out_of_order", slack=slack)
    if (case.setting("workers") or 0) > 0 and not case.uses_gpu:
        yield advise("input.without_workers")


def _lock_less(case: Case) -> Iterator[Advice]:
    yield advise("input.own_resource", line=case.hot_line(LOCK_CONTENTION))
    yield advise("input.lock_shared_part")


INPUT_RULES = (
    Rule(
        INPUT_PREPROCESSING,
        say("input.sampling"),
        ("worker_busy", "workers_busy"),
        _draw_otherwise,
        say("input.sampling_refuted"),
        applies=_mostly_sampling,
    ),
    Rule(
        INPUT_PREPROCESSING,
        say("input.preparing"),
        (
            "workers_busy",
            "worker_busy",
            "job_cores",
            "worker_cores",
            "neighbour_cores",
            "page_cache",
            "traced_loading",
            "traced_busy",
            "exposed_data",
        ),
        _prepare_otherwise,
        say("input.preparing_refuted"),
    ),
    Rule(
        WORKER_STARTUP,
        say("input.starting"),
        ("worker_starts", "worker_life", "exposed_data"),
        _keep_workers,
        say("input.starting_refuted"),
    ),
    Rule(
        DATA_TRANSFER,
        say("input.hand_over"),
        ("worker_busy", "workers_busy", "trainer_switches", "exposed_data"),
        _hand_over_otherwise,
        say("input.hand_over_refuted"),
    ),
    Rule(
        LOCK_CONTENTION,
        say("input.queueing"),
        ("worker_busy", "worker_cores"),
        _lock_less,
        say("input.queueing_refuted"),
    ),
)
