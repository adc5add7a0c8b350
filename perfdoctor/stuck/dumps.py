"""Dumps of torch's Flight Recorder: which collectives a rank has called, in which group, and which have not ended.

torch's own reader (torch.distributed.flight_recorder) is not used: it loads pickles, which may run any code, needs the
groups' members, which gloo does not note, and takes what has left the recorder's buffer for calls that are missing.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from perfdoctor.knowledge.flight_recorder import ALL_RANKS, ENDED, RETIRED_HAVE_ENDED
from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.code_location import own_line

# What reading raises where bytes are missing or others than there should be.
_DAMAGED = (
    *(pickle.PickleError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError),
    *(SyntaxError, TypeError, ValueError),
)


class DumpError(Exception):
    """A file is no dump of the Flight Recorder, or is damaged."""


class CollectiveCall(NamedTuple):
    """A collective, or a message to another rank, as one rank has called it.

    Attributes:
        group: name of the process group.
        sequence: its number among the collectives of that group, or among its messages.
        name: the operation, ``all_reduce`` for instance.
        peer: of a message, the other rank by its number in the group; None for collectives.
        sizes: of the tensors that go in.
        types: of these.
        line: the innermost line of the job's own code; "" where the dump has no stacks.
        created_ns: when it was called, since 1970.
        timeout_ns: how long it may take, 0 where that is not known.
        ended: it has.
    """

    group: str
    sequence: int
    name: str
    peer: int | None
    sizes: tuple[str, ...]
    types: tuple[str, ...]
    line: str
    created_ns: int
    timeout_ns: int
    ended: bool


class ProcessGroup(NamedTuple):
    """A process group.

    Attributes:
        description: what the job called it; "" where it did not.
        members: its ranks; empty where the dump does not say.
    """

    description: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Dump:
    """What the recorder of one rank held.

    Attributes:
        written_ns: when, since 1970.
        groups: by name.
        calls: in order.
    """

    rank: int
    written_ns: int
    groups: Mapping[str, ProcessGroup]
    calls: Sequence[CollectiveCall]

    def open_calls(self) -> list[CollectiveCall]:
        """The first call of each group, and of each message's peer, that has not ended."""
        first: dict[tuple[str, int | None], CollectiveCall] = {}
        for call in self.calls:
            if not call.ended:
                first.setdefault((call.group, call.peer), call)
        return list(first.values())

    def last_in(self, group: str) -> int:
        """Number of the last collective of a group that was called; 0 if none was."""
        return self._last.get(group, 0)

    def find(self, group: str, sequence: int) -> CollectiveCall | None:
        """The collective of that number in a group; None where it was not called, or is forgotten."""
        return self._collectives.get((group, sequence))

    @cached_property
    def _collectives(self) -> dict[tuple[str, int], CollectiveCall]:
        return {(call.group, call.sequence): call for call in reversed(self.calls) if call.peer is None}

    @cached_property
    def _last(self) -> dict[str, int]:
        return dict(sorted(self._collectives))  # of each group the last number


class _PlainData(pickle.Unpickler):
    """Reads what is built of dictionaries, lists, texts and numbers; a pickle that names a class or function may run
    anything, and is refused.
    """

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"it holds more than plain data: {module}.{name}")


def read_dump(rank: int, written_ns: int, data: bytes) -> Dump:
    """Reads a dump, pickled or in JSON.

    Args:
        rank: of which it is.
        written_ns: when it was written, since 1970.
        data: the file.

    Raises:
        DumpError: it is none, or is damaged.
    """
    try:
        found = json.loads(data) if data[:1] == b"{" else _PlainData(io.BytesIO(data)).load()
        entries = [entry for entry in found.get("entries") or [] if isinstance(entry, Mapping)]
        groups = dict(_groups(found.get("pg_config") or {}))
        for entry in entries:
            name, described = entry["process_group"]
            groups.setdefault(str(name), ProcessGroup(str(described), ()))
        entries.sort(key=lambda entry: int(entry["record_id"]))
        return Dump(rank, written_ns, groups, [_call(entry) for entry in entries])
    except DumpError:
        raise
    except _DAMAGED as error:
        raise DumpError(f"it is damaged: {type(error).__name__} {error}"[:200]) from None


def _groups(found: Mapping[str, Mapping[str, str]]) -> Iterable[tuple[str, ProcessGroup]]:
    for name, group in found.items():
        ranks = ast.literal_eval(group["ranks"])
        if ranks:
            yield str(name), ProcessGroup(str(group.get("desc", "")), tuple(sorted(map(int, ranks))))


def _call(entry: Mapping[str, Any]) -> CollectiveCall:
    _, _, called = str(entry["profiling_name"]).partition(":")
    name, _, ends = called.partition(" ")
    message = bool(entry.get("is_p2p"))
    return CollectiveCall(
        group=str(entry["process_group"][0]),
        sequence=int(entry["p2p_seq_id" if message else "collective_seq_id"]),
        name=name,
        peer=_peer(ends) if message else None,
        sizes=tuple(map(str, entry.get("input_sizes") or ())),
        types=tuple(map(str, entry.get("input_dtypes") or ())),
        line=own_line(tuple(_frames(entry.get("frames") or ()))),
        created_ns=int(entry.get("time_created_ns") or 0),
        timeout_ns=int(entry.get("timeout_ms") or 0) * 1_000_000,
        ended=_has_ended(entry),
    )


def _peer(ends: str) -> int:
    """The other rank of a message: ``0->1`` sends to 1, ``1<-0`` receives from 0."""
    return int(ends.replace("->", " ").replace("<-", " ").split()[-1])


def _has_ended(entry: Mapping[str, Any]) -> bool:
    retired = bool(entry.get("retired")) and str(entry["profiling_name"]).startswith(RETIRED_HAVE_ENDED)
    return retired or entry.get("state") == ENDED


def _frames(found: Iterable[Mapping[str, Any]]) -> Iterable[Frame]:
    """A stack, outermost call first."""
    for frame in reversed(list(found)):
        yield Frame(str(frame["filename"]), str(frame["name"]), int(frame["line"]))


def members_of(name: str, dumps: Mapping[int, Dump], world: int) -> tuple[int, ...]:
    """The ranks of a group; where no dump says, as in gloo's, those that have called it, or all that may be meant."""
    known = {rank: dump.groups[name] for rank, dump in dumps.items() if name in dump.groups}
    if found := next((group.members for group in known.values() if group.members), ()):
        return found
    every = len(known) < 2 or any(group.description == ALL_RANKS for group in known.values())
    return tuple(range(world)) if every else tuple(known)
