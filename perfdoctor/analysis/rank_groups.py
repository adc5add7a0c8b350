"""Many ranks in short: groups that spend their time alike, the ranks that others wait for, and where these are.

Groups are made by the leader algorithm (Hartigan, Clustering Algorithms, 1975): a rank joins the first group whose
first rank spends its time like it does, or begins another. It takes one pass, whatever the number of ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.knowledge import thresholds
from perfdoctor.results.rank_groups import Crowd, HostRow, RankGroup
from perfdoctor.timeline.amounts import Amounts

MANY = 32  # as many bars fit on one screen
"""Ranks that can be looked at one by one."""
_MOST_GROUPS = 12  # with more, groups say no more than ranks
_MATTER = 10  # ranks that others wait for, as many as a reader goes through
_IN_ROW = 8  # ranks, where hosts are not known


def describe_crowd(ranks: Sequence[Mapping[str, Any]]) -> Crowd | None:
    """What is to be said of many ranks together; None of few.

    Args:
        ranks: as a diagnosis has them, with ``rank``, ``breakdown``, ``waits_for`` and, where it is known, ``host``.
    """
    if len(ranks) <= MANY:
        return None
    waited = Amounts[int]()
    for one in ranks:
        for other, share in one["waits_for"].items():
            waited[int(other)] += share / len(ranks)
    most = sorted(waited, key=lambda rank: -waited[rank])[:_MATTER]
    rows = _rows(ranks)
    host, position = _where(waited, rows) if waited.total >= thresholds.MIN_SHARE else ("", None)
    return Crowd(
        groups=tuple(sorted((_group(some) for some in _grouped(ranks)), key=lambda group: -len(group.ranks))),
        matter=tuple((rank, waited[rank]) for rank in most if waited[rank] >= thresholds.MATTERS_TO_ALL),
        late_host=host,
        late_position=position,
        rows=rows,
    )


def _profile(rank: Mapping[str, Any]) -> dict[str, float]:
    return {line["cause"]: line["share"] for line in rank["breakdown"]}


def _waits(rank: Mapping[str, Any]) -> float:
    return float(sum(rank["waits_for"].values()))


def _grouped(ranks: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Groups of ranks that are alike; those that are like none of so many groups are in none."""
    leaders: list[tuple[dict[str, float], float]] = []
    groups: list[list[Mapping[str, Any]]] = []
    for rank in ranks:
        profile, waits = _profile(rank), _waits(rank)
        for (other, waited), group in zip(leaders, groups, strict=True):
            if abs(waits - waited) <= thresholds.ALIKE_RANKS and _apart(profile, other) <= thresholds.ALIKE_RANKS:
                group.append(rank)
                break
        else:
            if len(groups) < _MOST_GROUPS:
                leaders.append((profile, waits))
                groups.append([rank])
    return groups


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The fraction of time that two spend on different things: the distance in total variation."""
    return sum(abs(one.get(cause, 0.0) - other.get(cause, 0.0)) for cause in one.keys() | other.keys()) / 2


def _group(ranks: Sequence[Mapping[str, Any]]) -> RankGroup:
    shares = Amounts.summed(map(_profile, ranks)).fractions()
    return RankGroup(tuple(one["rank"] for one in ranks), shares, sum(map(_waits, ranks)) / len(ranks))


def _rows(ranks: Sequence[Mapping[str, Any]]) -> tuple[HostRow, ...]:
    by_host: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for place, one in enumerate(sorted(ranks, key=lambda one: one["rank"])):
        host = str(one.get("host") or "")
        by_host[host, 0 if host else place // _IN_ROW].append((one["rank"], _waits(one)))
    return tuple(HostRow(host, tuple(some)) for (host, _), some in by_host.items())


def _where(waited: Amounts[int], rows: Sequence[HostRow]) -> tuple[str, int | None]:
    """The host, or the position on all hosts, of the ranks that nearly all waiting is for, if it is not one rank's."""
    known = [row for row in rows if row.host]
    if len(known) < 2 or max(waited.values()) >= thresholds.STRAGGLER * waited.total:
        return "", None
    hosts, positions = Amounts[str](), Amounts[int]()
    for row in known:
        for position, (rank, _) in enumerate(row.waits):
            hosts[row.host] += waited[rank]
            positions[position] += waited[rank]
    host = max(hosts, key=lambda one: hosts[one])
    if hosts[host] >= thresholds.STRAGGLER * waited.total:
        return host, None
    position = max(positions, key=lambda one: positions[one])
    systematic = len(positions) > 1 and positions[position] >= thresholds.STRAGGLER * waited.total
    return "", position if systematic else None
