"""Who waits for whom in collectives that have not ended, from what each rank has called: over all process groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfdoctor.knowledge.flight_recorder import SIZES_MAY_DIFFER
from perfdoctor.results import stuck as kinds
from perfdoctor.stuck.dumps import CollectiveCall, Dump, members_of


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Why collectives do not end.

    Attributes:
        kind: ``collective_mismatch``, ``rank_elsewhere``, ``unwatched_rank`` (of which there is no dump), or
            ``network`` where all ranks are in the same collective.
        ranks: those that disagree with the rest, have not come, or left no dump; empty for ``network``.
    """

    kind: str
    ranks: tuple[int, ...]


def compare(dumps: Mapping[int, Dump], world: int) -> Disagreement | None:
    """Why collectives do not end; None where each has ended that was called.

    Args:
        dumps: by rank.
        world: how many ranks the job has.
    """
    waits = {rank: set(_waited_for(dump, dumps, world)) for rank, dump in dumps.items() if dump.open_calls()}
    if not waits:
        return None
    if odd := _that_differ(dumps, world):
        return Disagreement(kinds.MISMATCH, odd)
    waited_for = set[int]().union(*waits.values())
    if elsewhere := sorted(waited_for & dumps.keys() - waits.keys()):
        return Disagreement(kinds.RANK_ELSEWHERE, tuple(elsewhere))
    if unseen := sorted(waited_for - dumps.keys()):
        return Disagreement(kinds.UNWATCHED_RANK, tuple(unseen))
    # If each of them waits for another in turn, some wait in a circle; else there are some who have all come.
    in_circle = waited_for and all(waits[rank] for rank in waited_for)
    return Disagreement(kinds.MISMATCH, tuple(sorted(waited_for))) if in_circle else Disagreement(kinds.NETWORK, ())


def _waited_for(dump: Dump, dumps: Mapping[int, Dump], world: int) -> Iterator[int]:
    """Ranks that have not come to a call that a rank is in."""
    for call in dump.open_calls():
        members = members_of(call.group, dumps, world)
        if call.peer is None:
            yield from (one for one in members if one not in dumps or dumps[one].last_in(call.group) < call.sequence)
        elif call.peer < len(members) and dump.rank in members:
            peer = members[call.peer]
            if peer not in dumps or not _answers(call, dump, dumps[peer], members.index(dump.rank)):
                yield peer


def _answers(call: CollectiveCall, dump: Dump, other: Dump, number: int) -> bool:
    """Whether the rank at the other end of a message has sent as often as it is received from, or the reverse.

    Args:
        call: the message.
        dump: of the rank that waits.
        other: of the one at the other end.
        number: of the rank that waits, in the group.
    """
    answer = "recv" if call.name == "send" else "send"
    asked = sum((one.group, one.peer, one.name) == (call.group, call.peer, call.name) for one in dump.calls)
    answered = sum((one.group, one.peer, one.name) == (call.group, number, answer) for one in other.calls)
    return answered >= asked


def _that_differ(dumps: Mapping[int, Dump], world: int) -> tuple[int, ...]:
    """The ranks whose call is another one than the others' of the same number in the same group; all if none is odd."""
    opened = [call for dump in dumps.values() for call in dump.open_calls() if call.peer is None]
    for group, sequence in dict.fromkeys((call.group, call.sequence) for call in opened):
        members = [rank for rank in members_of(group, dumps, world) if rank in dumps]
        calls = {rank: found for rank in members if (found := dumps[rank].find(group, sequence)) is not None}
        shapes = Counter(map(_shape, calls.values()))
        if len(shapes) > 1:
            usual, count = shapes.most_common(1)[0]
            odd = tuple(rank for rank, one in calls.items() if _shape(one) != usual)
            return odd if 2 * count > len(calls) else tuple(calls)
    return ()


def _shape(call: CollectiveCall) -> tuple[object, ...]:
    """What has to be the same on all ranks."""
    return call.name, call.types, () if call.name in SIZES_MAY_DIFFER else call.sizes
