"""Many ranks in short: which are alike, which matter, and where the late ones are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that spend their time alike.

    Attributes:
        ranks: their numbers, in order.
        shares: cause to fraction of wall time, mean over them.
        waits: fraction of wall time that they wait for other ranks, mean over them.
    """

    ranks: tuple[int, ...]
    shares: Mapping[str, float]
    waits: float


@dataclass(frozen=True, slots=True)
class HostRow:
    """The ranks of one host, in order.

    Attributes:
        host: its name; "" where hosts are not known and these are so many ranks in order.
        waits: rank and the fraction of its wall time that it waits for other ranks.
    """

    host: str
    waits: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Crowd:
    """The ranks of a job that has too many to be looked at one by one.

    Attributes:
        groups: largest first.
        matter: ranks that others wait for most, and how much of all ranks' time goes there; most first.
        late_host: the host that nearly all waiting is for; "" if there is none.
        late_position: the position on each host, counted from 0, that nearly all waiting is for; None likewise.
        rows: host by host.
    """

    groups: tuple[RankGroup, ...]
    matter: tuple[tuple[int, float], ...]
    late_host: str
    late_position: int | None
    rows: tuple[HostRow, ...]
