"""Whether a job is stuck, and who holds it up: from the ranks that wait to whoever waits for nobody of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Halt, Stuck
from perfdoctor.stuck.collectives import compare
from perfdoctor.stuck.dumps import Dump
from perfdoctor.stuck.gpu_waits import waits_for_gpu
from perfdoctor.stuck.graph import WaitGraph
from perfdoctor.stuck.halts import COLLECTIVE, ENDLESS, FOR_RANKS, LOADER, place_by_sureness
from perfdoctor.stuck.processes import OnHost, WatchedRanks, find_ranks
from perfdoctor.stuck.recorded_calls import dumps_that_hold, with_call
from perfdoctor.stuck.standing import Span, is_polling
from perfdoctor.stuck.verdict import verdict
from perfdoctor.timeline.job import JobTimeline

_MAY_END = (
    kinds.SLEEP, kinds.LOOP, kinds.NETWORK, kinds.UNKNOWN, kinds.SOCKET, kinds.CHILD, kinds.UNWATCHED_RANK,
    kinds.GPU_WAIT, kinds.RENDEZVOUS,
)  # fmt: skip
# What dumps say where all ranks are in calls, but not in those that go together.
_OTHER_CALLS = (kinds.MISMATCH, kinds.RANK_ELSEWHERE)


def find_stuck(hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """What holds a job up in which nothing moves; None if anything does, or it was watched too briefly to tell.

    Args:
        hosts: what was seen of the job, by the host's name, on one clock; the name is "" where there is only one.
    """
    return surely_stuck(find_still(hosts), hosts)


def surely_stuck(still: Stuck | None, hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """What stands still, if it is no slow step: it cannot end by itself, or was watched for long enough."""
    start, end = _watched_on_all(hosts)
    sure = still is not None and (still.kind in ENDLESS or end - start >= thresholds.STILL_S * NS_PER_S)
    return still if sure else None


def find_still(hosts: Mapping[str, JobTimeline]) -> Stuck | None:
    """The same however briefly it was watched: a slow step may look like that."""
    ranks = find_ranks(hosts)
    start, end = _watched_on_all(hosts)
    still_ns = int(max(min(thresholds.STILL_S * NS_PER_S, end - start), thresholds.STILL * (end - start)))
    if not ranks.by_rank:
        return None
    graph = WaitGraph(hosts, ranks, (end - still_ns, end))
    return None if graph.anything_moves() else _Following(hosts, ranks, graph, (end - still_ns, end)).conclude()


def _watched_on_all(hosts: Mapping[str, JobTimeline]) -> Span:
    return max(job.span[0] for job in hosts.values()), min(job.span[1] for job in hosts.values())


class _Following:
    """One job in which nothing moves.

    Args:
        hosts: what was seen of it on each.
        ranks: its ranks.
        graph: who waits for whom.
        span: at its end, over which nothing moved.
    """

    def __init__(self, hosts: Mapping[str, JobTimeline], ranks: WatchedRanks, graph: WaitGraph, span: Span) -> None:
        self._hosts, self._ranks, self._graph, self._span = hosts, ranks, graph, span

    @cached_property
    def _dumps(self) -> dict[int, Dump]:
        """What the Flight Recorder held of ranks that live."""
        rows = (row for job in self._hosts.values() for row in job.flight_dumps)
        return {
            rank: dump for rank, dump in dumps_that_hold(rows, self._span[0]).items() if rank in self._ranks.by_rank
        }

    def conclude(self) -> Stuck:
        """The verdict."""
        by_rank = {rank: self._graph.halt(one) for rank, one in self._ranks.by_rank.items()}
        elsewhere = [rank for rank, halt in by_rank.items() if halt.kind not in FOR_RANKS]
        return self._held_up(by_rank, elsewhere) if elsewhere else self._between_ranks(by_rank)

    def _held_up(self, by_rank: dict[int, Halt], elsewhere: Sequence[int]) -> Stuck:
        """Some ranks are not where the others wait for them: those hold them up whose way ends in what is surest."""
        chains = [self._graph.chain(self._ranks.by_rank[rank]) for rank in elsewhere]
        surest = min(map(_place_of_end, chains))
        # A rank may wait for another one in its own way; then it is that one.
        last = {_last_rank(one, elsewhere) for one in chains if _place_of_end(one) == surest}
        culprits = {rank: self._graph.chain(self._ranks.by_rank[rank]) for rank in sorted(last)}
        known = [_kind_of([halt for halt in one if self._runs_own_code(halt)]) for one in culprits.values()]
        return self._verdict(
            min(known, key=place_by_sureness),
            tuple(culprits),
            dict.fromkeys(halt for one in culprits.values() for halt in one),  # several may wait for one
            (halt for rank, halt in by_rank.items() if rank not in culprits),
            ends=[one[-1] for one in culprits.values()],
            in_circle=all(self._graph.in_circle(self._ranks.by_rank[rank]) for rank in culprits),
        )

    def _between_ranks(self, by_rank: dict[int, Halt]) -> Stuck:
        """All ranks wait for ranks: some are missing, or in another collective than the rest, or nothing arrives."""
        halts = tuple(by_rank.values())
        if missing := self._ranks.missing:
            return self._verdict(kinds.MISSING_RANK, missing, (), halts)
        if unwatched := self._ranks.unwatched:
            return self._verdict(kinds.UNWATCHED_RANK, unwatched, (), halts)
        if (differing := compare(self._dumps, len(by_rank))) is not None and differing.kind in _OTHER_CALLS:
            return self._mismatch(by_rank, differing.ranks)
        if any(map(self._waits_for_gpu, self._ranks.by_rank.values())):
            return self._verdict(kinds.GPU_WAIT, (), halts[:1], halts[1:])
        calls = {rank: (halt.collective, _without_folder(halt.line)) for rank, halt in by_rank.items()}
        names = Counter(name for name, _ in calls.values())
        by_name = len(names) > 1
        found = names if by_name else Counter(line for _, line in calls.values())
        if len(by_rank) > 1 and (len(found) > 1 or names.keys() == {"recv"}):
            usual, count = found.most_common(1)[0]
            others = tuple(rank for rank, call in calls.items() if call[0 if by_name else 1] != usual)
            odd = others if others and 2 * count > len(calls) else tuple(calls)
            return self._mismatch(by_rank, odd)
        if all(halt.kind == kinds.RENDEZVOUS for halt in halts):
            return self._verdict(kinds.RENDEZVOUS, (), halts[:1], halts[1:])
        if len(by_rank) > 1:
            return self._verdict(kinds.NETWORK, (), halts[:1], halts[1:])
        return self._verdict(kinds.UNKNOWN, (), halts, (), ends=halts)

    def _waits_for_gpu(self, one: OnHost) -> bool:
        return waits_for_gpu(self._hosts[one.host], one.process.pid, self._span)

    def _mismatch(self, by_rank: dict[int, Halt], odd: tuple[int, ...]) -> Stuck:
        """Some ranks, or all where none is odd, are in calls that do not go together with the others'."""
        rest = (halt for rank, halt in by_rank.items() if rank not in odd)
        return self._verdict(kinds.MISMATCH, odd, (by_rank[rank] for rank in odd), rest)

    def _runs_own_code(self, halt: Halt) -> bool:
        """Whether a process runs the job's own code: a rank, a worker, a pool's task, or what one of them forked."""
        job = self._hosts[halt.host]
        process, seen = job.processes.by_pid[halt.pid], job.recording.processes[halt.pid]
        forked = seen.forked and not process.channel
        return halt.own or process.role == "worker" or forked or self._graph.has_task(OnHost(halt.host, process))

    def _verdict(
        self,
        kind: str,
        culprits: tuple[int, ...],
        chain: Iterable[Halt],
        waiting: Iterable[Halt],
        *,
        ends: Sequence[Halt] = (),
        in_circle: bool = False,
    ) -> Stuck:
        return verdict(
            kind,
            culprits,
            map(self._with_call, chain),
            map(self._with_call, waiting),
            since_s=self._since_s(),
            confidence=self._confidence(kind, ends, in_circle=in_circle),
            ends=ends,
            alone=len(self._ranks.by_rank) == 1 and not (self._ranks.missing or self._ranks.unwatched),
        )

    def _confidence(self, kind: str, ends: Sequence[Halt], *, in_circle: bool) -> float:
        """How sure: what cannot end by itself, what nobody was seen to end, and what may go on.

        A thread that looks at something now and then may be who is to release a lock, once that comes. Processes of
        which each waits for the next in a circle do not go on by themselves.
        """
        if kind in ENDLESS or any(halt.others == () for halt in ends):
            return float(thresholds.CONFIDENCE_ENDLESS)
        may_end = (kind in _MAY_END and not in_circle) or (
            kind == kinds.LOCK and any(map(self._has_polling_threads, ends))
        )
        return float(thresholds.CONFIDENCE_MAY_END if may_end else thresholds.CONFIDENCE_NO_END_SEEN)

    def _has_polling_threads(self, halt: Halt) -> bool:
        job = self._hosts[halt.host]
        return any(is_polling(job, thread, self._span) for thread in job.threads.besides_main(halt.pid))

    def _with_call(self, halt: Halt) -> Halt:
        """A rank that waits for others, with the number of its call where a dump has it."""
        dump = None if halt.rank is None else self._dumps.get(halt.rank)
        return with_call(halt, dump) if dump is not None and halt.own and halt.kind in FOR_RANKS else halt

    def _since_s(self) -> float:
        """For how long nothing moved, at least; second by second, back from the end."""
        start, end = _watched_on_all(self._hosts)
        since = self._span[0]
        while since - NS_PER_S >= start and not self._graph.anything_moves((since - NS_PER_S, since)):
            since -= NS_PER_S
        return round(seconds(end - since), 1)


def _place_of_end(chain: Sequence[Halt]) -> int:
    """How sure it is that the last of a chain, in what is known at all, holds up those before it."""
    return place_by_sureness(_last_known(chain))


def _last_rank(chain: Sequence[Halt], elsewhere: Sequence[int]) -> int:
    """The last rank of a chain that is not where others wait for it."""
    return next(halt.rank for halt in reversed(chain) if halt.own and halt.rank is not None and halt.rank in elsewhere)


def _without_folder(line: str) -> str:
    """A line of code as it is called on every host: the same script may lie in another folder there."""
    return line.rpartition("/")[2]


def _kind_of(chain: Sequence[Halt]) -> str:
    """What the last of those sits in that run the job's own code; workers without work are one that was lost."""
    kind = _last_known(chain)
    return kinds.LOCK if kind in (LOADER, COLLECTIVE) else kind


def _last_known(chain: Sequence[Halt]) -> str:
    """In what the last of those sits of which that is known."""
    return next((halt.kind for halt in reversed(chain) if halt.kind != kinds.UNKNOWN), kinds.UNKNOWN)
