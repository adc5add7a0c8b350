"""Another process's memory and its map, read without stopping it."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Mapping(NamedTuple):
    """One line of /proc/PID/maps.

    Attributes:
        offset: where in the file the mapping begins.
        path: file name, ``[heap]``, ``[vdso]`` … or "" for anonymous memory; ``(deleted)`` removed.
    """

    start: int
    end: int
    offset: int
    shared: bool
    path: str

    @property
    def is_file(self) -> bool:
        """Backed by a file rather than by anonymous memory."""
        return self.path.startswith("/")


def mappings(process: Path, *, only_code: bool = False, only_images: bool = False) -> Iterator[Mapping]:
    """What is mapped in a process. Each thread has two mappings: those that are not asked for are passed over quickly.

    Args:
        process: its directory in /proc.
        only_code: leave out what is not executable: of a process that uses torch most is not.
        only_images: leave out all but the beginnings of files.

    Raises:
        OSError: the process is gone or may not be looked at.
    """
    with (process / "maps").open("rb") as file:
        for line in file:
            if only_code and b"x" not in line.split(None, 2)[1]:
                continue
            if only_images and (b" 00000000 " not in line or b"/" not in line):
                continue
            span, access, offset, _, _, *path = line.split(None, 5)
            start, _, end = span.partition(b"-")
            name = os.fsdecode(path[0].rstrip(b"\n")).removesuffix(" (deleted)") if path else ""
            yield Mapping(int(start, 16), int(end, 16), int(offset, 16), access[3:4] == b"s", name)


def images(process: Path) -> dict[str, Mapping]:
    """Where files begin that are mapped in a process, by path.

    Raises:
        OSError: the process is gone or may not be looked at.
    """
    found: dict[str, Mapping] = {}
    for mapping in mappings(process, only_images=True):
        if mapping.is_file and mapping.offset == 0:
            found.setdefault(mapping.path, mapping)
    return found


def image_path(process: Path, mapping: Mapping) -> Path:
    """Where we can open a mapped file, even if the process has another root directory (a container).

    That is what is mapped itself, where we may (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, see proc_pid_map_files(5)),
    even if it was replaced or deleted since; and else what has its name now.
    """
    exact = process / f"map_files/{mapping.start:x}-{mapping.end:x}"
    return exact if os.path.exists(exact) else process / "root" / mapping.path.lstrip("/")


class Memory:
    """Reads a process's memory. It keeps referring to the program image that it was opened on: after exec
    or exit it reads nothing.

    Args:
        process: its directory in /proc.

    Raises:
        OSError: the process is gone, or may not be looked at (PTRACE_MODE_ATTACH_FSCREDS, see ptrace(2)).
    """

    def __init__(self, process: Path) -> None:
        self._file = os.open(process / "mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Stops reading."""
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer, or none, where memory is not mapped (any more)."""
        try:
            return os.pread(self._file, size, address)
        except (OSError, OverflowError):  # not mapped, or no address at all (a wild pointer beyond 2**63)
            return b""

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Up to ``count`` 64-bit words."""
        data = self.read(address, 8 * count)
        return struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])

    def word(self, address: int) -> int | None:
        """One 64-bit word, None if it cannot be read."""
        words = self.words(address, 1)
        return words[0] if words else None

    def number(self, address: int) -> int | None:
        """One signed 32-bit number, None if it cannot be read."""
        data = self.read(address, 4)
        return int.from_bytes(data, "little", signed=True) if len(data) == 4 else None
