"""Which processes of this host train together: a run of a job, in one tree of processes or in several.

Who belongs to a tree is determined by who has started whom. Trees are one run where a launcher says so in their
processes' environments: tasks of srun, processes of mpirun, actors of Ray, several agents of torchrun.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from perfdoctor.capture.host_processes import HostProcess
from perfdoctor.capture.job import find_root, is_forked
from perfdoctor.capture.variables import Variables, thread_names
from perfdoctor.knowledge.launchers import (
    COMPILE_WORKER,
    FORK_SERVER,
    LAUNCH_MODULES,
    LAUNCH_SCRIPTS,
    LAUNCH_TITLES,
    MEETING,
    RAY_JOB,
    Number,
    Ranks,
    fits_below,
    is_numbered_anew,
    meets_here,
    number_of,
    number_ranks,
    run_of,
)
from perfdoctor.knowledge.threads import COLLECTIVES, LOADER_WORKERS
from perfdoctor.probes.readers.procfs import arguments_of

# Of what a process has started, so much is asked for its number: launchers start a few.
_MOST_CHILDREN = 64
# Within so many words of a command line stands what an interpreter runs.
_PROGRAM_WORDS = 6


class TorchProcess(NamedTuple):
    """A process of a job that has torch loaded.

    Attributes:
        rank: its number, as a launcher set it for this process and those below it; None for all others.
        forked: it runs its parent's program.
        worker: it is a loader worker by the names of its threads.
        launches: it starts ranks, and is none itself.
    """

    pid: int
    parent: int
    rank: int | None = None
    forked: bool = False
    worker: bool = False
    launches: bool = False


class Run(NamedTuple):
    """Processes of this host that train together, and what belongs to them.

    Attributes:
        roots: the tops of their trees.
        members: those that have torch loaded.
    """

    roots: tuple[int, ...]
    members: tuple[TorchProcess, ...]


class Look:
    """Answers what is asked of the processes of this host while runs are looked for, each once.

    Args:
        processes: all of this host.
        torch: those that have torch loaded.
    """

    def __init__(self, processes: Mapping[int, HostProcess], torch: Collection[int]) -> None:
        self.processes, self.torch = processes, frozenset(torch)
        self._environments: dict[int, dict[str, str]] = {}
        self._variables = Variables()
        self._threads: dict[int, tuple[str, ...]] = {}
        self._children: dict[int, list[int]] = defaultdict(list)
        for pid, process in processes.items():
            self._children[process.parent].append(pid)

    def environment(self, pid: int) -> dict[str, str]:
        """The variables of a process, and what torch says of its rank; nothing where they cannot be read."""
        if pid not in self._environments:
            self._environments[pid] = self._variables.of(pid) or {}
        return self._environments[pid]

    def threads(self, pid: int) -> tuple[str, ...]:
        """The names of the threads of a process."""
        if pid not in self._threads:
            self._threads[pid] = tuple(thread_names(pid))
        return self._threads[pid]

    def exchanges(self, pid: int) -> bool:
        """Whether a process is known to exchange data with other ranks, or is about to."""
        return MEETING[0] in self.environment(pid) or any(name.startswith(COLLECTIVES) for name in self.threads(pid))

    def number(self, pid: int) -> Number | None:
        """What a launcher has set in the environment of a process."""
        return number_of(self.environment(pid), exchanges=self.exchanges(pid))

    def run_of(self, pid: int, root: int) -> tuple[str, ...]:
        """What all ranks of the run of a process have alike, which is in the tree below ``root``."""
        variables = self.environment(pid)
        run = run_of(variables, exchanges=self.exchanges(pid))
        if run and meets_here(variables):
            return (*run, _network_of(pid))
        parent = self.processes[root].parent
        return run or (("", str(parent)) if parent > 1 else ())

    def started(self, pid: int) -> list[Number]:
        """The numbers of those processes that one has started as ranks."""
        variables = self.environment(pid)
        below = [child for child in self._children[pid][:_MOST_CHILDREN] if child != os.getpid()]
        anew = [child for child in below if is_numbered_anew(self.environment(child), variables)]
        return [number for child in anew if (number := number_of(self.environment(child))) is not None]

    def member(self, pid: int) -> TorchProcess:
        """What is known of a process that has torch loaded."""
        parent = self.processes[pid].parent
        forked = is_forked(pid, parent)
        if parent in self.processes and is_fork_server(parent, self.processes[parent].parent):
            parent = self.processes[parent].parent
        # What a rank starts itself has its variables too; a shell above it may have them as well.
        above = self.environment(parent) if parent in self.torch else {}
        number = self.number(pid) if is_numbered_anew(self.environment(pid), above) else None
        started = self.started(pid)
        ranked = number is not None and fits_below(number, started)
        rank = (number.rank if number.rank is not None else number.local) if number and ranked else None
        worker = any(name.startswith(LOADER_WORKERS) for name in self.threads(pid))
        return TorchProcess(pid, parent, rank, forked, worker, not ranked and (bool(started) or is_launcher(pid)))

    def ranks_of(self, trainers: Sequence[int]) -> Ranks:
        """The numbers of trainers."""
        environments = {pid: (self.environment(pid), self.processes[pid].start_ticks) for pid in trainers}
        return number_ranks(environments, filter(self.exchanges, trainers))


def find_runs(look: Look) -> list[Run]:
    """The runs on this host, in order of their start. Processes that only serve others are left out."""
    found: list[Run] = []
    keys: list[tuple[str, ...]] = []
    for root, pids in sorted(_trees(look).items(), key=lambda tree: look.processes[tree[0]].start_ticks):
        members = tuple(look.member(pid) for pid in pids)
        key = _key(members, root, look)
        fitting = [at for at, run in enumerate(found) if key and keys[at] == key and _fit(run.members, members)]
        if fitting:
            run = found[fitting[0]]
            found[fitting[0]] = Run((*run.roots, root), (*run.members, *members))
        else:
            found.append(Run((root,), members))
            keys.append(key)
    return found


def trainers_of(members: Sequence[TorchProcess]) -> list[int]:
    """The trainers among a job's processes that have torch loaded, in order of their ranks.

    Those to which a launcher has given ranks; else those that have loader workers; else those that have started no
    other one, but a forked one counts with its parent.
    """
    candidates = [one for one in members if not one.worker and not one.launches]
    ranked = sorted((one.rank, one.pid) for one in candidates if one.rank is not None)
    if ranked:
        return [pid for _, pid in ranked]
    served = {one.parent for one in members if one.worker}
    feeding = [one.pid for one in candidates if one.pid in served]
    own = [one for one in candidates if not one.forked] or candidates
    above = {one.parent for one in own}
    return feeding or [one.pid for one in own if one.pid not in above]


def roots_beside(root: int, runs: Sequence[Run], look: Look) -> tuple[int, ...]:
    """The tops of all trees that train together with one; of that of Ray's controller also those that it controls."""
    own = next((run for run in runs if root in run.roots), None)
    if own is None or trainers_of(own.members):
        return (root,) if own is None else own.roots
    named = {run: look.environment(run.members[0].pid).get(RAY_JOB) for run in runs}
    controlled = [run for run in runs if run is not own and named[run] == named[own] is not None]
    return (*own.roots, *controlled[0].roots) if len(controlled) == 1 else own.roots


def workers_of(members: Sequence[TorchProcess]) -> int:
    """How many loader workers there are: by torch's names of them, or else those that a trainer has forked."""
    named = sum(one.worker for one in members)
    trainers = set(trainers_of(members))
    return named or sum(one.forked and one.parent in trainers and one.pid not in trainers for one in members)


def is_fork_server(pid: int, parent: int) -> bool:
    """Whether a process is multiprocessing's server, which only forks others."""
    return any(FORK_SERVER in word for word in arguments_of(pid)) and not is_forked(pid, parent)


def is_launcher(pid: int) -> bool:
    """Whether a process runs the program of a launcher, which has torch loaded before its ranks are there."""
    words = arguments_of(pid)[:_PROGRAM_WORDS]
    modules = [word for before, word in pairwise(words) if before == "-m"]
    scripts = [word.rpartition("/")[2] for word in words[:2]]
    titled = any(word.startswith(LAUNCH_TITLES) for word in words[:1])
    return titled or any(one in LAUNCH_MODULES for one in modules) or any(one in LAUNCH_SCRIPTS for one in scripts)


def _trees(look: Look) -> dict[int, list[int]]:
    """Processes that have torch loaded, by the process at the top of their tree; without those that only serve them."""
    found: dict[int, list[int]] = {}
    for pid in look.torch:
        compiles = any(COMPILE_WORKER in word for word in arguments_of(pid))
        if not compiles and not is_fork_server(pid, look.processes[pid].parent):
            found.setdefault(find_root(pid), []).append(pid)
    return {root: members for root, members in found.items() if root in look.processes}


def _key(members: Sequence[TorchProcess], root: int, look: Look) -> tuple[str, ...]:
    """What the ranks of a tree have in common with others of their run; () where there is no such thing."""
    keys = {look.run_of(one.pid, root) for one in members if one.rank is not None}
    return keys.pop() if len(keys) == 1 else ()


def _fit(some: Sequence[TorchProcess], others: Sequence[TorchProcess]) -> bool:
    """Whether no rank is in both; what was started beside a training, and has its variables, is no part of it."""
    return not {one.rank for one in some if one.rank is not None} & {one.rank for one in others}


def _network_of(pid: int) -> str:
    """The network that a process is in: this host's, or that of a container."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
