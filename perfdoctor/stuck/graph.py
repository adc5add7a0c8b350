"""Who waits for whom: the one graph in which movement is looked for, and in which a wait is followed to its end.

A job goes on if a rank does, or whoever a rank waits for, directly or by way of others. Whatever else a rank has
started is a bystander, a monitor of resources for instance, whose movement brings nothing on. It counts only where
whom the rank waits for is not known: then it may be any of them, or a thread of its own, which may wait for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from perfdoctor.knowledge.calls import AWAITS_PROCESSES, FILE_LOCKS, FOR_THREADS, ON_SETS
from perfdoctor.results.stuck import Halt
from perfdoctor.stuck.halts import ENDLESS, FOR_RANKS, LOADER, halt_of, place_by_sureness
from perfdoctor.stuck.processes import OnHost, WatchedRanks, below
from perfdoctor.stuck.progress import is_helped, moves
from perfdoctor.stuck.standing import Span, Standing, has_task, read_standing, threads_await_threads
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process

_LONGEST_CHAIN = 8  # processes, each waiting for the next; judgement: a report names each


class Awaited(NamedTuple):
    """Whom a process waits for.

    Attributes:
        processes: those of the job that are known, on its host; other ranks of those that wait for ranks are left out.
        all_known: nobody else of the job can end the wait.
    """

    processes: tuple[OnHost, ...]
    all_known: bool


class WaitGraph:
    """The processes of a job over a span: in what each stands, whom it waits for, and what moves.

    Args:
        hosts: what was seen of the job, by the host's name.
        ranks: its ranks.
        span: over which to look.
    """

    def __init__(self, hosts: Mapping[str, JobTimeline], ranks: WatchedRanks, span: Span) -> None:
        self._hosts, self._span = hosts, span
        self._ranks = {one: rank for rank, one in ranks.by_rank.items()}
        self._rank_of = {(one.host, one.process.pid): rank for one, rank in self._ranks.items()}
        self._standings: dict[OnHost, Standing] = {}
        self._halts: dict[OnHost, Halt] = {}

    def anything_moves(self, span: Span | None = None) -> bool:
        """Whether anything brings the job on; ranks are asked first, since most jobs move.

        Args:
            span: the whole one if None.
        """
        span = span or self._span
        return any(self._moves(one, span) for one in self._ranks) or any(
            (one not in self._ranks and self._moves(one, span)) or (helped and self._is_helped(one, span))
            for one, helped in self._that_matter.items()
        )

    def halt(self, one: OnHost) -> Halt:
        """Where a process stands."""
        if one not in self._halts:
            process, host = one.process, one.host
            rank = self._ranks.get(one)
            of = rank if rank is not None else self._rank_of.get((host, process.trainer_pid))
            halt = halt_of(self._hosts[host], self._read(one, self._span), of, own=rank is not None, span=self._span)
            self._halts[one] = replace(halt, host=host)
        return self._halts[one]

    def chain(self, begin: OnHost) -> tuple[Halt, ...]:
        """From a process to the last one in it: who is waited for, and whom that waits for in turn."""
        return tuple(map(self.halt, self._way(begin)))

    def _way(self, begin: OnHost) -> list[OnHost]:
        found = [begin]
        while len(found) < _LONGEST_CHAIN:
            following = [one for one in self.awaited(found[-1]).processes if one not in found]
            following = [one for one in following if not self._has_no_work(one)]
            if not following:
                break
            found.append(min(following, key=lambda one: (place_by_sureness(self.halt(one).kind), one.process.pid)))
        return found

    def in_circle(self, begin: OnHost) -> bool:
        """Whether the last of a chain waits for nobody but who is on the way to it: then nobody ends the wait."""
        way = self._way(begin)
        awaited = self.awaited(way[-1])
        return awaited.all_known and bool(awaited.processes) and set(awaited.processes) <= set(way)

    def awaited(self, one: OnHost) -> Awaited:
        """Whom a process waits for."""
        halt, roles = self.halt(one), self._hosts[one.host].processes
        for_ranks = halt.own and halt.kind in FOR_RANKS
        if for_ranks or halt.kind in ENDLESS or self._has_no_work(one):
            return Awaited((), all_known=True)
        if halt.kind == LOADER and (workers := _living(one.host, roles.workers_of(halt.pid))):
            return Awaited(workers, all_known=True)
        by_wait = self._at_other_end(one)
        if halt.call in AWAITS_PROCESSES and not by_wait.all_known:
            children = _living(one.host, roles.children_of(halt.pid))
            return Awaited(children, all_known=bool(children))
        if halt.call in FOR_THREADS and not by_wait.all_known:
            # A thread of its own may wait for a pool's workers.
            children = _living(one.host, roles.children_of(halt.pid))
            return Awaited(tuple(filter(self.has_task, children)), all_known=False)
        return by_wait

    def has_task(self, one: OnHost) -> bool:
        """Whether a process is a pool's worker that has work."""
        return has_task(self._read(one, self._span))

    def _at_other_end(self, one: OnHost) -> Awaited:
        """Who has the other end of a channel, or a file's lock, as far as that was looked into.

        What is inherited has the ancestors of a process at its other end as well: they are not taken to serve it.
        """
        wait, roles = self._read(one, self._span).wait, self._hosts[one.host].processes
        pids: list[int] | None = None if wait is None else json.loads(wait.others)
        if wait is None or pids is None:
            return Awaited((), all_known=False)
        if wait.call in FOR_THREADS:
            return Awaited((), all_known=threads_await_threads(self._hosts[one.host], one.process.pid, self._span))
        above = roles.ancestors_of(one.process.pid)
        found = _living(one.host, [roles.by_pid[pid] for pid in pids if pid in roles.by_pid])
        # Itself: another thread of it has that end.
        others = tuple(
            other for other in found if other != one and (other in self._ranks or other.process.pid not in above)
        )
        # Of a set of descriptors only the first was looked into, and the kernel does not name every owner of a lock.
        listed = wait.call not in ON_SETS and bool(pids or wait.call not in FILE_LOCKS)
        return Awaited(others, all_known=listed and len(others) == len(pids))

    def _has_no_work(self, one: OnHost) -> bool:
        """Whether a loader worker waits for its trainer to ask it for a batch."""
        return one.process.role == "worker" and self._read(one, self._span).location.detail == "worker idle"

    @cached_property
    def _that_matter(self) -> dict[OnHost, bool]:
        """Ranks and whoever they wait for; and of each, whether what its other threads and children get helps it on."""
        found = dict.fromkeys(self._ranks)
        way, whole = list(found), set[OnHost]()
        for one in way:  # to which those are added whom it waits for
            awaited = self.awaited(one)
            if not awaited.all_known:
                whole.add(self._rank_above(one))
            # Of a rank that is waited for in such a way, it is another thread that is.
            whole.update(other for other in awaited.processes if other in self._ranks)
            way += [other for other in awaited.processes if other not in found]
            found.update(dict.fromkeys(awaited.processes))
        helped = {one: one in whole or one not in self._ranks for one in found}
        for one in whole:
            started = (OnHost(one.host, process) for process in below(self._hosts[one.host], one.process))
            helped.update(dict.fromkeys(started, True))
        return helped

    def _rank_above(self, one: OnHost) -> OnHost:
        """The rank to which a process belongs; itself where it belongs to none."""
        above = self._hosts[one.host].processes.by_pid.get(one.process.trainer_pid, one.process)
        rank = OnHost(one.host, above)
        return rank if rank in self._ranks and one not in self._ranks else one

    def _moves(self, one: OnHost, span: Span) -> bool:
        return moves(self._hosts[one.host], self._read(one, span), span)

    def _is_helped(self, one: OnHost, span: Span) -> bool:
        return is_helped(self._hosts[one.host], self._read(one, span), span)

    def _read(self, one: OnHost, span: Span) -> Standing:
        if span == self._span and one in self._standings:
            return self._standings[one]
        job = self._hosts[one.host]
        found = read_standing(job, one.process, job.waits.get(one.process.pid), span)
        if span == self._span:
            self._standings[one] = found
        return found


def _living(host: str, processes: list[Process]) -> tuple[OnHost, ...]:
    return tuple(OnHost(host, one) for one in processes if one.ended_ns is None)
