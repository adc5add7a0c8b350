"""The bytes of a trace file, unpacked some at a time, as many of them as there are."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from perfdoctor.errors import PerfDoctorError

try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")  # unpacks three times as fast as zlib
except ImportError:  # not built for this machine
    isal_zlib = zlib

_DAMAGED: tuple[type[Exception], ...] = (zlib.error, isal_zlib.error)
_GZIP = b"\x1f\x8b"
_PACKED_PIECE = 1 << 14
# Gzip packs traces 10 to 30 times; without a limit one packed piece could become a thousand times as large.
_PIECE = 1 << 17
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
                yield from self._unpack(file) if packed else iter(lambda: file.read(_PIECE), b"")
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
                while packed or len(piece) == _PIECE:  # a full piece: there may be more of it
                    piece = unpacker.decompress(packed, _PIECE)
                    self._unpacked += len(piece)
                    yield piece
                    packed = unpacker.unconsumed_tail
                    if unpacker.eof:
                        packed, piece = unpacker.unused_data, b""
                        if not packed.startswith(_GZIP):
                            break
                        unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        except _DAMAGED as error:
            self.missing = f"The packed file is damaged after {self._unpacked} unpacked bytes ({error})."
            return
        if not unpacker.eof:
            self.missing = f"The packed file is cut short after {self._unpacked} unpacked bytes."
