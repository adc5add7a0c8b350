"""Cores: a quota on them, and a model that computes on them. ``contention.py`` is about those who queue for them."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.contention import CROWDED, IDLE_CORES, contention
from perfdoctor.rules.finding import REPORTED, bounded, finding
from perfdoctor.rules.lookups import culprits, setting, variable
from perfdoctor.rules.wording import counted, percent, takes


def throttled(case: Case) -> Finding | None:
    """The control group's CPU quota."""
    cause = "cpu.throttled"
    if case.share(cause) < REPORTED:
        return None
    quota, allowed = setting(case, "quota_cores"), setting(case, "affinity_cores")
    periods = case.number("throttled_periods")
    often = f" It was stopped in {percent(periods)} of the periods." if periods is not None else ""
    limit = f"The quota is {counted(quota, 'core')}" if quota is not None else "There is a CPU quota"
    visible = (
        f", while the job sees {counted(allowed, 'core')} and sizes its threads for them."
        if allowed is not None
        else "."
    )
    fixes = [
        Fix(
            "Raise the CPU quota",
            f"{limit}{visible}{often}",
            "docker update --cpus N CONTAINER   # Kubernetes: resources.limits.cpu; systemd: CPUQuota=; "
            "cgroup v2: cpu.max",
        )
    ]
    fixes += _quota_thread_fixes(case, quota)
    found = finding(
        case,
        cause,
        takes(case, cause, "Standing still because the CPU quota is used up"),
        ("throttled_periods", "throttled_cores", "trainer_run_delay", "job_cores", "host_cores_busy"),
        fixes,
        "Watch nr_throttled in the control group's cpu.stat for a minute: if it stands still, the quota is "
        "not the cause.",
    )
    # Without the quota the job has the cores of its affinity mask, and no more.
    return bounded(found, quota / allowed) if quota is not None and allowed else found


def _quota_thread_fixes(case: Case, quota: float | None) -> list[Fix]:
    """No more threads than the quota, where there are more."""
    if quota is None:
        return []
    threads = max(1, int(quota))
    runnable = case.number("runnable_threads")
    fits = runnable is not None and runnable <= CROWDED * threads
    if fits or variable(case, "OMP_NUM_THREADS") == str(threads):
        return []
    return [
        Fix(
            f"If the quota must stay, use {counted(threads, 'compute thread')}",
            "More threads than the quota use it up early in each period, and then all of them stand still "
            "until the next.",
            f"OMP_NUM_THREADS={threads} python train.py   # and num_workers of at most {threads}",
        )
    ]


def model_compute(case: Case) -> Finding | None:
    """The model's own arithmetic on the CPU: healthy."""
    cause = "cpu.model_compute"
    if case.share(cause) < REPORTED:
        return None
    return finding(
        case,
        cause,
        takes(case, cause, "The model's own arithmetic on the CPU"),
        ("trainer_running", "trainer_cores", "job_cores", "traced_operators"),
        _idle_core_fixes(case, max(1, len(culprits(case, cause)))),
        "Halve the batch size: if a step then takes as long as before, the time does not go into arithmetic.",
    )


def _idle_core_fixes(case: Case, trainers: int) -> list[Fix]:
    """More threads for the arithmetic, where their number is limited although cores are idle."""
    cores, used = setting(case, "cores"), case.number("job_cores")
    threads = variable(case, "OMP_NUM_THREADS")
    if cores is None or used is None or threads is None or not threads.isdigit():
        return []
    idle = cores - used - (case.number("neighbour_cores") or 0.0)
    more = int(cores) // trainers
    if idle < IDLE_CORES or more <= int(threads):
        return []
    return [
        Fix(
            f"Let the arithmetic use {more} threads",
            f"OMP_NUM_THREADS is {threads}, and {idle:.2g} of {cores:g} cores are idle.",
            f"OMP_NUM_THREADS={more} python train.py",
        )
    ]


CORE_RULES = (contention, throttled, model_compute)
