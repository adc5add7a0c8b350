"""Whether a job is stuck, and who holds it up: from the ranks that wait to whoever waits for nobody of the job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.threads import AWAITS_PROCESSES
from perfdoctor.messages import say
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Halt, Stuck
from perfdoctor.stuck.collectives import compare
from perfdoctor.stuck.dumps import Dump
from perfdoctor.stuck.gpu_waits import waits_for_gpu
from perfdoctor.stuck.halts import COLLECTIVE, FOR_RANKS, LOADER, halt_of
from perfdoctor.stuck.processes import OnHost, WatchedRanks, below, find_ranks
from perfdoctor.stuck.progress import moves
from perfdoctor.stuck.recorded_calls import dumps_that_hold, with_call
from perfdoctor.stuck.standing import Span, Standing, read_standing
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process

# Whom to name first where several ranks hold the others up: what is surest.
_SUREST = (
    kinds.STOPPED, kinds.DEBUGGER, kinds.TERMINAL, kinds.EXCEPTION, kinds.EXIT, kinds.FILE_LOCK, kinds.GIL, kinds.LOCK,
    kinds.STORAGE, kinds.PIPE, kinds.SOCKET, kinds.CHILD, LOADER, kinds.SLEEP, kinds.LOOP,
)  # fmt: skip
_ENDLESS = (kinds.STOPPED, kinds.DEBUGGER, kinds.TERMINAL)
_MAY_END = (
    kinds.SLEEP, kinds.LOOP, kinds.NETWORK, kinds.UNKNOWN, kinds.SOCKET, kinds.CHILD, kinds.UNWATCHED_RANK,
    kinds.GPU_WAIT,
)  # fmt: skip
# What dumps say where all ranks are in calls, but not in those that go together.
_OTHER_CALLS = (kinds.MISMATCH, kinds.RANK_ELSEWHERE)
_LONGEST_CHAIN = 8  # processes, each waiting for the next; judgement: a report names each


def find_stuck(hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """What holds a job up in which nothing moves; None if anything does, or it was watched too briefly to tell.

    Args:
        hosts: what was seen of the job, by the host's name, on one clock; the name is "" where there is only one.
    """
    return surely_stuck(find_still(hosts), hosts)


def surely_stuck(still: Stuck | None, hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """What stands still, if it is no slow step: it cannot end by itself, or was watched for long enough."""
    start, end = _watched_on_all(hosts)
    sure = still is not None and (still.kind in _ENDLESS or end - start >= thresholds.STILL_S * NS_PER_S)
    return still if sure else None


def find_still(hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """The same however briefly it was watched: a slow step may look like that."""
    ranks = find_ranks(hosts)
    start, end = _watched_on_all(hosts)
    still_ns = int(max(min(thresholds.STILL_S * NS_PER_S, end - start), thresholds.STILL * (end - start)))
    if not ranks.by_rank:
        return None
    following = _Following(hosts, ranks, (end - still_ns, end))
    return None if following.anything_moves() else following.conclude()


def _watched_on_all(hosts: Mapping[str, JobTimeline]) -> Span:
    return max(job.span[0] for job in hosts.values()), min(job.span[1] for job in hosts.values())


class _Following:
    """One job in which nothing seems to move.

    Args:
        hosts: what was seen of it on each.
        ranks: its ranks.
        span: at its end, over which to look for movement.
    """

    def __init__(self, hosts: Mapping[str, JobTimeline], ranks: WatchedRanks, span: Span) -> None:
        self._hosts, self._ranks, self._span = hosts, ranks, span
        self._rank_of = {(one.host, one.process.pid): rank for rank, one in ranks.by_rank.items()}
        self._standings: dict[OnHost, Standing] = {}
        self._halts: dict[OnHost, Halt] = {}

    @cached_property
    def _dumps(self) -> dict[int, Dump]:
        """What the Flight Recorder held of ranks that live."""
        rows = (row for job in self._hosts.values() for row in job.flight_dumps)
        return {
            rank: dump for rank, dump in dumps_that_hold(rows, self._span[0]).items() if rank in self._ranks.by_rank
        }

    def anything_moves(self) -> bool:
        """Whether anything moved any process that matters; ranks are asked first, since most jobs move."""
        trainers = list(self._ranks.by_rank.values())
        return any(self._moves(one) for one in dict.fromkeys([*trainers, *self._all()]))

    def _all(self) -> Iterator[OnHost]:
        """All ranks, and whatever they have started or are served by."""
        for rank in self._ranks.by_rank.values():
            for process in below(self._hosts[rank.host], rank.process):
                yield OnHost(rank.host, process)

    def conclude(self) -> Stuck:
        """The verdict."""
        by_rank = {rank: self._halt(one) for rank, one in self._ranks.by_rank.items()}
        elsewhere = {rank: halt for rank, halt in by_rank.items() if halt.kind not in FOR_RANKS}
        if elsewhere:
            return self._held_up(by_rank, elsewhere)
        return self._between_ranks(by_rank)

    def _held_up(self, by_rank: dict[int, Halt], elsewhere: dict[int, Halt]) -> Stuck:
        """Some ranks are not where the others wait for them."""
        first = min(elsewhere, key=lambda rank: (_place_in(_SUREST, elsewhere[rank].kind), rank))
        chain = self._chain(self._ranks.by_rank[first])
        if (rank := chain[-1].rank) is not None and chain[-1].own and rank != first:
            first = rank  # a rank that waits for another one in its own way
        kind = _kind_of([halt for halt in chain if self._runs_own_code(halt)])
        waiting = tuple(halt for rank, halt in by_rank.items() if rank != first)
        one = len(by_rank) == 1 and not (self._ranks.missing or self._ranks.unwatched)
        return self._verdict(kind, None if one else first, tuple(elsewhere), chain, waiting)

    def _between_ranks(self, by_rank: dict[int, Halt]) -> Stuck:
        """All ranks wait for ranks: some are missing, or in another collective than the rest, or nothing arrives."""
        halts = tuple(by_rank.values())
        if missing := self._ranks.missing:
            return self._verdict(kinds.MISSING_RANK, missing[0] if len(missing) == 1 else None, missing, (), halts)
        if unwatched := self._ranks.unwatched:
            return self._verdict(kinds.UNWATCHED_RANK, None, unwatched, (), halts)
        if (differing := compare(self._dumps, len(by_rank))) is not None and differing.kind in _OTHER_CALLS:
            return self._mismatch(by_rank, differing.ranks)
        if any(map(self._waits_for_gpu, self._ranks.by_rank.values())):
            return self._verdict(kinds.GPU_WAIT, None, (), halts[:1], halts[1:])
        calls = {rank: (halt.collective, _without_folder(halt.line)) for rank, halt in by_rank.items()}
        names = Counter(name for name, _ in calls.values())
        by_name = len(names) > 1
        found = names if by_name else Counter(line for _, line in calls.values())
        if len(by_rank) > 1 and (len(found) > 1 or names.keys() == {"recv"}):
            usual, count = found.most_common(1)[0]
            others = tuple(rank for rank, call in calls.items() if call[0 if by_name else 1] != usual)
            odd = others if others and 2 * count > len(calls) else tuple(calls)
            return self._mismatch(by_rank, odd)
        return self._verdict(kinds.NETWORK if len(by_rank) > 1 else kinds.UNKNOWN, None, (), halts[:1], halts[1:])

    def _waits_for_gpu(self, one: OnHost) -> bool:
        return waits_for_gpu(self._hosts[one.host], one.process.pid, self._span)

    def _mismatch(self, by_rank: dict[int, Halt], odd: tuple[int, ...]) -> Stuck:
        """Some ranks, or all where none is odd, are in calls that do not go together with the others'."""
        chain = tuple(by_rank[rank] for rank in odd)
        rest = tuple(halt for rank, halt in by_rank.items() if rank not in odd)
        return self._verdict(kinds.MISMATCH, odd[0] if len(odd) == 1 else None, odd, chain, rest)

    def _chain(self, begin: OnHost) -> tuple[Halt, ...]:
        """From a process to the last one in it: who is waited for, and whom that waits for in turn."""
        found = [self._halt(begin)]
        while len(found) < _LONGEST_CHAIN:
            following = [self._halt(one) for one in self._waited_for(found[-1])]
            following = [halt for halt in following if all(_is_other(halt, known) for known in found)]
            if not following:
                break
            found.append(min(following, key=lambda halt: (_place_in(_SUREST, halt.kind), halt.pid)))
        return tuple(found)

    def _waited_for(self, halt: Halt) -> list[OnHost]:
        """Processes of the job that a halt waits for, on its host."""
        return [OnHost(halt.host, one) for one in self._waited_for_on(self._hosts[halt.host], halt)]

    def _waited_for_on(self, job: JobTimeline, halt: Halt) -> list[Process]:
        roles = job.processes
        if halt.kind == LOADER:
            busy = [one for one in roles.workers_of(halt.pid) if one.ended_ns is None]
            return [one for one in busy if self._standing(OnHost(halt.host, one)).location.detail != "worker idle"]
        if halt.call in AWAITS_PROCESSES:
            return [one for one in roles.children_of(halt.pid) if one.ended_ns is None]
        wait = job.waits.get(halt.pid)
        others = (json.loads(wait.others) or []) if wait is not None and wait.call == halt.call else []
        above = roles.ancestors_of(halt.pid)
        return [
            roles.by_pid[pid]
            for pid in others
            if pid in roles.by_pid and ((halt.host, pid) in self._rank_of or pid not in above)
        ]

    def _runs_own_code(self, halt: Halt) -> bool:
        """Whether a process runs the job's own code: a rank, a worker, or what one of them forked."""
        job = self._hosts[halt.host]
        process, seen = job.processes.by_pid[halt.pid], job.recording.processes[halt.pid]
        return halt.own or process.role == "worker" or (seen.forked and not process.channel)

    def _verdict(
        self, kind: str, rank: int | None, ranks: Sequence[int], chain: tuple[Halt, ...], waiting: tuple[Halt, ...]
    ) -> Stuck:
        since_s = self._since_s()
        chain, waiting = tuple(map(self._with_call, chain)), tuple(map(self._with_call, waiting))
        summary = say("stuck.summary", kind=kind, chain=chain, waiting=waiting, ranks=tuple(ranks), since_s=since_s)
        pid, host = (chain[-1].pid, chain[-1].host) if chain else (0, "")
        return Stuck(
            kind, rank, tuple(ranks), since_s, _confidence(kind, chain), chain, waiting, summary,
            say("stuck.next_move", kind=kind, pid=pid, host=host), say("stuck.refuted_by", kind=kind),
        )  # fmt: skip

    def _with_call(self, halt: Halt) -> Halt:
        """A rank that waits for others, with the number of its call where a dump has it."""
        dump = None if halt.rank is None else self._dumps.get(halt.rank)
        return with_call(halt, dump) if dump is not None and halt.own and halt.kind in FOR_RANKS else halt

    def _since_s(self) -> float:
        """For how long nothing moved, at least; second by second, back from the end."""
        start, end = _watched_on_all(self._hosts)
        since = self._span[0]
        processes = list(self._all())
        while since - NS_PER_S >= start and not any(self._moves(one, (since - NS_PER_S, since)) for one in processes):
            since -= NS_PER_S
        return round(seconds(end - since), 1)

    def _moves(self, one: OnHost, span: Span | None = None) -> bool:
        standing = self._standing(one) if span is None else self._read(one, span)
        return moves(self._hosts[one.host], standing, span or self._span)

    def _standing(self, one: OnHost) -> Standing:
        if one not in self._standings:
            self._standings[one] = self._read(one, self._span)
        return self._standings[one]

    def _read(self, one: OnHost, span: Span) -> Standing:
        job = self._hosts[one.host]
        return read_standing(job, one.process, job.waits.get(one.process.pid), span)

    def _halt(self, one: OnHost) -> Halt:
        if one not in self._halts:
            process, host = one.process, one.host
            rank = self._rank_of.get((host, process.pid))
            of = rank if rank is not None else self._rank_of.get((host, process.trainer_pid))
            halt = halt_of(self._hosts[host], self._standing(one), of, own=rank is not None, span=self._span)
            self._halts[one] = replace(halt, host=host)
        return self._halts[one]


def _confidence(kind: str, chain: tuple[Halt, ...]) -> float:
    """How sure: what cannot end by itself, what nobody was seen to end, and what may go on."""
    if kind in _ENDLESS or (chain and chain[-1].others == ()):
        return float(thresholds.CONFIDENCE_ENDLESS)
    return float(thresholds.CONFIDENCE_MAY_END if kind in _MAY_END else thresholds.CONFIDENCE_NO_END_SEEN)


def _is_other(one: Halt, other: Halt) -> bool:
    return (one.host, one.pid) != (other.host, other.pid)


def _without_folder(line: str) -> str:
    """A line of code as it is called on every host: the same script may lie in another folder there."""
    return line.rpartition("/")[2]


def _kind_of(chain: Sequence[Halt]) -> str:
    """What the last of those sits in that run the job's own code; workers without work are one that was lost."""
    known = [halt.kind for halt in chain if halt.kind != kinds.UNKNOWN]
    kind = known[-1] if known else kinds.UNKNOWN
    return kinds.LOCK if kind in (LOADER, COLLECTIVE) else kind


def _place_in(order: Sequence[str], kind: str) -> int:
    return order.index(kind) if kind in order else len(order)
