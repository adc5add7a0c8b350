"""Dumps of the Flight Recorder beside what was seen from outside, and what they say by themselves."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.flight_recorder import ALL_RANKS
from perfdoctor.recording.clock import seconds
from perfdoctor.recording.schema import FlightDump
from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Halt, Stuck
from perfdoctor.stuck.collectives import compare
from perfdoctor.stuck.dumps import CollectiveCall, Dump, DumpError, read_dump
from perfdoctor.stuck.halts import COLLECTIVE
from perfdoctor.stuck.verdict import verdict

_UNNAMED = ("", "undefined")


def dumps_that_hold(rows: Iterable[FlightDump], since_ns: int) -> dict[int, Dump]:
    """By rank the dumps that still tell where it is: written since nothing moves, or when a call had timed out.

    Args:
        rows: as recorded; damaged ones are left out.
        since_ns: since when nothing moves, on the one clock.
    """
    newest = {row.rank: row for row in sorted(rows, key=lambda row: row.at_ns)}
    found: dict[int, Dump] = {}
    for rank, row in newest.items():
        with suppress(DumpError, zlib.error):
            found[rank] = read_dump(rank, row.written_ns, zlib.decompress(row.data))
    if any(map(_timed_out, found.values())):
        return found
    return {rank: dump for rank, dump in found.items() if newest[rank].at_ns >= since_ns}


def with_call(halt: Halt, dump: Dump) -> Halt:
    """A rank that waits for others, with the call that it is in by its dump."""
    call = _first_open(dump)
    return halt if call is None else _called(halt, call, dump)


def judge_dumps(dumps: Mapping[int, Dump]) -> Stuck | None:
    """What dumps say by themselves of a job whose collectives do not end; None if none is open for long.

    Args:
        dumps: by rank.
    """
    world = world_of(dumps)
    found = compare(dumps, world)
    open_s = open_for_s(dumps)
    copied = open_s > thresholds.DUMP_LATE * _longest_s(dumps)
    timed_out = not copied and any(map(_timed_out, dumps.values()))
    if found is None or not (copied or timed_out or open_s >= thresholds.DUMP_OPEN_S):
        return None
    open_s = 0.0 if copied else open_s
    halts = {rank: _halt(dump) for rank, dump in dumps.items()}
    chain = tuple(halts[rank] for rank in found.ranks if rank in halts)
    waiting = tuple(halt for halt in halts.values() if halt not in chain)
    return verdict(
        found.kind,
        found.ranks,
        chain,
        waiting,
        since_s=open_s,
        confidence=float(thresholds.CONFIDENCE_NO_END_SEEN if timed_out else thresholds.CONFIDENCE_MAY_END),
    )


def world_of(dumps: Mapping[int, Dump]) -> int:
    """How many ranks a job has, as far as its dumps say."""
    groups = [group for dump in dumps.values() for group in dump.groups.values()]
    return 1 + max([*dumps, *(rank for group in groups for rank in group.members)])


def open_for_s(dumps: Mapping[int, Dump]) -> float:
    """For how long nothing new was called, at least, while some call was open; 0 if none is."""
    called = [call.created_ns for dump in dumps.values() for call in dump.calls]
    if not any(map(_first_open, dumps.values())):
        return 0.0
    return round(max(0.0, seconds(min(dump.written_ns for dump in dumps.values()) - max(called))), 1)


def _longest_s(dumps: Mapping[int, Dump]) -> float:
    """For how long an open call may take at most, in s; no limit where that is not known."""
    return max((seconds(call.timeout_ns) for dump in dumps.values() for call in dump.open_calls()), default=0) or inf


def _halt(dump: Dump) -> Halt:
    call = _first_open(dump)
    last = call or (dump.calls[-1] if dump.calls else None)
    halt = Halt(COLLECTIVE if call else kinds.RANK_ELSEWHERE, 0, dump.rank, own=True, name="")
    return halt if last is None else replace(_called(halt, last, dump), line=last.line)


def _called(halt: Halt, call: CollectiveCall, dump: Dump) -> Halt:
    description = dump.groups[call.group].description
    group = "" if description == ALL_RANKS else call.group if description in _UNNAMED else description
    tensors = ", ".join(f"{kind} {size}" for kind, size in zip(call.types, call.sizes, strict=False))
    return replace(halt, collective=call.name, sequence=call.sequence, group=group, tensors=tensors)


def _first_open(dump: Dump) -> CollectiveCall | None:
    return min(dump.open_calls(), key=lambda call: call.created_ns, default=None)


def _timed_out(dump: Dump) -> bool:
    """Whether a call was open for longer than it may take: then the job does not go on after it."""
    return any(0 < call.timeout_ns <= dump.written_ns - call.created_ns for call in dump.open_calls())
