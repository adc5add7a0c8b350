"""Whether traces are the ranks of one run, which of its ranks are missing, and how far they can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfdoctor.diagnosis import NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.settle import Settled

_SEPARATELY = "Analyze the traces of one run together, and other files by themselves."
_ALL = "give the traces of all ranks: perfdoctor analyze FOLDER"
# If this much of the communication is in collectives that were seen on one rank only, it is told.
_ALONE = 0.2
# Windows that differ by more than this hold different steps.
_LONGER = 1.5


def order_ranks(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks in order of their numbers.

    Raises:
        PerfDoctorError: they cannot be of one run.
    """
    counted = Counter(rank.number for rank in ranks if rank.number is not None)
    twice = [number for number, count in counted.items() if count > 1]
    if twice:
        files = " and ".join(rank.source for rank in ranks if rank.number == twice[0])
        raise PerfDoctorError(f"These traces are not of one run: {files} are all of rank {twice[0]}.", hint=_SEPARATELY)
    worlds = {rank.world: rank.source for rank in ranks if rank.world is not None}
    if len(worlds) > 1:
        told = ", ".join(f"{source} is of {world} ranks" for world, source in sorted(worlds.items()))
        raise PerfDoctorError(f"These traces are not of one run: {told}.", hint=_SEPARATELY)
    return sorted(ranks, key=lambda rank: (rank.number is None, rank.number or 0))


def number_ranks(ranks: Sequence[Rank]) -> list[int]:
    """The ranks' numbers; those of which the file does not say it get the lowest that are free."""
    taken = {rank.number for rank in ranks}
    free = (number for number in range(2 * len(ranks)) if number not in taken)
    return [next(free) if rank.number is None else rank.number for rank in ranks]


def missing_in_job(ranks: Sequence[Rank], settled: Settled) -> list[NotExamined]:
    """What is not known because ranks are missing, or do not fit together."""
    world = max((rank.world or 0 for rank in ranks), default=0)
    found = []
    if len(ranks) < world:
        why = f"{len(ranks)} of {world} ranks were seen: waiting for the others is not followed."
        found.append(NotExamined("ranks", why, _ALL))
    if len(ranks) < 2:
        return found
    if not all(rank.number is not None for rank in ranks):
        why = "Not all traces say which rank they are of: the files were numbered in their order."
        found.append(NotExamined("ranks", why, "name the files so that their order is that of the ranks"))
    return [*found, *_apart(ranks), *_uneven(ranks), *_unmatched(settled)]


def _apart(ranks: Sequence[Rank]) -> list[NotExamined]:
    """Traces whose clocks say that they were never recorded at the same time."""
    known = [rank for rank in ranks if rank.origin_ns is not None]
    begin = [(rank.origin_ns or 0) + rank.window.start for rank in known]
    end = [(rank.origin_ns or 0) + rank.window.end for rank in known]
    if len(known) < 2 or max(begin) <= min(end):
        return []
    seconds = (max(begin) - min(end)) / NS_PER_S
    why = f"By their hosts' clocks the traces lie {seconds:.3g} s apart: they may be of different steps, or runs."
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]


def _uneven(ranks: Sequence[Rank]) -> list[NotExamined]:
    steps = {rank.window.numbers for rank in ranks}
    lengths = [rank.window.length for rank in ranks]
    if len(steps) < 2 and max(lengths) <= _LONGER * min(lengths):
        return []
    why = "The ranks' traces hold different steps; waiting is followed only where their collectives are the same."
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]


def _unmatched(settled: Settled) -> list[NotExamined]:
    if not settled.exposed or settled.alone < _ALONE * settled.exposed:
        return []
    why = (
        f"{settled.alone / settled.exposed:.0%} of the exposed communication is in collectives that were found in one "
        "rank's trace only, so who came late to them is not known."
    )
    return [NotExamined("ranks", why, "record all ranks with the same profiler schedule")]
