"""What made a rank late: what it did more of than those that wait for it, since they last went on together.

A late rank does its ordinary work while the others wait for it: the delay came before. What it spends more time on
than the waiting rank does is the reason (TraceML's and Ascend's rule: the culprit's local excess). Ranks that are late
by turns, each for a large file now and then, do the same over the whole recording; so they are compared over those
turns only in which the one waits for the other. What ranks exchange with each other makes none of them late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.timeline.amounts import Amounts

Times = npt.NDArray[np.int64]
# A rank that is at its own work for so many samples in a row has gone on; one alone may be what wakes it in a wait.
_GONE_ON = 2


def charge_excess(accounts: Sequence[Account], samples: Sequence[Sequence[Sampled]] = ()) -> list[Account]:
    """Charges waiting for a rank to what made that rank late, and not to what it does at that very instant.

    As far as it did no more than the one that waits, the instant's own activity stands.

    Args:
        accounts: of all ranks.
        samples: of each, as its account has settled them, if each was attributed by itself. Without them all of the
            time counts as one turn; so it does where waits are not in them: those on GPUs are known by their use.
    """
    seen = len(samples) == len(accounts) and all(map(_has_its_waits, accounts, samples))
    works = list(map(_Work.by_turns, samples)) if seen else list(map(_Work.of_all_time, accounts))
    by_rank = dict(zip((account.rank for account in accounts), works, strict=True))
    met = _meetings(by_rank)
    return [_charged(account, by_rank, met) for account in accounts]


def _has_its_waits(account: Account, samples: Sequence[Sampled]) -> bool:
    waited = sum(sum(sample.late.values()) for sample in samples)
    return len(samples) > 0 and math.isclose(waited, account.waited_for().total, rel_tol=1e-6)


def _charged(account: Account, works: Mapping[int, _Work], met: Mapping[int, Times]) -> Account:
    waits = dict(account.waits)
    for rank, waited in account.waited_for().items():
        excess = _excess(works, met, account.rank, rank)
        if excess.total <= 0 or waited <= 0:
            continue
        charged = min(1.0, excess.total / waited)
        for (block, other), amounts in account.waits.items():
            if other == rank:
                kept = {cause: amount * (1 - charged) for cause, amount in amounts.items()}
                moved = {cause: part * charged * amounts.total for cause, part in excess.fractions().items()}
                waits[block, other] = Amounts.summed([kept, moved])
    return replace(account, waits=waits)


def _excess(works: Mapping[int, _Work], met: Mapping[int, Times], waiting: int, late: int) -> Amounts[str]:
    """What a rank did more of than the one that waits for it, from when both went on until the wait was over.

    Of a wait for several ranks, each answers for its part.

    Returns:
        Seconds by cause.
    """
    mine, theirs = works[waiting], works[late]
    turns = [wait for wait in mine.waits if wait.late.get(late, 0.0) > 0]
    parts = np.array([wait.late[late] / sum(wait.late.values()) for wait in turns])
    begins_ns = np.array([wait.begin_ns for wait in turns])
    begins = np.maximum(*(_last_before(met[rank], begins_ns) for rank in (waiting, late)))
    ends = np.array([wait.end_ns for wait in turns])
    more = Amounts.summed([theirs.spent(begins, ends, parts), mine.spent(begins, ends, -parts)])
    return Amounts({cause: amount for cause, amount in more.items() if amount > 0})


def _meetings(works: Mapping[int, _Work]) -> dict[int, Times]:
    """When each rank has met others, in order: a wait of its own was over, or one for it."""
    met: dict[int, list[int]] = {rank: [] for rank in works}
    for rank, work in works.items():
        for wait in work.waits:
            for one in {rank, *wait.late}:
                met[one].append(wait.end_ns)
    return {rank: np.sort(np.array(ends, dtype=np.int64)) for rank, ends in met.items()}


def _last_before(met: Times, times_ns: Times) -> Times:
    """The last of some meetings before each time; none is long ago."""
    return np.concatenate([[np.iinfo(np.int64).min], met])[met.searchsorted(times_ns)]


class _Wait(NamedTuple):
    """A rank's wait for others.

    Attributes:
        begin_ns, end_ns: its first sample, and its last one.
        late: seconds of it, by the rank that was waited for.
    """

    begin_ns: int
    end_ns: int
    late: Mapping[int, float]


@dataclass(frozen=True)
class _Work:
    """What a rank does itself, and its waits.

    Attributes:
        times_ns: of its samples, in order.
        causes: of what it does.
        before: seconds by cause before each sample, and in all: one row more than there are samples.
        waits: for other ranks.
    """

    times_ns: Times
    causes: tuple[str, ...]
    before: npt.NDArray[np.float64]
    waits: tuple[_Wait, ...]

    @classmethod
    def by_turns(cls, samples: Sequence[Sampled]) -> _Work:
        """The work of a rank of which every sample is known."""
        own = [_own(sample) for sample in samples]
        return cls._of([sample.time_ns for sample in samples], own, tuple(_waits(samples, own)))

    @classmethod
    def of_all_time(cls, account: Account) -> _Work:
        """The same where only the sums are: all of the time is one turn, and each late rank has one of its own."""
        own = Amounts.summed(map(_local, account.own.values()))
        return cls._of([0], [own], tuple(_Wait(0, 0, {rank: waited}) for rank, waited in account.waited_for().items()))

    @classmethod
    def _of(cls, times_ns: Sequence[int], own: Sequence[Mapping[str, float]], waits: tuple[_Wait, ...]) -> _Work:
        causes = tuple(sorted(set().union(*own)))
        amounts = np.array([[one.get(cause, 0.0) for cause in causes] for one in own]).reshape(len(own), len(causes))
        before = np.concatenate([np.zeros((1, len(causes))), np.cumsum(amounts, axis=0)])
        return cls(np.array(times_ns, dtype=np.int64), causes, before, waits)

    def spent(self, after_ns: Times, until_ns: Times, weights: npt.NDArray[np.float64]) -> dict[str, float]:
        """Seconds by cause between some times, the second ones included, as a weighted sum."""
        begins, ends = (self.times_ns.searchsorted(times, side="right") for times in (after_ns, until_ns))
        amounts = weights @ (self.before[ends] - self.before[begins])
        return dict(zip(self.causes, amounts.tolist(), strict=True))


def _waits(samples: Sequence[Sampled], own: Sequence[Mapping[str, float]]) -> Iterator[_Wait]:
    late, working, begin_ns, end_ns = Amounts[int](), 0, 0, 0
    for sample, work in zip(samples, own, strict=True):
        working = working + 1 if work and not sample.late else 0
        if working == _GONE_ON and late:
            yield _Wait(begin_ns, end_ns, late)
            late = Amounts()
        if sample.late:
            begin_ns, end_ns = begin_ns if late else sample.time_ns, sample.time_ns
            late = Amounts.summed([late, sample.late])
    if late:
        yield _Wait(begin_ns, end_ns, late)


def _own(sample: Sampled) -> dict[str, float]:
    """What a rank did itself at a sample that is no wait for another one."""
    return {} if sample.late else _local(sample.causes)


def _local(amounts: Mapping[str, float]) -> dict[str, float]:
    return {cause: amount for cause, amount in amounts.items() if not cause.startswith("communication.")}
