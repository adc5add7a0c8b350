"""The bytes of a trace file, unpacked, as many of them as there are."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfDoctorError

try:
    isal_zlib: Any = importlib.import_module("isal.isal_zlib")  # unpacks three times as fast as zlib
except ImportError:  # not built for this machine
    isal_zlib = zlib

_DAMAGED: tuple[type[Exception], ...] = (zlib.error, isal_zlib.error)
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
_GZIP_WINDOW = 31  # zlib's number for a gzip header and the largest window


def read_bytes(path: Path) -> tuple[bytearray, str]:
    """Reads a file, unpacking gzip.

    Returns:
        The bytes, and a sentence about what is missing ("" if nothing is).

    Raises:
        PerfDoctorError: the file cannot be read at all.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            return _unpack(file) if packed else (bytearray(file.read()), "")
    except OSError as error:
        raise PerfDoctorError(
            f"{path} cannot be read: {error.strerror or error}.", hint="Check the path, and the right to read it."
        ) from None


def _unpack(file: Any) -> tuple[bytearray, str]:
    data = bytearray()
    unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    try:
        while piece := file.read(_PIECE):
            while piece:
                data += unpacker.decompress(piece)
                piece = unpacker.unused_data if unpacker.eof else b""
                if not piece.startswith(_GZIP):
                    break
                unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    except _DAMAGED as error:
        return data, f"The packed file is damaged after {len(data)} unpacked bytes ({error})."
    if not unpacker.eof:
        return data, f"The packed file is cut short after {len(data)} unpacked bytes."
    return data, ""
