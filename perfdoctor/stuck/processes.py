"""The processes that matter for whether a job moves: its ranks, what these have started, and who serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfdoctor.knowledge.launchers import LAUNCHERS, meets_here, number_of, number_ranks
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process, exchanging, variables_of


@dataclass(frozen=True, slots=True)
class OnHost:
    """A process of one of the hosts that were watched.

    Attributes:
        host: its name; "" where only one was watched.
    """

    host: str
    process: Process


@dataclass(frozen=True, slots=True)
class WatchedRanks:
    """The ranks of a job, as far as they were watched.

    Attributes:
        by_rank: those that live.
        missing: ranks that belong on a host that was watched, and are not there.
        unwatched: ranks that were not seen, and may run on a host that was not watched.
    """

    by_rank: dict[int, OnHost]
    missing: tuple[int, ...]
    unwatched: tuple[int, ...]


def find_ranks(hosts: Mapping[str, JobTimeline]) -> WatchedRanks:
    """The ranks of a job on all hosts that were watched; none where two hosts claim the same one.

    Args:
        hosts: what was seen of the job, by the host's name.
    """
    by_rank: dict[int, OnHost] = {}
    belong: set[int] = set()
    world = 0
    for host, job in hosts.items():
        here, all_ranks = _ranks_on(job)
        if not by_rank.keys().isdisjoint(here):
            return WatchedRanks({}, (), ())
        by_rank.update({rank: OnHost(host, process) for rank, process in here.items()})
        variables = {rank: variables_of(job.recording.processes[one.pid]) for rank, one in here.items()}
        world = max(world, len(by_rank), all_ranks)
        belong |= _belong_on(variables, world)
    absent = set(range(world)) - by_rank.keys()
    in_order = {rank: by_rank[rank] for rank in sorted(by_rank)}
    return WatchedRanks(in_order, tuple(sorted(absent & belong)), tuple(sorted(absent - belong)))


def _ranks_on(job: JobTimeline) -> tuple[dict[int, Process], int]:
    """The processes that train, and those that were started beside them and stand where no training shows.

    And how many ranks the whole job has, as far as a launcher has said so.
    """
    roles = job.processes
    alive = [process for process in roles.by_pid.values() if process.ended_ns is None]
    torch = {pid for pid, seen in job.recording.processes.items() if seen.uses_torch}
    parents = {process.parent_pid for process in alive if process.pid in torch}
    beside = {(trainer.parent_pid, _forked(job, trainer.pid)) for trainer in roles.trainers if trainer.parent_pid}
    found = [
        process
        for process in alive
        if process.role == "trainer"
        or (
            process.role == "other"
            and process.pid in torch
            and process.pid not in parents
            and not process.channel
            and (process.parent_pid, _forked(job, process.pid)) in beside
            and process.parent_pid in roles.by_pid
        )
    ]
    numbered = number_ranks(
        {one.pid: (variables_of(job.recording.processes[one.pid]), one.started_ns) for one in found},
        exchanging(job.recording.threads.values()),
    )
    return {numbered.by_pid[process.pid]: process for process in found}, numbered.world


def _belong_on(variables: Mapping[int, Mapping[str, str]], world: int) -> set[int]:
    """Which ranks were started on a host, as far as the variables of those that live there tell.

    torchrun numbers the ranks of a host one after the other; other launchers may not, and then nothing is concluded.
    """
    if any(map(meets_here, variables.values())):
        return set(range(world))
    spans: set[tuple[int, int]] = set()
    for rank, one in variables.items():
        number = number_of(one)
        if number is None or number.here is None:
            continue
        if number.here == world:
            return set(range(world))
        if number.local is not None and number.launcher == LAUNCHERS[0]:
            spans.add((rank - number.local, rank - number.local + number.here))
    return set(range(*spans.pop())) if len(spans) == 1 else set()


def _forked(job: JobTimeline, pid: int) -> bool:
    return job.recording.processes[pid].forked


def below(job: JobTimeline, process: Process) -> Iterator[Process]:
    """A process, and all living ones that it has started or that serve it, each once: its parent may serve it, too."""
    found, waiting = set[int](), [process]
    while waiting:
        one = waiting.pop()
        if one.pid in found:
            continue
        found.add(one.pid)
        yield one
        started = [child for child in job.processes.by_pid.values() if child.parent_pid == one.pid]
        waiting += [child for child in started if child.ended_ns is None]
