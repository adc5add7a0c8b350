"""What a segment of stacks holds: py-spy's chrometrace, in which calls begin and end."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

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
