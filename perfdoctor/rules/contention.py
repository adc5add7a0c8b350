"""Contention: runnable threads outnumber the cores, by the job's own thread counts or by neighbours."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, bounded, finding
from perfdoctor.rules.lookups import setting, variable
from perfdoctor.rules.wording import amount, counted, percent, takes

# Cores' worth of neighbours from which they, and not the job's own threads, may be the reason.
_NEIGHBOURS = 0.25
# Runnable threads per core from which the job alone outnumbers its cores.
CROWDED = 1.1
# Idle cores of the host from which the job could use more of them.
IDLE_CORES = 0.5
# Fewer threads are worth a try beside neighbours from this gain on.
_WORTH_TRYING = 1.2
# The job itself fills its cores from this fraction of them: then nobody else has to be looked for.
_FULL = 0.85
# Running threads per thread that OMP_NUM_THREADS allows, above which something else has set their number. Those that
# serve an exchange come on top: ranks of one thread each were seen with 1.2.
_OVERRULED = 1.5
# A trainer whose threads together run no longer than this many times its main one has no pool at work.
_ITS_MAIN_THREAD = 1.1

_SEARCH = Fix(
    "Find out who else runs on these cores",
    "The trainer is ready to run and gets no core; neither its own threads nor neighbours explain it.",
    "perf sched timehist -p PID  # or: top -H, sorted by CPU",
)


def contention(case: Case) -> Finding | None:
    """Runnable threads outnumber cores: the job's own thread counts, or neighbours."""
    cause = "cpu.contention"
    if case.share(cause) < REPORTED:
        return None
    cores = setting(case, "cores")
    neighbours = case.number("neighbour_cores")
    runnable = case.number("runnable_threads")
    crowded = runnable is not None and cores is not None and runnable > CROWDED * cores
    own = [*_affinity_fix(case), *_thread_fixes(case, cores), *_worker_fixes(case, cores)]
    other = [*_neighbour_fixes(case, neighbours), *_beside_neighbours(case, cores, neighbours)]
    by_neighbours = bool(other) and (not crowded or (neighbours or 0) > (case.number("job_cores") or 0))
    fixes = [*other, *own] if by_neighbours else [*own, *other]
    reason = ""
    if by_neighbours:
        reason = f"; processes outside the job keep {amount(case, 'neighbour_cores')} busy"
    elif crowded and cores is not None:
        reason = f"; the job has {runnable:.3g} threads for {counted(cores, 'core')} at a time"
    summary = takes(case, cause, "Waiting for a free core").rstrip(".") + f"{reason}{_by_others(case, cause)}."
    found = finding(
        case,
        cause,
        summary,
        (
            "trainer_run_delay", "worker_run_delay", "runnable_threads", "job_cores", "neighbour_cores",
            "stolen_cores", "cpu_pressure", "throttled_periods", "own_cores",
        ),
        fixes or _fill_fixes(case, cores) or [_SEARCH],
        "Stop the neighbours, or start the job with OMP_NUM_THREADS=1 and fewer workers: if the trainer is "
        "ready without a core as often as before, threads do not outnumber cores.",
    )
    return _bounded_by_cores(case, found, cores)


def _bounded_by_cores(case: Case, found: Finding, cores: float | None) -> Finding:
    """The CPU time that the job uses today needs its cores even if nobody queues, unless it is burnt at barriers."""
    used = case.number("job_cores")
    room = setting(case, "host_cores") if cores and _affinity_fix(case) else cores
    return bounded(found, used / room) if used and room and cores and not _burns(case, cores) else found


def _burns(case: Case, cores: float) -> bool:
    """Whether most CPU time of the job is burnt by threads that wait for each other at barriers.

    They do where each process alone has more threads than there are cores (measured: 3.3 times the pace where the bound
    by its CPU time said 1.1), and where a pool shares its cores with neighbours (2.2 times where it said 1.5).
    """
    runnable = case.number("runnable_threads")
    if runnable is None:
        return False
    beside = bool(_neighbour_fixes(case, case.number("neighbour_cores"))) and _pool_threads(case) > 1
    return beside or runnable > CROWDED * cores * _processes(case)


def _pool_threads(case: Case) -> int:
    """Threads of each trainer that run or queue at a time; 0 where it is not known which of them are workers."""
    runnable, used = case.number("runnable_threads"), case.number("worker_cores")
    workers = any(trainer.workers for trainer in case.trainers)
    if runnable is None or (workers and (used is None or used >= _NEIGHBOURS)):
        return 0
    return round(runnable / max(1, len(case.trainers)))


def _processes(case: Case) -> int:
    """Trainers, their workers, and other processes of theirs."""
    return sum(1 + trainer.workers + trainer.helpers for trainer in case.trainers) or 1


def _one_thread_each(case: Case, runnable: float) -> bool:
    """Whether each process computes in one thread already: trainers do, and no more threads run than processes."""
    main, cores = case.number("trainer_running"), case.number("trainer_cores")
    if main is None or cores is None or runnable > _processes(case):
        return False
    return cores <= _ITS_MAIN_THREAD * main


def _by_others(case: Case, cause: str) -> str:
    """What the main thread waits for others that get no core, where that is a good part; it is in the share too."""
    itself = case.number("trainer_run_delay")
    if itself is None or case.share(cause) - itself < REPORTED:
        return ""
    return f"; for {percent(itself)} the main thread itself is ready, for the rest it waits for threads that are"


def _fill_fixes(case: Case, cores: float | None) -> list[Fix]:
    """The job needs all its cores, although its threads outnumber them for moments only."""
    used = case.number("job_cores")
    if not cores or used is None or used < _FULL * cores:
        return []
    return [
        Fix(
            "Give the job more cores, or less to do on these",
            f"The job itself keeps {used:.3g} of {counted(cores, 'core')} busy, so its threads wait for each other.",
            "taskset, --cpus-per-task or the container's limit for more cores; else make cheaper what the other "
            "findings name",
        )
    ]


def _neighbour_fixes(case: Case, neighbours: float | None) -> list[Fix]:
    if neighbours is None or neighbours < _NEIGHBOURS:
        return []
    cores = setting(case, "cores")
    few = int(cores) if cores else None
    return [
        Fix(
            "Keep other processes off these cores",
            f"Processes outside the job keep {amount(case, 'neighbour_cores')} busy on this host"
            + (f", of {few} that the job may use." if few else "."),
            "renice +19 -p OTHER_PID            # they run when the job does not\n"
            "taskset -c CORES python train.py   # or give the job cores of its own",
        )
    ]


def _beside_neighbours(case: Case, cores: float | None, neighbours: float | None) -> list[Fix]:
    """Fewer threads, where what the pool loses by its barriers is more than the threads are good for."""
    threads = _pool_threads(case)
    if cores is None or neighbours is None or neighbours < _NEIGHBOURS or not threads:
        return []
    free = max(0.0, cores - neighbours) / max(1, len(case.trainers))
    fitting = max(1, int(free))
    gain = min(fitting, free) / threads / max(1 - case.share("cpu.contention"), 0.01)
    if threads <= fitting or gain < _WORTH_TRYING:
        return []
    return [
        Fix(
            f"While they run, use {counted(fitting, 'compute thread')}",
            f"Threads of a pool meet at barriers, so {threads} of them are as slow as the one that lacks a core. With "
            f"{counted(fitting, 'thread')} the job could be {gain:.2g} times as fast as it is beside them.",
            f"OMP_NUM_THREADS={fitting} python train.py   # in code: torch.set_num_threads({fitting})",
        )
    ]


def _affinity_fix(case: Case) -> list[Fix]:
    """An affinity mask that leaves cores of the host out although they are idle."""
    allowed, host = setting(case, "affinity_cores"), setting(case, "host_cores")
    busy = case.number("host_cores_busy")
    if allowed is None or host is None or busy is None or allowed >= host or host - busy < IDLE_CORES:
        return []
    return [
        Fix(
            "Let the job use more cores",
            f"Its affinity mask allows {allowed:g} of {host:g} cores, while {host - busy:.2g} cores of the "
            "host are idle.",
            f"taskset -a -p -c 0-{int(host) - 1} PID   # or the launcher's setting: --cpus-per-task, docker "
            "--cpuset-cpus",
        )
    ]


def _thread_fixes(case: Case, cores: float | None) -> list[Fix]:
    """Threads per process so that all processes together fit the cores."""
    runnable = case.number("runnable_threads")
    if cores is None or runnable is None or runnable <= CROWDED * cores:
        return []
    processes = _processes(case)
    fitting = max(1, int(cores) // processes)
    now = variable(case, "OMP_NUM_THREADS")
    # A launcher like torchrun sets the variable; what the script sets afterwards counts.
    overruled = now == str(fitting) and runnable > _OVERRULED * fitting * processes
    if (now == str(fitting) and not overruled) or (fitting == 1 and _one_thread_each(case, runnable)):
        return []
    have = f"OMP_NUM_THREADS is {now}" if now else "OMP_NUM_THREADS is not set"
    have += ", but code sets more" if overruled else ""
    in_code = f"torch.set_num_threads({fitting}), cv2.setNumThreads(0)"
    by_variable = f"OMP_NUM_THREADS={fitting} MKL_NUM_THREADS={fitting} python train.py   # in code: {in_code}"
    return [
        Fix(
            f"Use {counted(fitting, 'compute thread')} per process",
            f"{counted(processes, 'process', 'processes')} had {runnable:.3g} threads running or queueing at "
            f"a time on {counted(cores, 'core')} ({have}). What threads lose by waiting for each other at "
            "barriers is on top of that.",
            f"{in_code}   # where the script sets more" if overruled else by_variable,
        )
    ]


def _worker_fixes(case: Case, cores: float | None) -> list[Fix]:
    """Fewer workers, where they alone are more than the cores, are not all needed, and are not idle."""
    workers = sum(trainer.workers for trainer in case.trainers)
    trainers = len(case.trainers)
    used = case.number("worker_cores")
    idle = used is not None and used < _NEIGHBOURS
    if idle or cores is None or workers + trainers <= cores or workers <= trainers:
        return []
    fitting = max(1, int(cores - trainers) // max(trainers, 1))
    most = max((trainer.workers for trainer in case.trainers), default=0)
    if fitting >= most:
        return []
    return [
        Fix(
            f"Use {counted(fitting, 'loader worker')} per trainer",
            f"{workers} workers and {counted(trainers, 'trainer')} share {counted(cores, 'core')}.",
            f"DataLoader(..., num_workers={fitting})",
        )
    ]
