"""How many threads a trainer's arithmetic has, and how many cores there are for it."""

from perfdoctor.knowledge.environment import POOL_THREADS
from perfdoctor.rules.case import Case


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
