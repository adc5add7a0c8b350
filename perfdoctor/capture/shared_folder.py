"""A folder in which a process of the job and perfdoctor meet; the process may have another root (a container)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perfdoctor.probes.readers.permissions import owner_of

# Where it may be, in the order of preference, as the process sees it.
PLACES = ("/tmp", "/var/tmp", "/dev/shm")
# Two traces, and a JSON file while it is being written.
ROOM_BYTES = 256 << 20


class NoRoomError(Exception):
    """There is no folder that both can use. The message is one sentence."""


class SharedFolder:
    """A new folder that belongs to the process's user, and nobody else can look into.

    Args:
        pid: the process.
        places: where it may be.

    Attributes:
        path: for us; it holds on after the process has ended.
        inner: as the process sees it.

    Raises:
        NoRoomError: there is no place for it.
        OSError: the process is gone.
    """

    def __init__(self, pid: int, places: Sequence[str] = PLACES) -> None:
        self._owner = owner_of(pid)
        self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.path, self.inner = _make(Path(f"/proc/self/fd/{self._root}"), places)
            self.share(self.path)
        except BaseException:
            os.close(self._root)
            raise

    def share(self, path: Path) -> None:
        """Gives a file in it to the process's user."""
        if self._owner != os.geteuid():
            os.chown(path, self._owner, -1)

    def write(self, name: str, text: str) -> None:
        """Puts a file into it, which is complete as soon as it is there."""
        partial = self.path / f"{name}.part"
        partial.write_text(text)
        self.share(partial)
        partial.rename(self.path / name)

    def remove(self) -> None:
        """Removes it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Lets go of it; it stays."""
        os.close(self._root)


def _make(root: Path, places: Sequence[str]) -> tuple[Path, str]:
    """A new folder, as we see it and as the process does."""
    why = ""
    for place in places:
        try:
            free = os.statvfs(root / place[1:])
            if free.f_bavail * free.f_frsize < ROOM_BYTES:
                why = why or f"{place} is full"
                continue
            folder = Path(tempfile.mkdtemp(prefix="perfdoctor-trace-", dir=root / place[1:]))
        except OSError as error:
            why = why or f"{place}: {error.strerror}"
            continue
        return folder, f"{place}/{folder.name}"
    raise NoRoomError(f"There is no folder for the trace ({why}).")
