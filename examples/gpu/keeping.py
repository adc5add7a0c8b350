"""Keeps of a profiler trace what perfdoctor reads, small enough for the repository."""

import gzip
import json
import lzma
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

MAX_TRACE = 700_000
SUFFIX = ".json.xz"
# Of a trace: what perfdoctor reads, so neither the host's name nor anything of the script.
_ROOT = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "schemaVersion")
_STEP = re.compile(r"ProfilerStep#(\d+)")

Event = dict[str, Any]


def trim(trace: Path, to: Path) -> bool:
    """Writes what perfdoctor reads of a trace, but for stacks: of all steps, or of as many as are small enough.

    Returns:
        Whether even one step is.
    """
    from perfdoctor.traces.events import EventArguments

    whole = json.loads(gzip.decompress(trace.read_bytes()))
    # Stacks name the folders of whoever ran the job.
    known = {field.encode_name for field in msgspec.structs.fields(EventArguments)} - {"Call stack"}
    events = [_trimmed(event, known) for event in whole["traceEvents"] if event.get("ph") in ("X", "B", "E", "M")]
    root = {name: whole[name] for name in _ROOT if name in whole}
    for kept in (events, *_fewer_steps(events)):
        text = json.dumps({**root, "traceEvents": kept}, separators=(",", ":")).encode()
        packed = lzma.compress(text, preset=9)
        if len(packed) <= MAX_TRACE:
            to.write_bytes(packed)
            return True
    return False


def unpack(kept: Path, to: Path) -> Path:
    """Writes a trace that was kept, as JSON."""
    to.write_bytes(lzma.decompress(kept.read_bytes()))
    return to


def _fewer_steps(events: list[Event]) -> Iterable[list[Event]]:
    """The events of all steps but the last, of one step less, and so on down to one."""
    ends: dict[int, float] = {}
    for event in events:
        found = _STEP.fullmatch(event.get("name", ""))
        if found and event.get("cat") == "user_annotation":
            ends[int(found[1])] = event["ts"] + event.get("dur", 0)
    for last in sorted(ends, reverse=True)[1:]:
        yield list(_until(events, last, ends[last]))


def _until(events: list[Event], last: int, end: float) -> Iterable[Event]:
    """What began on the host before the end of a step there, and what of it ran on the device, whenever that was."""
    launched = {
        event["args"]["correlation"]
        for event in events
        if event.get("ph") == "X" and "correlation" in event.get("args", {}) and _on_host(event) and event["ts"] < end
    }
    for event in events:
        if event["ph"] == "M":
            yield event
            continue
        step = _STEP.fullmatch(event.get("name", ""))
        correlation = event.get("args", {}).get("correlation")
        if step:
            kept = int(step[1]) <= last
        elif correlation is not None and not _on_host(event):
            kept = correlation in launched
        else:
            kept = event["ts"] < end
        if kept:
            yield event


def _on_host(event: Event) -> bool:
    return event.get("cat") in ("cuda_runtime", "cuda_driver", "cpu_op", "python_function", "user_annotation")


def _trimmed(event: Event, known: set[str]) -> Event:
    fields = {name: event[name] for name in ("ph", "cat", "name", "ts", "dur", "pid", "tid") if name in event}
    if event.get("ph") == "M":
        return {**fields, "args": event.get("args", {})}
    arguments = {name: value for name, value in event.get("args", {}).items() if name in known}
    return {**fields, "args": arguments} if arguments else fields
