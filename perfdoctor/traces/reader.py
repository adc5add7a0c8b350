"""Reads a profiler trace: a file of any age and vendor, whole or damaged, into columns."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.recording.file_format import is_recording
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.traces.columns import Columns
from perfdoctor.traces.decode import Pieces, TraceDocument, TraceFile
from perfdoctor.traces.mangling import readable
from perfdoctor.traces.model import DeviceProperties, Inputs, Trace

# Times below this many microseconds count from the machine's start, those above from 1970 (1e14 us is 1973).
_EPOCH_US = 1e14
HOW_TO_RECORD = (
    "Record one with torch.profiler.profile(...) and prof.export_chrome_trace('trace.json.gz'), "
    "or with tensorboard_trace_handler."
)


class NoTraceError(PerfDoctorError):
    """A file is no profiler trace.

    Args:
        message: that of the error.
        instead: what the file seems to be, as a sentence goes on after a colon.
    """

    def __init__(self, message: str, *, instead: str = "") -> None:
        super().__init__(message, hint=HOW_TO_RECORD)
        self.instead = instead


def read_trace(path: Path) -> Trace:
    """Reads one file.

    Raises:
        PerfDoctorError: it cannot be read, or holds no trace.
    """
    file = TraceFile(path)
    pieces = Pieces(file)
    columns = Columns()
    with gc_paused():
        for events in pieces:
            columns.add(events)
            del events  # before the next piece is decoded, which then takes the same memory, while the cache holds it
    if is_recording(pieces.beginning):
        raise PerfDoctorError(
            f"{path} is a recording of perfdoctor, not a profiler trace.",
            hint=say("moves.read_recording", path=shlex.quote(str(path))),
        )
    if not pieces.is_trace:
        instead = _what_instead(pieces.beginning)
        raise NoTraceError(f"{path} is not a profiler trace: {instead}.", instead=instead)
    if columns.events == 0:
        raise PerfDoctorError(f"{path} holds no event that can be read.", hint=HOW_TO_RECORD)
    notes = [file.missing] if file.missing else []
    if not pieces.ended and not file.missing:
        notes.append("The file is cut short: the end of its list of events is missing.")
    return _trace(path, columns, pieces, notes)


def _trace(path: Path, columns: Columns, pieces: Pieces, notes: list[str]) -> Trace:
    device, host, calls, messages, origin = columns.finish()
    stacks, inputs = tuple(map(_text, columns.stacks)), tuple(_inputs(*raw) for raw in columns.inputs)
    if lost := stacks.count("") + inputs.count(_NOTHING):
        notes = [*notes, f"{lost} stacks or shapes of operators could not be read."]
    document = pieces.document
    distributed = document.distributed if isinstance(document.distributed, dict) else {}
    return Trace(
        source=path.name,
        names=tuple(map(readable, columns.names)),
        threads=tuple((str(process), str(thread)) for process, thread in columns.threads),
        device=device,
        host=host,
        calls=calls,
        stacks=stacks,
        inputs=inputs,
        messages=messages,
        devices=_devices(document.devices),
        reserved=dict(columns.reserved),
        unknown_categories=dict(columns.unknown_categories),
        rank=_count(distributed.get("rank")),
        world=_count(distributed.get("world_size")),
        host_name=document.host if isinstance(document.host, str) else "",
        origin_ns=_origin(origin, document),
        notes=(*notes, *_complaints(columns, pieces)),
        events=columns.events,
    )


_WRONG = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NOTHING = Inputs((), (), ())


def _text(raw: bytes) -> str:
    """A stack as text; empty where it is damaged."""
    try:
        return msgspec.json.decode(raw, type=str)
    except _WRONG:
        return ""


def _inputs(shapes: bytes, types: bytes, values: bytes) -> Inputs:
    """What an operator was called with; empty where it is not as expected (lists of tensors are nested deeper)."""
    try:
        return Inputs(
            msgspec.json.decode(shapes, type=tuple[tuple[int, ...], ...]),
            msgspec.json.decode(types, type=tuple[str, ...]) if types else (),
            msgspec.json.decode(values, type=tuple[str, ...]) if values else (),
        )
    except _WRONG:
        return _NOTHING


def _complaints(columns: Columns, pieces: Pieces) -> list[str]:
    found = []
    if pieces.damaged:
        found.append(
            f"{pieces.damaged} of {columns.events + pieces.damaged} events could not be decoded and are left out."
        )
    if columns.unreadable:
        found.append(f"{columns.unreadable} events lack a name, a time, a category or a known phase and are left out.")
    if columns.unlinked:
        found.append(f"{columns.unlinked} events of a GPU do not say which call launched them.")
    if columns.misplaced:
        found.append(f"{columns.misplaced} events lie more than a day away from the others and are left out.")
    if columns.unended:
        found.append(f"{columns.unended} ranges have no end and count as instants.")
    if columns.negative:
        found.append(f"{columns.negative} ranges end before they start and count as instants.")
    return found


def _origin(first_us: float, document: TraceDocument) -> int | None:
    base = document.base_ns if isinstance(document.base_ns, int) else 0
    if first_us < _EPOCH_US and not base:
        return None
    return base + round(first_us * 1000)


def _devices(listed: Any) -> dict[int, DeviceProperties]:
    found = {}
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, Mapping) or (index := _count(one.get("id"))) is None:
            continue
        major, minor = _count(one.get("computeMajor")), _count(one.get("computeMinor"))
        found[index] = DeviceProperties(
            index=index,
            name=str(one.get("name") or ""),
            multiprocessors=_count(one.get("numSms")),
            capability=None if major is None else major + (minor or 0) / 10,
            memory_bytes=_count(one.get("totalGlobalMem")),
        )
    return found


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None


def _what_instead(text: bytes) -> str:
    if not text.strip():
        return "it is empty"
    if text.startswith(b"SQLite format 3"):
        return "it is a SQLite file (Nsight Systems' exports are not read yet)"
    if text.lstrip().startswith((b"{", b"[")):
        return "it is JSON without traceEvents"
    if text.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    return "it is not JSON" if b"\0" not in text else "it is not text"
