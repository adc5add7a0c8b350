"""A trace's text, decoded piece by piece, so that events never fill the memory and a damaged one costs only itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from perfdoctor.traces.events import Document, Event

# A piece's events as objects take about as much memory as its text.
PIECE = 4 << 20
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Where one event ends and the next begins. Inside an event an object is followed by a key, not by an object, and in
# a text the quote would be escaped.
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*")')
_LIST_ROOT = re.compile(rb"\s*\[")

_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)
_DOCUMENT = msgspec.json.Decoder(Document)


class Pieces:
    """Iterates over the events of a trace, some megabytes at a time.

    Attributes:
        document: what stands beside the events; complete when the iteration has ended.
        damaged: events, or runs of text in the place of events, that could not be decoded.
    """

    def __init__(self, text: bytearray) -> None:
        self.document = Document()
        self.damaged = 0
        self._text = text
        self._is_list = _LIST_ROOT.match(text) is not None

    @property
    def is_trace(self) -> bool:
        """Whether the text looks like a trace at all: a list, or an object with ``traceEvents``."""
        return self._is_list or _ARRAY.search(self._text) is not None

    def __iter__(self) -> Iterator[list[Event]]:
        opening = (_LIST_ROOT if self._is_list else _ARRAY).search(self._text)
        if opening is None:
            return
        if not self._is_list:
            self._read_head(opening.end())
        position = opening.end()
        while (border := _BORDER.search(self._text, position + PIECE)) is not None:
            yield self._decode(position, border.start() + 1)
            position = border.end()
        yield self._read_tail(position)
        self._text = bytearray()

    def _read_head(self, end: int) -> None:
        try:
            self.document = _DOCUMENT.decode(bytes(self._text[:end]) + b"]}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.damaged += 1

    def _read_tail(self, start: int) -> list[Event]:
        """The last events, and what stands behind them."""
        rest = bytes(memoryview(self._text)[start:])
        try:
            if self._is_list:
                return _EVENTS.decode(b"[" + rest)
            tail = _DOCUMENT.decode(b'{"traceEvents":[' + rest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_singly(rest)
        for name in ("devices", "distributed", "base_ns", "schema", "host"):
            if (value := getattr(tail, name)) is not None:
                setattr(self.document, name, value)
        return tail.events

    def _decode(self, start: int, end: int) -> list[Event]:
        text = b"".join((b"[", memoryview(self._text)[start:end], b"]"))
        try:
            return _EVENTS.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_singly(text[1:-1])

    def _decode_singly(self, text: bytes) -> list[Event]:
        """The events of a damaged piece that are sound."""
        found: list[Event] = []
        position = 0
        while position < len(text):
            border = _BORDER.search(text, position)
            end = len(text) if border is None else border.start() + 1
            try:
                found.append(_EVENT.decode(text[position:end]))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._take_last(text[position:end], found)
            position = len(text) if border is None else border.end()
        return found

    def _take_last(self, text: bytes, found: list[Event]) -> None:
        """The last event of a list is followed by the list's end, and perhaps by what stands behind it."""
        end = re.search(rb"\}\s*\]", text)
        while end is not None:
            try:
                found.append(_EVENT.decode(text[: end.start() + 1]))
                return
            except (msgspec.DecodeError, UnicodeDecodeError):
                end = re.compile(rb"\}\s*\]").search(text, end.start() + 1)
        self.damaged += bool(text.strip(b" \r\n\t]}"))
