"""What a process of the job under trial reports to `perfdoctor treat`, in files of its own: events and facts."""

from __future__ import annotations

import json
import os
import struct
import sys
from time import monotonic_ns
from typing import Any

RECORD = struct.Struct("<qqd")
"""One event: its kind, when (CLOCK_MONOTONIC, ns), and a value."""
PROCESS, STEP, BATCH, LOSS, GPU_MEMORY = range(5)
"""Kinds, with their values: the rank (-1 where there is none); which optimizer made a step, in the order of their first
steps; nothing; the loss; peak bytes that torch has allocated on the GPU."""
EVENTS, FACTS = ".events", ".facts"
"""Endings of the files, named by process ids."""


class Notes:
    """The files of this process, made when there is something to tell.

    Args:
        settings: `folder` is where the files go, `root` the folder in which the job runs, `original` what it copies.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._folder = settings["folder"]
        self._roots = [os.path.join(os.path.realpath(settings[name]), "") for name in ("root", "original")]
        self._own: dict[str, str] = {}
        self._file = -1
        self._reported: set[str] = set()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """A forked child has files of its own."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._reported.clear()

    def event(self, kind: int, time_ns: int, value: float = 0.0) -> None:
        """Writes one event."""
        if self._file < 0:
            name = os.path.join(self._folder, f"{os.getpid()}{EVENTS}")
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(self._file, RECORD.pack(PROCESS, monotonic_ns(), float(os.environ.get("RANK", "-1"))))
        os.write(self._file, RECORD.pack(kind, time_ns, value))

    def fact(self, kind: str, **values: Any) -> None:
        """Writes one fact, once: what was made or called, and with which values."""
        line = json.dumps({"kind": kind, **values}, default=str)
        if line not in self._reported:
            self._reported.add(line)
            with open(os.path.join(self._folder, f"{os.getpid()}{FACTS}"), "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def place(self) -> dict[str, Any]:
        """Where in the job's own files the present call comes from; nothing if it does not."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in self._own:
                self._own[name] = self._own_file(name)
            if self._own[name]:
                return {"file": self._own[name], "line": frame.f_lineno}
            frame = frame.f_back
        return {}

    def _own_file(self, name: str) -> str:
        """A file of the job's, from the folder in which it runs; "" for others, and for what is no file."""
        path = os.path.realpath(name)
        root = next((root for root in self._roots if path.startswith(root)), None)
        own = root is not None and "site-packages" not in path and os.path.isfile(path)
        return path[len(root) :] if own and root else ""
