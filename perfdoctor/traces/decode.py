"""From the bytes of a trace file to its events, some 100 kB at a time: which fields are read, and what each is."""

from __future__ import annotations

import importlib
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfdoctor.errors import PerfDoctorError
from perfdoctor.traces.model import UNKNOWN, CollectiveMessage, DeviceKind, HostKind

# What fits a column of int64, with room for sums.
Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
# Kineto writes numbers; its predecessors and other vendors' plugins write some of them as text.
Loose = Whole | float | str | None


class EventArguments(msgspec.Struct, gc=False, frozen=True):
    """An event's ``args``."""

    correlation: Loose = None
    device: Loose = None
    stream: Loose = None
    grid: tuple[Whole, ...] | None = None
    block: msgspec.Raw = msgspec.Raw()  # as it stands in the file: it only distinguishes kernels
    collective: str | None = msgspec.field(name="Collective name", default=None)
    sequence: Loose = msgspec.field(name="Seq", default=None)
    group: Loose = msgspec.field(name="Process Group Name", default=None)
    group_size: Loose = msgspec.field(name="Group size", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sender: Loose = msgspec.field(name="Src Rank", default=None)
    receiver: Loose = msgspec.field(name="Dst Rank", default=None)
    elements_in: Loose = msgspec.field(name="In msg nelems", default=None)
    elements_out: Loose = msgspec.field(name="Out msg nelems", default=None)
    dtype: Loose = None
    reserved: Loose = msgspec.field(name="Total Reserved", default=None)
    reserved_on: Loose = msgspec.field(name="Device Id", default=None)
    # As they stand in the file, because few of them are ever looked at.
    stack: msgspec.Raw = msgspec.field(name="Call stack", default=msgspec.Raw())
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


NO_ARGUMENTS = EventArguments()


class TraceEvent(msgspec.Struct, gc=False, frozen=True):
    """One event."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    ts: float | None = None
    dur: float | None = None
    pid: Loose = None
    tid: Loose = None
    args: EventArguments = NO_ARGUMENTS


class TraceDocument(msgspec.Struct, gc=False):
    """A trace file whose root is an object. What stands beside the events may be of any type."""

    events: list[TraceEvent] = msgspec.field(name="traceEvents", default_factory=list)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    schema: Any = msgspec.field(name="schemaVersion", default=None)
    host: Any = msgspec.field(name="host_name", default=None)


def whole_numbers(values: Iterable[Loose], count: int) -> npt.NDArray[np.int64]:
    """Whole numbers, also those written as text; ``UNKNOWN`` for the rest."""
    listed = list(values)
    try:
        return np.fromiter(listed, dtype=np.int64, count=count)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(whole_number, listed), dtype=np.int64, count=count)


def whole_number(value: Loose) -> int:
    """One of them."""
    if isinstance(value, str):
        try:
            number = int(value, 0)
        except ValueError:
            return UNKNOWN
        return number if abs(number) < 2**62 else UNKNOWN
    if value is None or not -(2.0**62) < value < 2.0**62:
        return UNKNOWN
    return int(value)


def product(sizes: tuple[int, ...] | None) -> int:
    """Of the sides of a grid; ``UNKNOWN`` without any, or where it is out of all measure."""
    if not sizes:
        return UNKNOWN
    found = math.prod(sizes)
    return found if 0 <= found < 2**62 else UNKNOWN


def message(arguments: EventArguments) -> CollectiveMessage:
    """What a collective carried."""
    sends = (arguments.collective or "").startswith("send")
    return CollectiveMessage(
        name=arguments.collective or "",
        sequence=whole_number(arguments.sequence),
        group="" if arguments.group is None else str(arguments.group),
        group_size=whole_number(arguments.group_size),
        elements=max(whole_number(arguments.elements_in), whole_number(arguments.elements_out)),
        dtype="" if arguments.dtype is None else str(arguments.dtype),
        members="" if arguments.group_ranks is None else str(arguments.group_ranks),
        peer=whole_number(arguments.receiver if sends else arguments.sender),
    )


# Categories in lower case, from Kineto 2020 (Operator, Kernel, Memcpy) to today.
DEVICE_CATEGORIES = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
    "memset": DeviceKind.SET,
}
HOST_CATEGORIES = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
}
# ``cuda_`` on AMD's GPUs too; ``xpu_runtime`` and ``privateuse1_runtime`` elsewhere.
CALL_CATEGORIES = frozenset(
    ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "xpu_runtime", "xpu_driver", "glow_runtime")
)
# Neither work nor waiting: spans of the profiler itself, and copies of host annotations on a device's lane.
IGNORED = frozenset(("trace", "overhead", "gpu_user_annotation", "cuda_profiler_range", "cuda_sync", "ac2g", "fwdbwd"))
# Phases of the trace event format that carry no duration: metadata, instants, counters, flows, asynchronous spans,
# samples, objects, marks, memory dumps, clock and context events.
NO_DURATION = frozenset("MIiCstfbneSTFPNODRVvc(),")


class TargetTable(IntEnum):
    """Where a row goes, in the order in which the rows of a piece are laid out."""

    HOST = 0
    CALLS = 1
    DEVICE = 2


RowKind = tuple[TargetTable, int]
KINDS: dict[str, RowKind] = {
    **{category: (TargetTable.HOST, kind) for category, kind in HOST_CATEGORIES.items()},
    **dict.fromkeys(CALL_CATEGORIES, (TargetTable.CALLS, 0)),
    **{category: (TargetTable.DEVICE, kind) for category, kind in DEVICE_CATEGORIES.items()},
}


# A piece with its events as objects should fit into a processor's cache: a megabyte takes twice as long here.
PIECE = 1 << 18
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Where one event ends and the next begins. Inside an event an object is followed by a key, not by an object, and in
# a text the quote would be escaped.
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*")')
_LIST_ROOT = re.compile(rb"\s*\[")
_LIST_END = re.compile(rb"\}\s*\]")
# A pattern that is searched for lies in less than this, so that a search can go on where more text is added.
_OVERLAP = 1 << 10
# The last border of a piece is looked for this near its end first, so that little is carried over to the next.
_NEAR_END = 1 << 12

_EVENTS = msgspec.json.Decoder(list[TraceEvent])
_EVENT = msgspec.json.Decoder(TraceEvent)
_DOCUMENT = msgspec.json.Decoder(TraceDocument)
_DAMAGED_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Pieces:
    """Iterates over the events of a trace, some 100 kB of text at a time.

    Attributes:
        document: what stands beside the events; complete when the iteration has ended.
        damaged: events, or runs of text in the place of events, that could not be decoded.
        is_trace: whether the text is that of a trace at all: a list, or an object with ``traceEvents``.
        ended: whether the end of the list of events was there.
        beginning: the text before the events; all of it if it holds none.
    """

    def __init__(self, text: Iterable[bytes]) -> None:
        self.document = TraceDocument()
        self.damaged = 0
        self.is_trace = False
        self.ended = False
        self.beginning = b""
        self._incoming = iter(text)
        self._text = bytearray()
        self._is_list = False

    def __iter__(self) -> Iterator[list[TraceEvent]]:
        if not self._open():
            return
        parts = [bytes(self._text)]
        self._text.clear()
        for piece in self._incoming:
            if sum(map(len, parts)) + len(piece) < PIECE or (border := _find_border(piece)) is None:
                parts.append(piece)
                continue
            brace, end = border
            yield self._decode(b"".join((b"[", *parts, memoryview(piece)[: brace + 1], b"]")))
            parts = [piece[end:]]
        yield self._read_tail(b"".join(parts))

    def _open(self) -> bool:
        """Reads up to the first event; False if there is no list of events."""
        self._read_more()
        self._is_list = _LIST_ROOT.match(self._text) is not None
        opening = self._search(_LIST_ROOT if self._is_list else _ARRAY, 0)
        self.is_trace = opening is not None
        end = len(self._text) if opening is None else opening[1]
        self.beginning = bytes(self._text[:end])
        if self.is_trace and not self._is_list:
            self._read_head()
        del self._text[:end]
        return self.is_trace

    def _read_more(self) -> bool:
        """Adds to the text; False at the file's end."""
        for piece in self._incoming:
            if piece:
                self._text += piece
                return True
        return False

    def _search(self, pattern: re.Pattern[bytes], start: int) -> tuple[int, int] | None:
        """Start and end of the first match from a place on, reading on as far as needed."""
        while True:
            if (found := pattern.search(self._text, start)) is not None:
                return found.span()
            start = max(start, len(self._text) - _OVERLAP)
            if not self._read_more():
                return None

    def _read_head(self) -> None:
        try:
            self.document = _DOCUMENT.decode(self.beginning + b"]}")
        except _DAMAGED_JSON:
            self.damaged += 1

    def _read_tail(self, rest: bytes) -> list[TraceEvent]:
        """The last events, and what stands behind them."""
        try:
            if self._is_list:
                events = _EVENTS.decode(b"[" + rest)
                self.ended = True
                return events
            tail = _DOCUMENT.decode(b'{"traceEvents":[' + rest)
        except _DAMAGED_JSON:
            return self._decode_singly(rest)
        self.ended = True
        for name in ("devices", "distributed", "base_ns", "schema", "host"):
            if (value := getattr(tail, name)) is not None:
                setattr(self.document, name, value)
        return tail.events

    def _decode(self, text: bytes) -> list[TraceEvent]:
        """The events of a list."""
        try:
            return _EVENTS.decode(text)
        except _DAMAGED_JSON:
            return self._decode_singly(text[1:-1])

    def _decode_singly(self, text: bytes) -> list[TraceEvent]:
        """The events of a damaged piece that are sound."""
        found: list[TraceEvent] = []
        position = 0
        while position < len(text):
            border = _BORDER.search(text, position)
            end = len(text) if border is None else border.start() + 1
            try:
                found.append(_EVENT.decode(text[position:end]))
            except _DAMAGED_JSON:
                self._take_last(text[position:end], found)
            position = len(text) if border is None else border.end()
        return found

    def _take_last(self, text: bytes, found: list[TraceEvent]) -> None:
        """The last event of a list is followed by the list's end, and perhaps by what stands behind it."""
        end = _LIST_END.search(text)
        self.ended |= end is not None or text.strip(b" \r\n\t}") == b"]"
        while end is not None:
            try:
                found.append(_EVENT.decode(text[: end.start() + 1]))
            except _DAMAGED_JSON:
                end = _LIST_END.search(text, end.start() + 1)
            else:
                self.damaged += bool(text[end.end() :].strip(b" \r\n\t}"))
                return
        self.damaged += bool(text.strip(b" \r\n\t]}"))


def _find_border(piece: bytes) -> tuple[int, int] | None:
    """Start and end of a border in a piece, near its end if there is one."""
    found = _BORDER.search(piece, max(0, len(piece) - _NEAR_END)) or _BORDER.search(piece)
    return None if found is None else found.span()


try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")  # unpacks three times as fast as zlib
except ImportError:  # not built for this machine
    isal_zlib = zlib

_DAMAGED_GZIP: tuple[type[Exception], ...] = (zlib.error, isal_zlib.error)
_GZIP = b"\x1f\x8b"
_PACKED_PIECE = 1 << 14  # bytes that are read at a time
# Gzip packs traces 10 to 30 times; without a limit one packed piece could become a thousand times as large.
UNPACKED_PIECE = 1 << 17
_GZIP_WINDOW = 31  # zlib's number for a gzip header and the largest window


class TraceFile:
    """Iterates over a file's bytes, unpacked where it is gzip.

    Attributes:
        missing: a sentence about what could not be unpacked, "" if nothing is missing; complete when the iteration has
            ended.
    """

    def __init__(self, path: Path) -> None:
        self.missing = ""
        self._path = path
        self._unpacked = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yields pieces of some 100 kB.

        Raises:
            PerfDoctorError: the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                packed = file.read(2) == _GZIP
                file.seek(0)
                yield from self._unpack(file) if packed else iter(lambda: file.read(UNPACKED_PIECE), b"")
        except OSError as error:
            raise PerfDoctorError(
                f"{self._path} cannot be read: {error.strerror or error}.",
                hint="Check the path, and the right to read it.",
            ) from None

    def _unpack(self, file: IO[bytes]) -> Iterator[bytes]:
        unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            while packed := file.read(_PACKED_PIECE):
                piece = b""
                while packed or len(piece) == UNPACKED_PIECE:  # a full piece: there may be more of it
                    piece = unpacker.decompress(packed, UNPACKED_PIECE)
                    self._unpacked += len(piece)
                    yield piece
                    packed = unpacker.unconsumed_tail
                    if unpacker.eof:
                        packed, piece = unpacker.unused_data, b""
                        if not packed.startswith(_GZIP):
                            break
                        unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        except _DAMAGED_GZIP as error:
            self.missing = f"The packed file is damaged after {self._unpacked} unpacked bytes ({error})."
            return
        if not unpacker.eof:
            self.missing = f"The packed file is cut short after {self._unpacked} unpacked bytes."
