"""One rank's collectives: what names each of them on all ranks, and what the rank did around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfdoctor.causes import CAUSES
from perfdoctor.knowledge import thresholds
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.communication import SPLIT, CollectiveTimes
from perfdoctor.traces.intervals import Floats, Int64s, Intervals
from perfdoctor.traces.model import UNKNOWN, Bools, CollectiveMessage

# All causes; a rank spends time on a few of them.
COLUMNS = tuple(CAUSES)
_PLACES = {cause: place for place, cause in enumerate(COLUMNS)}


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of one rank, sorted by start; columns of equal length. Times are the rank's own.

    Attributes:
        keys: names a collective on all ranks; None where only its place in the order of its kind does.
        kinds: name and group; where the file does not name the group, name and stream.
        group_size: 0 where that is not known.
        size: bytes; nan where the trace does not say.
        split: exposed nanoseconds by ``SPLIT``, as this rank alone shows them.
        alone: moments, and for how long nothing but communication went on before each.
        blocking: whether the rank could do nothing else when it ended.
        before, after: nanoseconds by ``causes`` that the rank had spent when it started, and when it ended.
        left_out: how many more the trace has, all before these, for which these stand.
        causes: those of the columns of ``before`` and ``after``.
    """

    keys: tuple[Hashable, ...]
    kinds: tuple[tuple[Hashable, ...], ...]
    group_size: Int64s
    start: Int64s
    end: Int64s
    size: Floats
    split: Floats
    alone: tuple[Floats, Floats]
    blocking: Bools
    before: Floats
    after: Floats
    left_out: int = 0
    causes: tuple[str, ...] = COLUMNS

    def spent_before(self, row: int) -> Floats:
        """By ``COLUMNS``, what the rank had spent when a collective started."""
        return self._by_columns(self.before[row])

    def spent_after(self, row: int) -> Floats:
        """The same when it ended."""
        return self._by_columns(self.after[row])

    def _by_columns(self, amounts: Floats) -> Floats:
        found = np.zeros(len(COLUMNS), dtype=amounts.dtype)
        found[_places(self.causes)] = amounts
        return found

    def __len__(self) -> int:
        return len(self.start)

    def alone_within(self, start: Int64s, end: Int64s) -> Floats:
        """Nanoseconds of each of some spans in which nothing but communication goes on."""
        if not len(self.alone[0]):
            return np.zeros(len(start))
        return np.interp(end, *self.alone) - np.interp(start, *self.alone)

    def exposed(self, row: int, until: int) -> float:
        """Nanoseconds of a collective's exposed time that lie before a moment."""
        if not len(self.alone[0]):
            return 0.0
        start, end = int(self.start[row]), int(self.end[row])
        begun, then, done = np.interp((start, min(max(until, start), end), end), *self.alone).tolist()
        return float(self.split[row].sum()) * (then - begun) / (done - begun) if done > begun else 0.0


@lru_cache
def _places(causes: tuple[str, ...]) -> Int64s:
    """Where some causes stand in ``COLUMNS``."""
    return np.array([_PLACES[cause] for cause in causes], dtype=np.int64)


def list_collectives(account: RankAccount) -> Collectives:
    """A rank's collectives; none if its trace has several devices, which then are ranks of their own."""
    if len(account.collectives) != 1:
        return _of(account, _nothing())
    return _of(account, account.collectives[0])


def _nothing() -> CollectiveTimes:
    none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
    return CollectiveTimes(none, True, none, none, Intervals.none(), empty, dict.fromkeys(SPLIT, empty))


def _of(account: RankAccount, times: CollectiveTimes) -> Collectives:
    order = np.argsort(times.start, kind="stable")
    rows, start, end = times.rows[order], times.start[order], times.end[order]
    messages = [None if times.on_host else account.trace.messages.get(int(row)) for row in rows]
    names = account.trace.host.name if times.on_host else account.trace.device.name
    streams = np.full(len(rows), UNKNOWN) if times.on_host else account.trace.device.stream[rows]
    called = start if times.on_host else account.launched_at(rows)[1]
    kinds = [
        _kind(account.trace.names[names[row]], message, account.trace.rank, stream)
        for row, message, stream in zip(rows.tolist(), messages, streams.tolist(), strict=True)
    ]
    return Collectives(
        keys=tuple(_keys([on_any_stream(kind) for kind in kinds], messages, _step(account, called), called)),
        kinds=tuple(kinds),
        group_size=np.array([max(message.group_size, 0) if message else 0 for message in messages], dtype=np.int64),
        start=start,
        end=end,
        size=times.size[order],
        split=np.stack([times.amounts[cause][order] for cause in SPLIT], axis=1),
        alone=times.alone.summed(),
        blocking=are_blocking(times.alone, start, end),
        before=_spent(account, start),
        after=_spent(account, end),
    )


def are_blocking(alone: Intervals, start: Int64s, end: Int64s) -> Bools:
    """Which collectives hold up what comes next: mostly, nothing else goes on while they end.

    Args:
        alone: the times in which nothing but communication goes on.
        start: of the collectives.
        end: of the collectives.
    """
    last = np.minimum(end - start, int(thresholds.LAST_OF_COLLECTIVE_NS))
    return np.asarray(2 * alone.within(end - last, end) >= np.maximum(last, 1))


def _spent(account: RankAccount, moments: Int64s) -> Floats:
    """By ``COLUMNS``, how much of each cause lies before each time."""
    attributed = account.before(moments)
    nothing = np.zeros(len(moments))
    return np.stack([attributed.get(cause, nothing) for cause in COLUMNS], axis=1)


def _step(account: RankAccount, times: Int64s) -> list[int]:
    """The number of the step in which each time lies; ``UNKNOWN`` outside."""
    found = np.full(len(times), UNKNOWN, dtype=np.int64)
    for (start, end), number in zip(account.window.steps, account.window.numbers, strict=True):
        found[(times >= start) & (times < end)] = number
    return [int(number) for number in found]


def _kind(name: str, message: CollectiveMessage | None, rank: int | None, stream: int) -> tuple[Hashable, ...]:
    """What a collective is. Messages between two ranks are known by who sends and who receives."""
    if message is None:
        return (name.split("(")[0],) if stream == UNKNOWN else (name.split("(")[0], stream)
    if message.peer != UNKNOWN and rank is not None:
        pair = (rank, message.peer) if message.name.startswith("send") else (message.peer, rank)
        return ("pair", message.group, message.members, *pair)
    return (message.name, message.group, message.members)


def is_of_stream(kind: tuple[Hashable, ...]) -> bool:
    """Whether a kind is name and stream: the file does not name the group."""
    return len(kind) == 2


def on_any_stream(kind: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """The kind as other ranks may know it: a group's stream has another number there."""
    return kind[:1] if is_of_stream(kind) else kind


def _keys(
    kinds: Sequence[Hashable], messages: Sequence[CollectiveMessage | None], steps: Sequence[int], called: Int64s
) -> list[Hashable]:
    """The collective's number in its group where it has one; else its step, and its place among its kind there.

    How many of its kind there are belongs to the key: where ranks differ in that, their places mean nothing.
    """
    keys: list[Hashable] = [None] * len(kinds)
    in_step = Counter((kind, step) for kind, step in zip(kinds, steps, strict=True))
    seen: Counter[Hashable] = Counter()
    for row in np.argsort(called, kind="stable").tolist():
        kind, message, step = kinds[row], messages[row], steps[row]
        numbered = message is not None and message.sequence != UNKNOWN and message.peer == UNKNOWN
        if numbered and message is not None:
            place: Hashable = ("number", kind, message.sequence)
        elif step != UNKNOWN:
            place = ("step", kind, step, in_step[kind, step])
        else:
            continue
        keys[row] = (place, seen[place])
        seen[place] += 1
    return keys
