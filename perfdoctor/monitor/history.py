"""The file of a history: a line of JSON for each thing that was seen, readable after a crash, and of bounded size.

A line is written at once, by name: a file that was moved away meanwhile, as programs that rotate logs do, is begun
anew. What a killed perfdoctor left half written is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from perfdoctor.errors import PerfDoctorError
from perfdoctor.results.history import Beat, Line, Window

NAME = "history.jsonl"
# A day of beats and windows takes 0.8 MB.
_MOST_BYTES = 16 * 1024 * 1024

_decode = msgspec.json.Decoder(Line).decode


class History:
    """The history in a folder.

    Args:
        folder: where it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def add(self, line: Line) -> None:
        """Writes a line.

        Raises:
            OSError: it cannot be written.
        """
        data = msgspec.json.encode(line) + b"\n"
        with self.path.open("ab") as file:
            if file.tell() and not _ends_line(self.path):
                data = b"\n" + data  # behind what was left half written
            size = file.tell() + len(data)
            os.write(file.fileno(), data)
        if size > _MOST_BYTES:
            self._shorten()

    def lines(self) -> Iterator[Line]:
        """What is in it, in the order in which it was written; nothing if there is no file yet.

        Raises:
            PerfDoctorError: it cannot be read.
        """
        return (line for line, _ in read(self.path))

    def _shorten(self) -> None:
        """Forgets the older half of the beats and windows; what happened stays."""
        kept = list(self.lines())
        middle = len(kept) // 2
        scratch = self.path.with_suffix(".part")
        with scratch.open("wb") as file:
            for number, line in enumerate(kept):
                if number >= middle or not isinstance(line, Beat | Window):
                    file.write(msgspec.json.encode(line) + b"\n")
        scratch.replace(self.path)


def read(path: Path, begin: int = 0) -> Iterator[tuple[Line, int]]:
    """The lines of a history's file, each with where the next one begins; nothing if there is no file.

    Args:
        path: the file.
        begin: where to.

    Raises:
        PerfDoctorError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(begin)
            for line in file:
                begin += len(line)
                if line.endswith(b"\n"):  # else it is being written, or was cut by a kill
                    with suppress(msgspec.DecodeError):
                        yield _decode(line), begin
    except FileNotFoundError:
        return
    except OSError as error:
        raise PerfDoctorError(f"{path} cannot be read: {error.strerror}.", hint="Read it as its owner.") from None


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
