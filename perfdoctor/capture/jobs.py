"""The training jobs of this host, and what each of them takes of it just now.

A job is found by what its processes have mapped (libtorch) and by who has started whom; its trainers and loader workers
by the ranks that launchers set and the names that torch gives its threads. Nothing in a job is touched.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfdoctor.capture.host_processes import HostProcess, cpu_ticks_used, host_processes, memory_of
from perfdoctor.capture.job import find_root
from perfdoctor.capture.redact import mask_command
from perfdoctor.capture.runs import Look, Run, find_runs, roots_beside, trainers_of, workers_of
from perfdoctor.capture.target import require_proc
from perfdoctor.knowledge.launchers import (
    ALLOCATION,
    FORK_SERVER,
    RAY_JOB,
    RAY_LIBRARY,
    SPAWNED,
    local_rank,
    names_of,
)
from perfdoctor.probes import Refusal
from perfdoctor.probes.gpu import gpus_of
from perfdoctor.probes.marks import steps_per_second
from perfdoctor.probes.readers.permissions import GRANT_IN_CONTAINER, owner_of, why_not
from perfdoctor.probes.readers.process import has_mapped, uses_torch
from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, arguments_of
from perfdoctor.recording.clock import now_ns

# CPU time is counted in ticks of 10 ms: over this long, to a fiftieth of a core.
LOOK_S = 0.5
# Of a core: not a single tick in a sample. What trains takes more, even if it waits for its data most of the time.
IDLE_CORES = 0.02
# Whoever waits for ranks that it has started looks after them now and then.
SUPERVISING_CORES = 0.2
_ALL_AS_ROOT = 'sudo "$(which perfdoctor)" ps'


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job of this host.

    Attributes:
        trainers: process ids of its trainers here, in order of their ranks.
        roots: the processes at the top of its trees.
        numbers: the ranks of the trainers, among those of all hosts; None where no launcher has set them.
        world: how many ranks there are on all hosts, as far as this one knows.
        names: what its run is called, on all hosts alike: by its scheduler or launcher, and where its ranks meet.
        workers: how many loader workers they have.
        user: whose it is.
        command: the first trainer's command line, or that of whoever has spawned it with multiprocessing; secrets
            masked.
        age_s: since the first trainer was started, in seconds.
        cores: CPU time per second of all its processes, while they were looked at.
        memory_bytes: memory of all its processes, of pages that several share each one's part (PSS); None where the
            kernel does not say.
        gpus: the GPUs that its trainers compute on, ``gpu:0`` for instance; None where that is not known.
        steps_per_s: of the first trainer; None where nothing marks its steps.
    """

    trainers: tuple[int, ...]
    roots: tuple[int, ...]
    numbers: tuple[int, ...] | None
    world: int
    names: tuple[str, ...]
    workers: int
    user: str
    command: str
    age_s: float
    cores: float
    memory_bytes: int | None
    gpus: tuple[str, ...] | None
    steps_per_s: float | None

    @property
    def pid(self) -> int:
        """The process to name to ``perfdoctor attach``: any of the job would do."""
        return self.trainers[0]

    @property
    def is_idle(self) -> bool:
        """It takes next to no CPU time, as a notebook between two cells."""
        return self.cores < IDLE_CORES


class TrainingJobs(NamedTuple):
    """What was found on this host.

    Attributes:
        jobs: in order of their start, the latest last.
        unread: how many processes may not be read, so that it is not known whether they train; 0 where they are
            hidden.
        why_unread: why the first of these may not, and what allows it; None if there are none.
    """

    jobs: tuple[TrainingJob, ...]
    unread: int
    why_unread: Refusal | None


def find_jobs(look_s: float = LOOK_S) -> TrainingJobs:
    """Finds the training jobs of this host.

    Args:
        look_s: for how many seconds their CPU time is looked at.

    Raises:
        PerfDoctorError: this is not Linux, or /proc is not mounted.
    """
    require_proc()
    before, begun = host_processes(), time.monotonic()
    torch = {pid: uses_torch(pid) for pid in before if pid != os.getpid()}
    look = Look(before, [pid for pid, loaded in torch.items() if loaded])
    runs = find_runs(look)
    time.sleep(max(0.0, begun + look_s - time.monotonic()))
    after, seconds = host_processes(), time.monotonic() - begun
    tops = {root: run for run in runs for root in run.roots}
    roots = {pid: _root_of(pid, tops, after) for pid in after}
    jobs = []
    for run in runs:
        alive = [pid for pid, root in roots.items() if root in run.roots]
        cores = cpu_ticks_used(alive, before, after) / CLOCK_TICKS_PER_S / seconds
        left = run._replace(members=tuple(one for one in run.members if one.pid in after))
        job = _job(left, alive, look, cores)
        jobs += [] if job is None else [job]
    own = {job: cpu_ticks_used(job.trainers, before, after) / CLOCK_TICKS_PER_S / seconds for job in jobs}
    jobs = [job for job in jobs if not _only_waits(job, own[job], jobs, look)]
    unread = [pid for pid, loaded in torch.items() if loaded is None and pid in after]
    oldest_first = sorted(jobs, key=lambda job: (-job.age_s, job.pid))
    return TrainingJobs(tuple(oldest_first), len(unread), _why_unread(unread))


def roots_of(pid: int) -> tuple[int, ...]:
    """The tops of all trees of this host that train together with a process."""
    processes = host_processes()
    look = Look(processes, [one for one in processes if one != os.getpid() and uses_torch(one)])
    return roots_beside(find_root(pid), find_runs(look), look)


def our_task() -> int:
    """The number of this process among those that a launcher has started on this host; 0 where none has."""
    return local_rank(os.environ) or 0


def our_allocation() -> str | None:
    """The Slurm job that this process was started in."""
    return os.environ.get(ALLOCATION)


def _only_waits(job: TrainingJob, cores: float, jobs: Iterable[TrainingJob], look: Look) -> bool:
    """Whether it has started another one, as the commands of some launchers do that load torch, and drivers of Ray.

    Args:
        job: what may train, or only wait.
        cores: what its trainers take of the CPU.
        jobs: all of them.
        look: what is known of processes.
    """
    others = [other for other in jobs if other is not job]
    if job.is_idle:
        return any(_has_started(job, other, look) for other in others)
    supervises = not (job.numbers or job.workers) and cores < SUPERVISING_CORES
    return supervises and any(other.numbers and _has_started(job, other, look) for other in others)


def _has_started(job: TrainingJob, other: TrainingJob, look: Look) -> bool:
    """Whether a job is above another one; a driver of Ray may stand beside."""
    if any(_root_of(root, job.trainers, look.processes) for root in other.roots):
        return True
    drives = RAY_JOB not in look.environment(job.pid) and has_mapped(job.pid, RAY_LIBRARY)
    return drives and RAY_JOB in look.environment(other.pid)


def _root_of(pid: int, roots: Collection[int], processes: Mapping[int, HostProcess]) -> int | None:
    """The nearest process at or above this one that is the top of a job; None if there is none."""
    passed: set[int] = set()
    while pid not in roots:
        passed.add(pid)
        parent = processes[pid].parent if pid in processes else 0
        if parent <= 0 or parent in passed:
            return None
        pid = parent
    return pid


def _job(run: Run, alive: Sequence[int], look: Look, cores: float) -> TrainingJob | None:
    """One job; None if it has just ended, or none of its trainers has begun.

    Args:
        run: those of its processes that train, and what belongs to them.
        alive: all of its processes.
        look: what is known of them.
        cores: what it takes of the CPU.
    """
    trainers = trainers_of(run.members)
    try:
        user = _user(owner_of(trainers[0]))
    except (OSError, IndexError):
        return None
    ranks = look.ranks_of(trainers)
    trainers.sort(key=lambda pid: ranks.by_pid[pid])
    on = gpus_of(trainers).values()
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return TrainingJob(
        trainers=tuple(trainers),
        roots=run.roots,
        numbers=tuple(ranks.by_pid[pid] for pid in trainers) if ranks.known else None,
        world=ranks.world,
        names=names_of(look.environment(trainers[0])),
        workers=workers_of(run.members),
        user=user,
        command=mask_command(_arguments(trainers[0], look.processes)),
        age_s=max(0.0, since_boot - look.processes[trainers[0]].start_ticks / CLOCK_TICKS_PER_S),
        cores=cores,
        memory_bytes=memory_of(alive),
        gpus=_all(on),
        steps_per_s=steps_per_second(trainers[0], now_ns()),
    )


def _arguments(pid: int, processes: Mapping[int, HostProcess]) -> list[str]:
    """The command line with the program that a process runs: multiprocessing names it in the first one only."""
    arguments = arguments_of(pid)
    while pid in processes and any(SPAWNED in word or FORK_SERVER in word for word in arguments):
        pid = processes[pid].parent
        arguments = arguments_of(pid) or arguments
    return arguments


def _user(uid: int) -> str:
    """The name of a user; the number where it has none here, as in containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _all(found: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """What all of them have together; None where that is not known of one."""
    names: set[str] = set()
    for one in found:
        if one is None:
            return None
        names |= set(one)
    return tuple(sorted(names))


def _why_unread(unread: Sequence[int]) -> Refusal | None:
    """Why processes may not be read, by the first of them, and how all may be; None if nothing is in the way."""
    enable = _ALL_AS_ROOT if os.geteuid() else GRANT_IN_CONTAINER
    if unread:
        return Refusal(why_not(unread[0]).reason, enable)
    if not Path("/proc/1").exists():
        return Refusal("Processes of other users are hidden: /proc is mounted with hidepid.", enable)
    return None
