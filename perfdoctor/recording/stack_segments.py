"""Stacks as py-spy writes them, in its chrometrace, in which calls begin and end: what a segment of a recording holds.

Those that reached no recording, since perfdoctor was killed, py-spy leaves in files beside it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from perfdoctor.recording.clock import NS_PER_US
from perfdoctor.recording.schema import StackSegment

F = TypeVar("F")


class SeenStack(Generic[F]):
    """A stack: a call inside another stack. Those that were seen make a tree, and one that is seen again is the same.

    Args:
        frame: makes a call of its file, function and line.
        outer: the calls around this one; None for the empty stack.
        call: the innermost call.
    """

    def __init__(
        self, frame: Callable[[str, str, int], F], outer: SeenStack[F] | None = None, call: tuple[F, ...] = ()
    ) -> None:
        self._frame, self._outer, self._call = frame, outer, call
        self._inner: dict[tuple[str, str, int], SeenStack[F]] = {}

    @cached_property
    def frames(self) -> tuple[F, ...]:
        """Its calls, the outermost first."""
        calls: list[F] = []
        stack: SeenStack[F] | None = self
        while stack is not None:  # not by recursion: the job's may be as deep as Python lets one be
            calls += stack._call
            stack = stack._outer
        return tuple(reversed(calls))

    def begin(self, file: str, function: str, line: int) -> SeenStack[F]:
        """The stack in which this one calls something."""
        key = file, function, line
        found = self._inner.get(key)
        if found is None:
            found = self._inner[key] = SeenStack(self._frame, self, (self._frame(*key),))
        return found

    def end(self) -> SeenStack[F]:
        """The stack after its innermost call."""
        return self if self._outer is None else self._outer


class _Arguments(msgspec.Struct, gc=False):
    filename: str = ""
    line: int = 0


class _Event(msgspec.Struct, gc=False):
    pid: int
    tid: int
    ts: int
    ph: str
    name: str = ""
    args: _Arguments = msgspec.field(default_factory=_Arguments)


_EVENTS = msgspec.json.Decoder(list[_Event])


def stack_changes(trace: bytes, empty: SeenStack[F]) -> Iterator[tuple[int, int, int, SeenStack[F]]]:
    """Whenever a thread's stack changed: pid, Python's identifier of the thread, microseconds, the new stack.

    Args:
        trace: of a ``perfdoctor.recording.schema.StackSegment``; nothing is found in one that was cut off.
        empty: the stack without a call, of this trace and others.
    """
    try:
        events = _EVENTS.decode(zlib.decompress(trace))
    except (msgspec.DecodeError, zlib.error):
        return  # py-spy was killed while it wrote
    stacks: dict[tuple[int, int], SeenStack[F]] = {}
    pending: dict[tuple[int, int], int] = {}
    for event in events:
        key = (event.pid, event.tid)
        stack = stacks.get(key, empty)
        changed_us = pending.get(key, event.ts)
        if changed_us != event.ts:
            yield *key, changed_us, stack
        pending[key] = event.ts
        if event.ph == "B":
            stacks[key] = stack.begin(event.args.filename, event.name, event.args.line)
        else:
            stacks[key] = stack.end()
    for key, time_us in pending.items():
        yield *key, time_us, stacks[key]


_NAME = re.compile(r"\.stacks-(?P<pid>\d+)-(?P<time_ns>\d+)-(?P<error_ns>\d+)")


def file_for(recording: Path, pid: int, time_ns: int, error_ns: int) -> Path:
    """Where the stacks of a process lie until they are taken into the recording.

    Args:
        recording: the file that they belong to.
        pid: the process.
        time_ns: when py-spy's own clock stood at zero.
        error_ns: how much later that may have been.
    """
    return recording.with_name(f"{recording.name}.stacks-{pid}-{time_ns}-{error_ns}")


def left_stacks(recording: Path) -> Iterator[StackSegment]:
    """What was left beside a recording, in no order.

    Args:
        recording: its file.
    """
    for file in recording.parent.glob("*.stacks-*"):
        name = _NAME.fullmatch(file.name.removeprefix(recording.name))
        if name is None:
            continue
        try:
            trace = file.read_bytes()
            last_us = max(event["ts"] for event in json.loads(trace))
        except (OSError, ValueError):
            continue  # it is still being written, or was taken into the recording just now
        pid, time_ns, error_ns = map(int, name.groups())
        yield StackSegment(time_ns, error_ns, time_ns + last_us * NS_PER_US, pid, zlib.compress(trace, 1))
