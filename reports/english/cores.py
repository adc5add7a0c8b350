"""CPU cores: threads that queue for them, and a quota on them."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, counted, percent


def queueing() -> str:
    return "Waiting for a free core"


def queueing_refuted() -> str:
    return (
        "Run the job for a minute where nothing else runs, and with OMP_NUM_THREADS=1: if the trainer is ready without "
        "a core as often as before, threads do not outnumber cores."
    )


def neighbours(*, busy: Evidence, culprits: tuple[tuple[int, str, float], ...]) -> str:
    return f"processes outside the job keep {amount(busy)} busy{_named(culprits)}"


def _named(culprits: tuple[tuple[int, str, float], ...]) -> str:
    """Who they are, in brackets; nothing where none was seen."""
    each = ", ".join(f"{command} (pid {pid}) {cores:.2g}" for pid, command, cores in culprits)
    return f" ({each})" if each else ""


def crowded(*, runnable: float, cores: float) -> str:
    return f"the job has {runnable:.3g} threads at a time for {counted(cores, 'core')}"


def waits_for_others(*, itself: float) -> str:
    return f"for {percent(itself)} the main thread itself waits for a core, for the rest it waits for threads that do"


def find_others() -> Fix:
    return Fix(
        "Find out who else runs on these cores",
        "The trainer is ready to run and gets no core; neither its own threads nor neighbours explain it.",
        "perf sched timehist -p PID  # or: top -H, sorted by CPU",
    )


def more_cores(*, used: float, cores: float) -> Fix:
    return Fix(
        "Give the job more cores, or less to do on these",
        f"The job itself keeps {used:.3g} of {counted(cores, 'core')} busy, so its threads wait for each other.",
        "Widen taskset's mask, --cpus-per-task or the container's limit; else make cheaper what other findings name.",
    )


def move_neighbours(*, busy: Evidence, cores: int | None, neighbours: tuple[tuple[int, str, float], ...]) -> Fix:
    few = f", of {cores} that the job may use" if cores else ""
    pids = " ".join(str(pid) for pid, _, _ in neighbours)
    who = (
        f"ps -o pid,user,pcpu,args -p {pids.replace(' ', ',')}"
        if pids
        else "ps -eo pid,user,pcpu,args --sort=-pcpu | head"
    )
    return Fix(
        "Keep other processes off these cores",
        f"Processes outside the job keep {amount(busy)} busy{few}{_named(neighbours)}.",
        f"{who}\n"
        f"renice +19 -p {pids or 'OTHER_PID'}   # they run when the job does not\n"
        "taskset -c CORES python train.py   # or give the job cores of its own",
    )


def calm_helper(*, pid: int, command: str, busy: float, line: str, part: float) -> Fix:
    where = f", mostly at {line}" if line else ""
    return Fix(
        f"Let process {pid} of the job take fewer cores",
        f"It ({command}) keeps {busy:.2g} of the cores busy{where}, and the trainer does not wait for what it does. A "
        "process that waits for something should sleep or block, and not ask again and again; one that has to compute "
        "may leave the cores to the trainer first, if it says so at its start.",
        "time.sleep(1)\nos.nice(19)",
    )


def fewer_threads_beside(*, threads: int, fitting: int, gain: float) -> Fix:
    return Fix(
        f"While they run, use {counted(fitting, 'compute thread')}",
        f"Threads of a pool meet at barriers, so {threads} of them are as slow as the one that lacks a core. With "
        f"{counted(fitting, 'thread')} the job could be {gain:.2g} times as fast as it is beside them.",
        f"OMP_NUM_THREADS={fitting} python train.py   # in code: torch.set_num_threads({fitting})",
    )


def wider_mask(*, allowed: float, host: float, idle: float, place: str | None) -> Fix:
    itself = f" It confines itself, at {place}: leave that out, or name all cores there." if place else ""
    all_cores = f"0-{int(host) - 1} PID   # or the launcher's setting: --cpus-per-task, docker --cpuset-cpus"
    return Fix(
        "Let the job use more cores",
        f"Its affinity mask allows {allowed:g} of {host:g} cores, while {idle:.2g} cores of the host are idle.{itself}",
        f"os.sched_setaffinity(0, range({int(host)}))" if place else f"taskset -a -p -c {all_cores}",
    )


def unbind_threads(*, variable: str, value: str, allowed: float, host: float, idle: float) -> Fix:
    return Fix(
        f"Take {variable} away, or bind each process to cores of its own",
        f"{variable}={value} binds threads to cores, and those of every process to the same: here {allowed:g} of "
        f"{host:g} cores compute for a process, while {idle:.2g} cores of the host are idle.",
        f"unset {variable}   # before the job is started\n"
        f"# or with cores of its own for each rank: {variable}=… taskset -c CORES python train.py",
    )


def fewer_threads(
    *, fitting: int, processes: int, runnable: float, cores: float, now: str | None, overruled: bool
) -> Fix:
    have = f"OMP_NUM_THREADS is {now}" if now else "OMP_NUM_THREADS is not set"
    have += f", {'but' if now else 'so'} code sets more" if overruled else ""
    in_code = f"torch.set_num_threads({fitting})"
    by_variable = f"OMP_NUM_THREADS={fitting} MKL_NUM_THREADS={fitting} python train.py   # in code: {in_code}"
    return Fix(
        f"Use {counted(fitting, 'compute thread')} per process",
        f"{counted(processes, 'process', 'processes')} had {runnable:.3g} threads running or queueing at a time on "
        f"{counted(cores, 'core')} ({have}). What threads lose by waiting for each other at barriers is on top of "
        "that.",
        f"{in_code}   # where the script sets more; with OpenCV: cv2.setNumThreads(0)" if overruled else by_variable,
    )


def fewer_workers(*, fitting: int, workers: int, trainers: int, cores: float) -> Fix:
    return Fix(
        f"Use {counted(fitting, 'loader worker')} per trainer",
        f"{workers} workers and {counted(trainers, 'trainer')} share {counted(cores, 'core')}.",
        f"DataLoader(..., num_workers={fitting})",
    )


def standing_still() -> str:
    return "Being throttled by the CPU quota"


def standing_still_refuted() -> str:
    return (
        "Watch nr_throttled in the control group's cpu.stat for a minute: if it stands still, the quota is not the "
        "cause."
    )


def raise_quota(*, quota: float | None, visible: float | None, stopped: float | None) -> Fix:
    why = f"The quota is {counted(quota, 'core')}" if quota is not None else "There is a CPU quota"
    if visible is not None:
        why += f", while the job sees {counted(visible, 'core')} and sizes its threads for them"
    often = f" The job was stopped in {percent(stopped)} of its periods." if stopped is not None else ""
    return Fix(
        "Raise the CPU quota",
        f"{why}.{often}",
        "docker update --cpus N CONTAINER   # Kubernetes: resources.limits.cpu; systemd: CPUQuota=; cgroup v2: cpu.max",
    )


def threads_of_quota(*, threads: int) -> Fix:
    return Fix(
        f"If the quota must stay, use {counted(threads, 'compute thread')}",
        "More threads than the quota use it up early in each period, and then all of them stand still until the next.",
        f"OMP_NUM_THREADS={threads} python train.py   # and num_workers of at most {threads}",
    )
