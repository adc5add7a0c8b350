"""The verdict that a job is stuck, put together from who holds it up and who waits."""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.messages import say
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Halt, Stuck


def verdict(
    kind: str,
    culprits: tuple[int, ...],
    chain: Iterable[Halt],
    waiting: Iterable[Halt],
    *,
    since_s: float,
    confidence: float,
    ends: Iterable[Halt] = (),
    alone: bool = False,
) -> Stuck:
    """The verdict with its sentences.

    Args:
        kind: what holds the job up.
        culprits: the ranks that hold others up, are missing, or were not watched.
        chain: from each of those ranks to whoever waits for nobody of the job.
        waiting: all other ranks.
        since_s: for how long nothing moved, at least, in s.
        confidence: 0 to 1.
        ends: the processes to do something about.
        alone: the job has one rank only, which is not worth naming.
    """
    chain, waiting, ends = tuple(chain), tuple(waiting), tuple(ends)
    named = len(culprits) == 1 and not alone and kind != kinds.UNWATCHED_RANK
    return Stuck(
        kind=kind,
        rank=culprits[0] if named else None,
        ranks=culprits,
        since_s=since_s,
        confidence=confidence,
        chain=chain,
        waiting=waiting,
        summary=say("stuck.summary", kind=kind, chain=chain, waiting=waiting, ranks=culprits, since_s=since_s),
        next_move=say("stuck.next_move", kind=kind, ends=ends),
        refuted_by=say("stuck.refuted_by", kind=kind),
    )
