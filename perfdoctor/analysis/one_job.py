"""Whether recordings are of one job, and every rank of it once.

Ranks that a launcher has numbered keep their numbers: where one is in two recordings, these are of two jobs, or of one
that was recorded twice. Only ranks that nobody has numbered are numbered here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from perfdoctor.analysis.host_summary import HostSummary, renumbered
from perfdoctor.diagnosis import NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say

_NAMED = 5  # hosts that a note names
_APART = "Keep the recordings of one job in a folder of their own."


class NotOneJobError(PerfDoctorError):
    """Recordings are of several jobs, whichever way they are read."""


class Part(NamedTuple):
    """What one recording says of the job that it is a part of.

    Attributes:
        source: the recording.
        ranks: those that it holds.
        world: how many the job has, as far as that is known there.
        numbered: a launcher or torch says which ranks these are.
    """

    source: str
    ranks: Sequence[int]
    world: int
    numbered: bool

    @property
    def is_of(self) -> int | None:
        """How many ranks the job has; None where nobody has said it: then those were counted that were seen."""
        knows_of_others = self.world > len(self.ranks)
        has_room = bool(self.ranks) and max(self.ranks) < self.world
        return self.world if has_room and (self.numbered or knows_of_others) else None


def require_one_size(parts: Iterable[Part]) -> None:
    """Makes sure that recordings agree in how many ranks there are.

    Raises:
        NotOneJobError: they do not.
    """
    worlds = {part.is_of: part.source for part in parts if part.is_of is not None}
    if len(worlds) > 1:
        sizes = ", ".join(f"{source} is of {world} ranks" for world, source in sorted(worlds.items()))
        raise NotOneJobError(f"These recordings are not of one job: {sizes}.", hint=_APART)


def each_rank_once(hosts: Sequence[HostSummary]) -> tuple[list[HostSummary], list[NotExamined]]:
    """Every rank of a job once, in order, and what is to be said of it.

    Args:
        hosts: of which each has trainers.

    Raises:
        NotOneJobError: they are of several.
    """
    hosts, notes = _latest(hosts)
    require_one_size(Part(host.source, host.ranks, host.world, host.numbered) for host in hosts)
    _require_one_run(hosts)
    if _doubled(hosts) and not all(host.numbered for host in hosts):
        hosts, said = _numbered(hosts)
        notes.append(said)
    if doubled := _doubled(hosts):
        notes.append(NotExamined("ranks", say("cluster.twice", ranks=doubled), say("cluster.one_run")))
        hosts = _where_they_ran_last(hosts)
    return sorted(hosts, key=lambda host: min(host.ranks)), notes


def _latest(hosts: Sequence[HostSummary]) -> tuple[list[HostSummary], list[NotExamined]]:
    """Of several recordings of the same ranks on one host the one that began last."""
    by_ranks: dict[tuple[str, tuple[int, ...]], list[HostSummary]] = defaultdict(list)
    for host in hosts:
        by_ranks[host.name, host.ranks].append(host)
    kept, notes = [], []
    for same in by_ranks.values():
        *others, latest = sorted(same, key=lambda host: (host.started, host.source))
        kept += [latest, *(one for one in others if _trains_beside(one, latest))]
        older = [one for one in others if not _trains_beside(one, latest)]
        if older:
            left_out = say("cluster.older", sources=tuple(one.source for one in older), host=latest.name)
            notes.append(NotExamined("files", left_out, say("cluster.one_run")))
    return kept, notes


def _trains_beside(one: HostSummary, latest: HostSummary) -> bool:
    """Whether two recordings of a host are of two runs at the same time, by the one clock of that host."""
    runs = {host.run for host in (one, latest) if host.numbered and host.run}
    return len(runs) > 1 and one.span is not None and latest.span is not None and one.span[1] > latest.span[0]


def _require_one_run(hosts: Sequence[HostSummary]) -> None:
    """Makes sure that no two runs have a rank of the same number.

    Other numbers may be of one run even where the launcher's variables differ: the host on which ranks meet may have
    been told to meet at ``localhost``.

    Raises:
        NotOneJobError: two have.
    """
    held: dict[int, dict[tuple[str, ...], str]] = defaultdict(dict)
    for host in hosts:
        for rank in host.ranks if host.numbered and host.run else ():
            held[rank].setdefault(host.run, host.source)
    for rank, sources in sorted(held.items()):
        if len(sources) > 1:
            one, other, *_ = sources.values()
            raise NotOneJobError(
                f"{one} and {other} are of two jobs: rank {rank} is in both, and they were started as two runs.",
                hint=_APART,
            )


def _doubled(hosts: Sequence[HostSummary]) -> tuple[int, ...]:
    counted = Counter(rank for host in hosts for rank in host.ranks)
    return tuple(sorted(rank for rank, often in counted.items() if often > 1))


def _numbered(hosts: Sequence[HostSummary]) -> tuple[list[HostSummary], NotExamined]:
    """Ranks that nobody has numbered get the numbers that are left, host by host."""
    taken = {rank for host in hosts if host.numbered for rank in host.ranks}
    left = (number for number in count() if number not in taken)
    ordered = sorted(hosts, key=lambda host: host.name)
    counted = [host.name for host in ordered if not host.numbered]
    named = counted if taken else []
    note = say("cluster.ranks_by_host", hosts=tuple(named[:_NAMED]), more=len(named[_NAMED:]))
    found = [host if host.numbered else renumbered(host, {rank: next(left) for rank in host.ranks}) for host in ordered]
    return found, NotExamined("ranks", note, say("cluster.set_rank"))


def _where_they_ran_last(hosts: Sequence[HostSummary]) -> list[HostSummary]:
    """Each rank on one host only: one that was started anew elsewhere counts there."""
    kept: dict[int, HostSummary] = {}
    for host in sorted(hosts, key=lambda host: host.started):
        kept.update(dict.fromkeys(host.ranks, host))
    whole = [_with_only(host, {rank for rank, one in kept.items() if one is host}) for host in hosts]
    return [host for host in whole if host.accounts]


def _with_only(host: HostSummary, ranks: set[int]) -> HostSummary:
    accounts = tuple(account for account in host.accounts if account.rank in ranks)
    return replace(host, accounts=accounts)
