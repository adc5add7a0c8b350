"""Cores: a quota on them, and a model that computes on them. ``contention.py`` is about those who queue for them."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Facts
from perfdoctor.rules.contention import CROWDED, IDLE_CORES, contention
from perfdoctor.rules.finding import REPORTED, bounded, finding
from perfdoctor.rules.lookups import culprits, setting, variable
from perfdoctor.rules.wording import counted, percent, takes


def throttled(facts: Facts) -> Finding | None:
    """The control group's CPU quota."""
    cause = "cpu.throttled"
    if facts.share(cause) < REPORTED:
        return None
    quota, allowed = setting(facts, "quota_cores"), setting(facts, "affinity_cores")
    periods = facts.number("throttled_periods")
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
    fixes += _quota_thread_fixes(facts, quota)
    found = finding(
        facts,
        cause,
        takes(facts, cause, "Standing still because the CPU quota is used up"),
        ("throttled_periods", "throttled_cores", "trainer_run_delay", "job_cores", "host_cores_busy"),
        fixes,
        "Watch nr_throttled in the control group's cpu.stat for a minute: if it stands still, the quota is "
        "not the cause.",
    )
    # Without the quota the job has the cores of its affinity mask, and no more.
    return bounded(found, quota / allowed) if quota is not None and allowed else found


def _quota_thread_fixes(facts: Facts, quota: float | None) -> list[Fix]:
    """No more threads than the quota, where there are more."""
    if quota is None:
        return []
    threads = max(1, int(quota))
    runnable = facts.number("runnable_threads")
    fits = runnable is not None and runnable <= CROWDED * threads
    if fits or variable(facts, "OMP_NUM_THREADS") == str(threads):
        return []
    return [
        Fix(
            f"If the quota must stay, use {counted(threads, 'compute thread')}",
            "More threads than the quota use it up early in each period, and then all of them stand still "
            "until the next.",
            f"OMP_NUM_THREADS={threads} python train.py   # and num_workers of at most {threads}",
        )
    ]


def model_compute(facts: Facts) -> Finding | None:
    """The model's own arithmetic on the CPU: healthy."""
    cause = "cpu.model_compute"
    if facts.share(cause) < REPORTED:
        return None
    return finding(
        facts,
        cause,
        takes(facts, cause, "The model's own arithmetic on the CPU"),
        ("trainer_running", "trainer_cores", "job_cores", "traced_operators"),
        _idle_core_fixes(facts, max(1, len(culprits(facts, cause)))),
        "Halve the batch size: if a step then takes as long as before, the time does not go into arithmetic.",
    )


def _idle_core_fixes(facts: Facts, trainers: int) -> list[Fix]:
    """More threads for the arithmetic, where their number is limited although cores are idle."""
    cores, used = setting(facts, "cores"), facts.number("job_cores")
    threads = variable(facts, "OMP_NUM_THREADS")
    if cores is None or used is None or threads is None or not threads.isdigit():
        return []
    idle = cores - used - (facts.number("neighbour_cores") or 0.0)
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
