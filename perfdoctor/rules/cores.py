"""CPU cores: threads that queue for them, how many the arithmetic has, and a quota on them."""

from collections.abc import Iterable, Iterator

from perfdoctor.causes import CONTENTION, INPUT_CAUSES, THROTTLED
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import BINDS_NOTHING, BINDS_THREADS, POOL_THREADS
from perfdoctor.messages import Message, say
from perfdoctor.metrics.neighbours import BusyHelper
from perfdoctor.rules.case import Case
from perfdoctor.rules.neighbours import by_neighbours, has_narrow_mask, has_neighbours, is_crowded, needed_time
from perfdoctor.rules.rule import Rule


def _free_cores(case: Case) -> Iterable[Advice]:
    own = [*_widen_mask(case), *_calm_helper(case), *_use_fewer_threads(case), *_use_fewer_workers(case)]
    others = [*_move_neighbours(case), *_use_fewer_threads_beside(case)]
    fixes = [*others, *own] if by_neighbours(case) else [*own, *others]
    return fixes or [_find_more_cores(case)]


def _say_who_has_them(case: Case) -> Iterator[Message]:
    """Who keeps the cores busy, and how much of the share is waiting for threads that get none."""
    itself = case.number("trainer_run_delay")
    if by_neighbours(case):
        culprits = tuple(map(tuple, case.neighbours))
        yield say("cores.neighbours", busy=case.measured("neighbour_cores"), culprits=culprits)
    elif is_crowded(case):
        yield say("cores.crowded", runnable=case.number("runnable_threads"), cores=case.setting("cores"))
    if itself is not None and case.share(CONTENTION) - itself >= thresholds.REPORTED_SHARE:
        yield say("cores.waits_for_others", itself=itself)


def _left_without_queues(case: Case) -> float | None:
    """What of the wall time is left if nobody queues, nor does what nobody waits for."""
    helper = _unneeded_helper(case)
    return needed_time(case, without=helper.cores if helper is not None else 0.0)


def _pool_threads(case: Case) -> int:
    """Threads of each trainer that run or queue at a time; 0 where it is not known which of them are workers."""
    runnable = case.number("runnable_threads")
    if runnable is None or (any(trainer.workers for trainer in case.trainers) and not _has_idle_workers(case)):
        return 0
    return round(runnable / max(1, len(case.trainers)))


def _has_idle_workers(case: Case) -> bool:
    used = case.number("worker_cores")
    return used is not None and used < thresholds.IDLE_WORKERS_USE


def _count_processes(case: Case) -> int:
    """Trainers, their workers, and other processes of theirs."""
    return sum(1 + trainer.workers + trainer.helpers for trainer in case.trainers) or 1


def _is_single_threaded(case: Case, runnable: float) -> bool:
    """Whether each process computes in one thread already: trainers do, and no more threads run than processes."""
    main, cores = case.number("trainer_running"), case.number("trainer_cores")
    if main is None or cores is None or runnable > _count_processes(case):
        return False
    return cores <= thresholds.SINGLE_THREADED * main


def _find_more_cores(case: Case) -> Advice:
    """Where the job needs all its cores, its threads outnumber them for moments only; else others are to be found."""
    cores, used = case.setting("cores"), case.number("job_cores")
    if cores and used is not None and used >= thresholds.FULL_CORES * cores:
        return advise("cores.more_cores", used=used, cores=cores)
    return advise("cores.find_others")


def _move_neighbours(case: Case) -> Iterator[Advice]:
    if has_neighbours(case):
        cores = case.setting("cores")
        yield advise(
            "cores.move_neighbours",
            busy=case.measured("neighbour_cores"),
            cores=int(cores) if cores else None,
            neighbours=tuple(map(tuple, case.neighbours)),
        )


def _use_fewer_threads_beside(case: Case) -> Iterator[Advice]:
    """Fewer threads, where what the pool loses by its barriers is more than the threads are good for."""
    cores, threads = case.setting("cores"), _pool_threads(case)
    if cores is None or not threads or not has_neighbours(case):
        return
    free = max(0.0, cores - (case.number("neighbour_cores") or 0.0)) / max(1, len(case.trainers))
    fitting = max(1, int(free))
    gain = min(fitting, free) / threads / max(1 - case.share(CONTENTION), thresholds.LEAST_LEFT)
    if threads > fitting and gain >= thresholds.FEWER_THREADS_GAIN:
        yield advise("cores.fewer_threads_beside", threads=threads, fitting=fitting, gain=gain)


def _widen_mask(case: Case) -> Iterator[Advice]:
    if not has_narrow_mask(case):
        return
    allowed, host, busy = case.setting("affinity_cores"), case.setting("host_cores"), case.number("host_cores_busy")
    idle, binding = (host or 0.0) - (busy or 0.0), _binding(case)
    if binding is None:
        place = case.settings.get("pinned_at")
        yield advise("cores.wider_mask", allowed=allowed, host=host, idle=idle, place=place)
        return
    value = case.variable(binding)
    yield advise("cores.unbind_threads", variable=binding, value=value, allowed=allowed, host=host, idle=idle)


def _unneeded_helper(case: Case) -> BusyHelper | None:
    """A process of the job's own that takes cores, while its trainers do not wait for what it does."""
    waited_for = sum(map(case.share, INPUT_CAUSES)) >= thresholds.REPORTED_SHARE
    busy = case.busy_helper is not None and case.busy_helper.cores >= thresholds.NEIGHBOUR_CORES
    return case.busy_helper if busy and not waited_for and is_crowded(case) else None


def _calm_helper(case: Case) -> Iterator[Advice]:
    helper, cores, runnable = _unneeded_helper(case), case.setting("cores"), case.number("runnable_threads")
    if helper is not None and cores is not None and runnable is not None:
        pid, command, busy, line = helper
        wanted = busy * runnable / (case.number("job_cores") or runnable)  # it queues as all of them do
        part = min(1.0, wanted / (runnable - cores))
        yield advise("cores.calm_helper", pid=pid, command=command, busy=busy, line=line, part=part)


def _binding(case: Case) -> str | None:
    """The variable by which OpenMP binds the job's threads to cores; None where none does."""
    set_here = filter(case.switched_on, BINDS_THREADS)
    return next((name for name in set_here if not (case.variable(name) or "").endswith(BINDS_NOTHING)), None)


def _use_fewer_threads(case: Case) -> Iterator[Advice]:
    """Threads per process so that all processes together fit the cores."""
    cores, runnable = case.setting("cores"), case.number("runnable_threads")
    if cores is None or runnable is None or not is_crowded(case):
        return
    processes, fitting = _count_processes(case), _fitting_threads(case, cores)
    now, given = case.variable(POOL_THREADS), given_threads(case)
    # A launcher like torchrun sets the variable; what the script sets afterwards counts.
    pools = len(case.trainers) if sets_threads(case) else processes
    overruled = given is not None and runnable > thresholds.OVERRULED_THREADS * given * pools
    fits = given is not None and given <= fitting and not overruled
    if fits or (fitting == 1 and _is_single_threaded(case, runnable)):
        return
    yield advise(
        "cores.fewer_threads",
        fitting=fitting,
        processes=processes,
        runnable=runnable,
        cores=cores,
        now=now,
        overruled=overruled or sets_threads(case),
    )


def _fitting_threads(case: Case, cores: float) -> int:
    """Threads with which each trainer's arithmetic fits on the cores that workers and other processes leave it.

    Where it is not known what these use, each may compute as a trainer does.
    """
    used, own, trainers = case.number("job_cores"), case.number("trainer_cores"), max(1, len(case.trainers))
    there = cores_of_arithmetic(case, cores)
    if used is None or own is None:
        return max(1, int(there) // _count_processes(case))
    return max(1, round((there - max(0.0, used - trainers * own)) / trainers))


def _use_fewer_workers(case: Case) -> Iterator[Advice]:
    """Fewer workers, where with the trainers they are more than the cores, and neither idle nor waited for."""
    if sum(map(case.share, INPUT_CAUSES)) >= case.share(CONTENTION):
        return
    cores, trainers = case.setting("cores"), len(case.trainers)
    workers = sum(trainer.workers for trainer in case.trainers)
    if _has_idle_workers(case) or cores is None or workers + trainers <= cores or workers <= trainers:
        return
    fitting = max(1, int(cores - trainers) // max(trainers, 1))
    if fitting < max((trainer.workers for trainer in case.trainers), default=0):
        yield advise("cores.fewer_workers", fitting=fitting, workers=workers, trainers=trainers, cores=cores)


def _lift_quota(case: Case) -> Iterator[Advice]:
    quota, runnable = case.setting("quota_cores"), case.number("runnable_threads")
    yield advise(
        "cores.raise_quota",
        quota=quota,
        visible=case.setting("affinity_cores"),
        stopped=case.number("throttled_periods"),
    )
    if quota is None:
        return
    threads = max(1, int(quota))
    fits = runnable is not None and runnable <= thresholds.CROWDED_CORES * threads
    if not fits and case.variable(POOL_THREADS) != str(threads):
        yield advise("cores.threads_of_quota", threads=threads)


def _left_without_quota(case: Case) -> float | None:
    """Without the quota the job has the cores of its affinity mask, and no more."""
    quota, allowed = case.setting("quota_cores"), case.setting("affinity_cores")
    return quota / allowed if quota is not None and allowed else None


CORE_RULES = (
    Rule(
        CONTENTION,
        say("cores.queueing"),
        (
            "trainer_run_delay", "worker_run_delay", "runnable_threads", "job_cores", "neighbour_cores",
            "stolen_cores", "cpu_pressure", "throttled_periods", "own_cores",
        ),
        _free_cores,
        say("cores.queueing_refuted"),
        clauses=_say_who_has_them,
        left=_left_without_queues,
    ),
    Rule(
        THROTTLED,
        say("cores.standing_still"),
        ("throttled_periods", "throttled_cores", "trainer_run_delay", "job_cores", "host_cores_busy"),
        _lift_quota,
        say("cores.standing_still_refuted"),
        left=_left_without_quota,
    ),
)  # fmt: skip


def cores_of_arithmetic(case: Case, cores: float) -> float:
    """How many cores arithmetic has.

    Two hardware threads of a core share its units for that, so PyTorch itself starts one thread for each physical core
    (c10/core/thread_pool.cpp, ``defaultNumThreads``).

    Args:
        case: the job.
        cores: that it may use, each thread of theirs counted.
    """
    return case.setting("physical_cores") or cores


def given_threads(case: Case) -> float | None:
    """Threads of a process's pool: the script's number if it is plain, the variable's, or one for each core it sees."""
    if (number := _in_code(case)) is not None:
        return number
    if case.variable(POOL_THREADS) is not None:
        return _of_variable(case)
    seen = case.setting("affinity_cores")
    return None if seen is None else cores_of_arithmetic(case, seen)


def limited_threads(case: Case) -> int | None:
    """To how many threads a trainer's arithmetic is limited; None where nothing limits it, or that is not known."""
    if not sets_threads(case):
        return _of_variable(case)
    number, used = _in_code(case), case.number("trainer_cores")
    if number is None and used is not None:
        return max(1, round(used))
    return number


def _of_variable(case: Case) -> int | None:
    """What the variable gives a process's pool; None where it is not set, or says no number of threads."""
    now = case.variable(POOL_THREADS) or ""
    return int(now) or None if now.isdigit() else None


def sets_threads(case: Case) -> bool:
    """Whether the script says itself how many threads compute, which overrules the variable."""
    return "threads_set" in case.settings


def _in_code(case: Case) -> int | None:
    """The number that the script sets; None where it sets none, or computes it."""
    number = str(case.settings.get("threads_set", ""))
    return int(number) or None if number.isdigit() else None
