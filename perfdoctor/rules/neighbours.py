"""Other processes that keep the job's cores busy, and what work of the job's costs beside them."""

from perfdoctor.causes import (
    CONTENTION,
    EVALUATION,
    GARBAGE_COLLECTION,
    INPUT_PREPROCESSING,
    MODEL_COMPUTE,
    PYTHON_OVERHEAD,
)
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case

_OF_MAIN_THREADS = frozenset((PYTHON_OVERHEAD, MODEL_COMPUTE, GARBAGE_COLLECTION, EVALUATION))


def has_neighbours(case: Case) -> bool:
    """Whether others keep enough cores busy to matter."""
    return (case.number("neighbour_cores") or 0.0) >= thresholds.NEIGHBOUR_CORES


def is_crowded(case: Case) -> bool:
    """Whether the job alone has more runnable threads than cores."""
    cores, runnable = case.setting("cores"), case.number("runnable_threads")
    return cores is not None and runnable is not None and runnable > thresholds.CROWDED_CORES * cores


def by_neighbours(case: Case) -> bool:
    """Whether others take the cores, and not the job's own threads."""
    neighbours, used = case.number("neighbour_cores") or 0.0, case.number("job_cores") or 0.0
    return has_neighbours(case) and (not is_crowded(case) or neighbours > used)


def without_neighbours(case: Case, share: float) -> float:
    """What a share of the time would be of the time without queueing for cores that others take.

    Whether something is worth a word does not depend on who else runs on the machine just now.
    """
    return min(1.0, share * _lengthened(case))


def with_queueing(case: Case, cause: str) -> float:
    """By what factor a cause's work costs more than its own time: main threads queue for a core to do it.

    Whoever has less to compute queues for a core less. Tried on 2 cores that others kept busy: of a call that took
    0.10 of the time, beside 0.67 of queueing, 0.22 of the wall time went, and 0.33 of the CPU time; of an evaluation of
    0.06, beside 0.78 of queueing, 0.23.
    """
    alone = cause in _OF_MAIN_THREADS or (
        cause == INPUT_PREPROCESSING and not any(one.workers or one.helpers for one in case.trainers)
    )
    return _lengthened(case) if alone else 1.0


def _lengthened(case: Case) -> float:
    """How many times as long everything takes because others take the cores."""
    queueing = case.share(CONTENTION) if by_neighbours(case) else 0.0
    return 1 / max(1 - queueing, thresholds.LEAST_LEFT)


def needed_time(case: Case, without: float = 0.0) -> float | None:
    """What of the wall time the CPU time that the job uses today needs its cores for, even if nobody queues.

    What pools may burn is no part of it: threads of a pool meet at barriers, where those that have a core spin for the
    one that lacks it (measured: 3.3 times the pace where a bound by all of their CPU time said 1.1, and 2.2 times where
    it said 1.5).

    Args:
        case: the job.
        without: cores that are kept busy by what may go.
    """
    cores, used = case.setting("cores"), case.number("job_cores")
    room = case.setting("host_cores") if cores and has_narrow_mask(case) else cores
    return max(0.0, used - _pool_cores(case) - without) / room if used and room and cores else None


def has_narrow_mask(case: Case) -> bool:
    """Whether an affinity mask leaves cores of the host out although they are idle."""
    allowed, host, busy = case.setting("affinity_cores"), case.setting("host_cores"), case.number("host_cores_busy")
    if allowed is None or host is None or busy is None:
        return False
    return allowed < host and host - busy >= thresholds.IDLE_CORES_LEFT_OUT


def _pool_cores(case: Case) -> float:
    """Cores that threads of trainers use beside the main ones; 0 where that is not known."""
    main, cores = case.number("trainer_running"), case.number("trainer_cores")
    return len(case.trainers) * max(0.0, cores - main) if main is not None and cores is not None else 0.0
