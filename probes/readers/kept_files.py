"""Small files of /proc that are read again and again: as many as there is room for stay open."""

import errno
import os
import resource

# Of the files that a process may have open, this part is taken; the rest is for others.
_PART = 0.5


class Room:
    """How many files may be kept open.

    Args:
        limit: so many; None for half of those that this process may have.

    Attributes:
        reads: how many files were read by those that this room was made for.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            limit = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _PART)
        self._left = limit
        self.reads = 0

    def open(self, path: str) -> int:
        """A file that is to be kept, or -1 if there is no room for it.

        Raises:
            OSError: it cannot be read.
        """
        if not self._left:
            return -1
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._left = 0
            return -1
        self._left -= 1
        return file

    def give_back(self, file: int) -> None:
        """Closes a file that was kept; none for -1."""
        if file >= 0:
            os.close(file)
            self._left += 1


class KeptFile:
    """One file, kept open from its first reading on if there is room: to read it again then costs half.

    Args:
        path: of the file.
        room: for files that are kept open.
    """

    __slots__ = ("_file", "_path", "_room")

    def __init__(self, path: str, room: Room) -> None:
        self._path, self._room = path, room
        self._file = -1

    def read(self, size: int) -> bytes:
        """Its first bytes.

        Raises:
            OSError: it cannot be read (any more).
        """
        self._room.reads += 1
        if self._file < 0:
            self._file = self._room.open(self._path)
        if self._file >= 0:
            return os.pread(self._file, size, 0)
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, size, 0)
        finally:
            os.close(file)

    def close(self) -> None:
        """Gives its place to others; it may be read again."""
        self._room.give_back(self._file)
        self._file = -1
