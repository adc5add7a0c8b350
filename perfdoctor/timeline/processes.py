"""The processes of the job and their roles: trainers and their ranks, seen or not, loader workers and the rest."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from perfdoctor.knowledge.launchers import RESOURCE_TRACKER, fits_below, is_numbered_anew, number_of, number_ranks
from perfdoctor.knowledge.threads import COLLECTIVES, LOADER_WORKERS, WORKER_LOOP
from perfdoctor.recording.schema import ProcessSeen, ThreadSeen
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.stacks import CodeSeen


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job.

    Attributes:
        role: ``trainer``, ``worker`` or ``other``.
        trainer_pid: whom a worker serves; for others the nearest trainer above, 0 if none.
        ended_ns: None while it lives.
        channel: through what a process outside of the job's tree serves its ``parent_pid``, "" for those inside.
        tracks: it is multiprocessing's keeper of what processes share, and answers nobody.
    """

    pid: int
    parent_pid: int
    started_ns: int
    ended_ns: int | None
    role: str
    trainer_pid: int
    rank: int | None
    channel: str = ""
    tracks: bool = False

    def alive_at(self, time_ns: int) -> bool:
        """Whether it had started and not ended yet."""
        return self.started_ns <= time_ns and (self.ended_ns is None or time_ns < self.ended_ns)


@dataclass(frozen=True)
class ProcessRoles:
    """All processes of the job by role.

    Attributes:
        trainers: in order of their ranks.
        by_pid: all of them.
        world_size: how many ranks the job has, those that were not observed included.
        numbered: a launcher or torch says which rank each trainer is; otherwise they are in order of their start.
    """

    trainers: tuple[Process, ...]
    by_pid: dict[int, Process]
    world_size: int
    numbered: bool

    @property
    def ranks(self) -> list[int]:
        """The numbers of the trainers."""
        return [trainer.rank or 0 for trainer in self.trainers]

    def workers_of(self, pid: int) -> list[Process]:
        """Loader workers of a trainer, those gone included."""
        return self._by_trainer.get(("worker", pid), [])

    def helpers_of(self, pid: int) -> list[Process]:
        """Descendants of a trainer that are no loader workers (a pool, a decoder, a server)."""
        return [one for one in self._by_trainer.get(("other", pid), []) if not one.tracks]

    def rank_of(self, process: Process) -> int:
        """The rank of a trainer, or of the trainer that a process serves."""
        trainer = process if process.role == "trainer" else self.by_pid.get(process.trainer_pid)
        return (trainer.rank or 0) if trainer else 0

    def suppliers_of(self, pid: int) -> list[Process]:
        """Whoever may hand something over to a trainer: its loader workers and helpers."""
        return self.workers_of(pid) + self.helpers_of(pid)

    def children_of(self, pid: int) -> list[Process]:
        """Processes that another one started, or that serve it: a download, a decompressor; no workers or trainers."""
        return self._by_parent.get(pid, [])

    def ancestors_of(self, pid: int) -> list[int]:
        """Whoever started a process, and whoever started that."""
        return _ancestors(pid, {one: process.parent_pid for one, process in self.by_pid.items()})

    @cached_property
    def _by_trainer(self) -> dict[tuple[str, int], list[Process]]:
        found: dict[tuple[str, int], list[Process]] = {}
        for process in self.by_pid.values():
            found.setdefault((process.role, process.trainer_pid), []).append(process)
        return found

    @cached_property
    def _by_parent(self) -> dict[int, list[Process]]:
        found: dict[int, list[Process]] = {}
        for process in self.by_pid.values():
            if process.role == "other":
                found.setdefault(process.parent_pid, []).append(process)
        return found


def assign_roles(
    seen: Mapping[int, ProcessSeen],
    ended_ns: Mapping[int, int],
    code_seen: Mapping[int, CodeSeen],
    threads: Iterable[ThreadSeen],
    marked: frozenset[int],
    serving: Mapping[int, tuple[int, str]],
) -> ProcessRoles:
    """Assigns trainers, workers and the rest their roles.

    Args:
        seen: the job's processes.
        ended_ns: when those of them that ended did.
        code_seen: what their main threads were seen in.
        threads: their threads.
        marked: processes that marked training steps from inside.
        serving: processes outside of the job's tree, and for each whom it serves, and through what.
    """
    parents = {pid: serving[pid][0] if pid in serving else process.parent_pid for pid, process in seen.items()}
    torch = [pid for pid, process in seen.items() if process.uses_torch and pid not in serving]
    # Any thread: a spawned worker is seen before torch renames its main thread, and the others inherit the new name.
    threads = list(threads)
    named = {thread.pid for thread in threads if thread.name.startswith(LOADER_WORKERS)}
    workers = {pid for pid in torch if _is_worker(pid, code_seen, named)}
    environments = {pid: variables_of(process) for pid, process in seen.items()}
    ranked = _ranked(torch, environments, parents) or _exchanging_leaves(torch, exchanging(threads), parents)
    candidates = [pid for pid in torch if pid not in workers]
    trainers = [pid for pid in candidates if pid in marked or pid in ranked] if marked else []
    trainers = trainers or _trainers(candidates, ranked, code_seen, parents, workers)
    numbered = number_ranks({pid: (environments[pid], seen[pid].started_ns) for pid in trainers}, exchanging(threads))
    processes = {}
    for pid, parent in parents.items():
        role = "trainer" if pid in trainers else "worker" if pid in workers else "other"
        above = next((ancestor for ancestor in _ancestors(pid, parents) if ancestor in trainers), 0)
        channel = serving[pid][1] if pid in serving else ""
        times = seen[pid].started_ns, ended_ns.get(pid)
        tracks = RESOURCE_TRACKER in seen[pid].command
        processes[pid] = Process(pid, parent, *times, role, above, numbered.by_pid.get(pid), channel, tracks)
    ordered = tuple(sorted((processes[pid] for pid in trainers), key=lambda process: process.rank or 0))
    return ProcessRoles(ordered, processes, numbered.world, numbered.known)


def _ranked(
    torch: Collection[int], environments: Mapping[int, Mapping[str, str]], parents: Mapping[int, int]
) -> set[int]:
    """Those to whom a launcher gave a number, without launchers that have one themselves."""
    anew = {pid for pid in torch if is_numbered_anew(environments[pid], environments.get(parents[pid], {}))}
    numbers = {pid: number for pid in anew if (number := number_of(environments[pid])) is not None}
    return {
        pid
        for pid, number in numbers.items()
        if fits_below(number, (numbers[child] for child in anew if parents[child] == pid))
    }


def _exchanging_leaves(torch: Collection[int], exchange: Collection[int], parents: dict[int, int]) -> set[int]:
    """Those that exchange data with others, where nobody has numbered them; without whoever has started such ones."""
    found = {pid for pid in torch if pid in exchange}
    return found - {ancestor for pid in found for ancestor in _ancestors(pid, parents)}


def _is_worker(pid: int, code_seen: Mapping[int, CodeSeen], named: Collection[int]) -> bool:
    return pid in named or WORKER_LOOP in code_seen.get(pid, CodeSeen()).functions


def _trainers(
    candidates: list[int],
    ranked: set[int],
    code_seen: Mapping[int, CodeSeen],
    parents: dict[int, int],
    workers: set[int],
) -> list[int]:
    """Processes whose main thread was seen in a training step; without stacks, those that work hardest."""
    phases = {pid: code_seen.get(pid, CodeSeen()).phases for pid in candidates}
    for wanted in ({"backward", "optimizer"}, set(TRAINING_PHASES), {"data"}):
        found = [pid for pid in candidates if phases[pid] & wanted]
        if found:
            # Those that feed or evaluate beside the trainer are no trainers themselves; another rank is one, even if
            # its stacks could not be read in time; but not one that only waits for those that it has started.
            above = {ancestor for pid in found for ancestor in _ancestors(pid, parents)}
            return [pid for pid in candidates if pid in found or (pid in ranked and pid not in above)]
    with_workers = {parents[pid] for pid in workers} & set(candidates)
    if with_workers:
        return sorted(with_workers)
    leaves = [pid for pid in candidates if not any(parents[other] == pid for other in candidates)]
    return leaves or candidates[:1]


def exchanging(threads: Iterable[ThreadSeen]) -> set[int]:
    """Processes with threads that exchange data between ranks."""
    return {thread.pid for thread in threads if thread.name.startswith(COLLECTIVES)}


def variables_of(process: ProcessSeen) -> dict[str, str]:
    """What was recorded of its environment; nothing where that could not be read."""
    return json.loads(process.environment) or {}


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (pid := parents.get(pid, 0)) > 0 and pid not in found:
        found.append(pid)
    return found
