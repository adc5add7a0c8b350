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
from perfdoctor.capture.job import arguments_of, environment_of, find_root, is_forked
from perfdoctor.capture.redact import mask_command
from perfdoctor.capture.target import require_proc
from perfdoctor.knowledge.processes import COMPILE_WORKER, FORK_SERVER, SPAWNED
from perfdoctor.knowledge.threads import LOADER_WORKERS
from perfdoctor.probes import Refusal
from perfdoctor.probes.gpu import gpus_of
from perfdoctor.probes.marks import steps_per_second
from perfdoctor.probes.readers.permissions import GRANT_IN_CONTAINER, owner_of, why_not
from perfdoctor.probes.readers.process import uses_torch
from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S
from perfdoctor.recording.clock import now_ns

# CPU time is counted in ticks of 10 ms: over this long, to a fiftieth of a core.
LOOK_S = 0.5
# Of a core: not a single tick in a look. What trains takes more, even if it waits for its data most of the time.
IDLE_CORES = 0.02
_ALL_AS_ROOT = 'sudo "$(which perfdoctor)" ps'


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job of this host.

    Attributes:
        trainers: process ids of its trainers here, in order of their ranks.
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


class Member(NamedTuple):
    """A process of a job that has torch loaded.

    Attributes:
        rank: as a launcher has set it for this process and those below it; None for all others.
        forked: it runs its parent's program.
        worker: it is a loader worker by the names of its threads.
    """

    pid: int
    parent: int
    rank: int | None = None
    forked: bool = False
    worker: bool = False


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
    families = _families([pid for pid, loaded in torch.items() if loaded], before)
    time.sleep(max(0.0, begun + look_s - time.monotonic()))
    after, seconds = host_processes(), time.monotonic() - begun
    roots = {pid: _root_of(pid, families, after) for pid in after}
    jobs = []
    for root, members in families.items():
        alive = [pid for pid, top in roots.items() if top == root]
        cores = cpu_ticks_used(alive, before, after) / CLOCK_TICKS_PER_S / seconds
        job = _job([pid for pid in members if pid in after], alive, after, cores)
        jobs += [] if job is None else [job]
    unread = [pid for pid, loaded in torch.items() if loaded is None and pid in after]
    oldest_first = sorted(jobs, key=lambda job: (-job.age_s, job.pid))
    return TrainingJobs(tuple(oldest_first), len(unread), _why_unread(unread))


def trainers_of(members: Sequence[Member]) -> list[int]:
    """The trainers among a job's processes that have torch loaded, in order of their ranks.

    Those to which a launcher has given ranks; else those that have loader workers; else those that have started no
    other one, but a forked one counts with its parent.
    """
    candidates = [one for one in members if not one.worker]
    ranked = sorted((one.rank, one.pid) for one in candidates if one.rank is not None)
    if ranked:
        return [pid for _, pid in ranked]
    served = {one.parent for one in members if one.worker}
    feeding = [one.pid for one in candidates if one.pid in served]
    own = [one for one in candidates if not one.forked] or candidates
    above = {one.parent for one in own}
    return feeding or [one.pid for one in own if one.pid not in above]


def workers_of(members: Sequence[Member]) -> int:
    """How many loader workers there are: by torch's names of them, or else those that a trainer has forked."""
    named = sum(one.worker for one in members)
    trainers = set(trainers_of(members))
    return named or sum(one.forked and one.parent in trainers and one.pid not in trainers for one in members)


def _families(torch: Collection[int], processes: Mapping[int, HostProcess]) -> dict[int, list[int]]:
    """Processes that have torch loaded, by the process at the top of their job; without those that only serve them."""
    families: dict[int, list[int]] = {}
    for pid in torch:
        compiles = any(COMPILE_WORKER in word for word in arguments_of(pid))
        if not compiles and not _forks(pid, processes[pid].parent):
            families.setdefault(find_root(pid), []).append(pid)
    return {root: members for root, members in families.items() if root in processes}


def _forks(pid: int, parent: int) -> bool:
    """Whether a process is multiprocessing's server, which only forks others."""
    return any(FORK_SERVER in word for word in arguments_of(pid)) and not is_forked(pid, parent)


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


def _job(
    torch: Sequence[int], alive: Sequence[int], processes: Mapping[int, HostProcess], cores: float
) -> TrainingJob | None:
    """One job; None if it has just ended.

    Args:
        torch: its processes that have torch loaded.
        alive: all of its processes.
        processes: those of this host.
        cores: what it takes of the CPU.
    """
    members = [_member(pid, processes) for pid in torch]
    trainers = trainers_of(members)
    try:
        user = _user(owner_of(trainers[0]))
    except (OSError, IndexError):
        return None
    on = gpus_of(trainers).values()
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return TrainingJob(
        trainers=tuple(trainers),
        workers=workers_of(members),
        user=user,
        command=mask_command(_arguments(trainers[0], processes)),
        age_s=max(0.0, since_boot - processes[trainers[0]].start_ticks / CLOCK_TICKS_PER_S),
        cores=cores,
        memory_bytes=memory_of(alive),
        gpus=_all(on),
        steps_per_s=steps_per_second(trainers[0], now_ns()),
    )


def _member(pid: int, processes: Mapping[int, HostProcess]) -> Member:
    parent = processes[pid].parent
    forked = is_forked(pid, parent)
    if parent in processes and _forks(parent, processes[parent].parent):
        parent = processes[parent].parent
    rank = (environment_of(pid) or {}).get("RANK", "")
    inherited = "RANK" in (environment_of(parent) or {})  # what a rank starts itself has its name too
    own_rank = int(rank) if rank.isdigit() and not inherited else None
    return Member(pid, parent, own_rank, forked, _is_loader_worker(pid))


def _arguments(pid: int, processes: Mapping[int, HostProcess]) -> list[str]:
    """The command line with the program that a process runs: multiprocessing names it in the first one only."""
    arguments = arguments_of(pid)
    while pid in processes and any(SPAWNED in word or FORK_SERVER in word for word in arguments):
        pid = processes[pid].parent
        arguments = arguments_of(pid) or arguments
    return arguments


def _is_loader_worker(pid: int) -> bool:
    """Torch names a worker's main thread, and those that it starts are named alike."""
    for name in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            if name.read_text(errors="replace").startswith(LOADER_WORKERS):
                return True
        except OSError:  # that thread, or the process, has ended
            continue
    return False


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
