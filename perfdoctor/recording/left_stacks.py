"""Stacks that reached no recording, since perfdoctor was killed: py-spy then leaves them in files beside it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.clock import NS_PER_US
from perfdoctor.recording.schema import StackSegment

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
