"""From the bytes of a trace file to its events, some 100 kB at a time."""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from perfdoctor.errors import PerfDoctorError
from perfdoctor.traces.events import ExactEvent, TraceEvent


class TraceDocument(msgspec.Struct, gc=False):
    """A trace file whose root is an object. What stands beside the events may be of any type."""

    events: list[TraceEvent] = msgspec.field(name="traceEvents", default_factory=list)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base_ns: Any = msgspec.field(name="baseTimeNanoseconds", default=None)
    schema: Any = msgspec.field(name="schemaVersion", default=None)
    host: Any = msgspec.field(name="host_name", default=None)


class _ExactDocument(TraceDocument, gc=False):
    """The same, of events as today's profiler writes them."""

    events: list[ExactEvent] = msgspec.field(name="traceEvents", default_factory=list)


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

_EVENT = msgspec.json.Decoder(TraceEvent)
_EVENTS = msgspec.json.Decoder(list[TraceEvent])
_EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent])
_DOCUMENT = msgspec.json.Decoder(TraceDocument)
_EXACT_DOCUMENT = msgspec.json.Decoder(_ExactDocument)
_MISSES = 2  # so many more pieces than others had an event that is not exact: then this is no longer tried
_DAMAGED_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Pieces:
    """Iterates over the events of a trace, some 100 kB of text at a time.

    Those of a piece are all of their categories' types, or all ``TraceEvent``.

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
        self._missed = 0

    def __iter__(self) -> Iterator[list[Any]]:
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
        opening = self._search(_LIST_ROOT if self._is_list else _ARRAY)
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

    def _search(self, pattern: re.Pattern[bytes]) -> tuple[int, int] | None:
        """Start and end of the first match, reading on as far as needed."""
        start = 0
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

    def _read_tail(self, rest: bytes) -> list[Any]:
        """The last events, and what stands behind them."""
        try:
            if self._is_list:
                events: list[Any] = self._exact(_EXACT_EVENTS, _EVENTS, b"[" + rest)
                self.ended = True
                return events
            tail = self._exact(_EXACT_DOCUMENT, _DOCUMENT, b'{"traceEvents":[' + rest)
        except _DAMAGED_JSON:
            return self._decode_singly(rest)
        self.ended = True
        for name in ("devices", "distributed", "base_ns", "schema", "host"):
            if (value := getattr(tail, name)) is not None:
                setattr(self.document, name, value)
        found: list[Any] = tail.events
        return found

    def _exact(self, exact: msgspec.json.Decoder[Any], loose: msgspec.json.Decoder[Any], text: bytes) -> Any:
        """What one decoder reads, or where there is anything unusual, the other one."""
        if self._missed <= _MISSES:
            try:
                decoded = exact.decode(text)
            except _DAMAGED_JSON:
                self._missed += 1
            else:
                self._missed -= 1
                return decoded
        return loose.decode(text)

    def _decode(self, text: bytes) -> list[Any]:
        """The events of a list."""
        try:
            found: list[Any] = self._exact(_EXACT_EVENTS, _EVENTS, text)
            return found
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
