"""Stacks as py-spy writes them in its chrometrace format."""

import json
import zlib
from typing import Any

from tests.gpu_jobs import places


class ChromeTrace:
    """py-spy's trace: a frame begins when it is first seen, and ends when it is not seen any more."""

    def __init__(self, pid: int, own_file: str) -> None:
        self._pid = pid
        self._own_file = own_file
        self._events: list[dict[str, Any]] = []
        self._open: dict[int, places.Stack] = {}
        self._last_us = 0

    def sample(self, ident: int, stack: places.Stack, at_us: int) -> None:
        before = self._open.get(ident, ())
        same = 0
        while same < min(len(before), len(stack)) and before[same] == stack[same]:
            same += 1
        for frame in reversed(before[same:]):
            self._add("E", ident, frame, at_us)
        for frame in stack[same:]:
            self._add("B", ident, frame, at_us)
        self._open[ident] = stack
        self._last_us = at_us

    def trace(self) -> bytes:
        for ident, stack in self._open.items():
            for frame in reversed(stack):
                self._add("E", ident, frame, self._last_us)
        return zlib.compress(json.dumps(self._events).encode(), 1)

    def _add(self, edge: str, ident: int, frame: places.Frame, at_us: int) -> None:
        file = self._own_file if frame.file == places.OWN else frame.file
        self._events.append({
            "args": {"filename": file, "line": frame.line}, "cat": "py-spy", "name": frame.name, "ph": edge,
            "pid": self._pid, "tid": ident, "ts": at_us,
        })  # fmt: skip
