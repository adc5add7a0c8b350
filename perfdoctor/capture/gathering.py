"""The place where the recordings of all hosts of a job come together: a folder that they share, or a URL.

A recording is made on its own host, and copied there when it is complete. Its name is taken before the watching begins,
by an empty file: so it shows at once if nothing can be written there, no host takes another one's name, and one that
died is known by the file that stayed empty.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.remote import errors, file_system, is_url, reason_of

SUFFIX = ".perfdoctor"
# While it is being copied; whoever looks for recordings passes it over.
_PARTIAL = ".part"


class Place(ABC):
    """Where one host's recording will lie.

    Args:
        address: the folder or URL.
        stem: how the file is to be called, without its suffix; a number is added where that is taken.

    Attributes:
        file: the whole path or URL.

    Raises:
        PerfDoctorError: nothing can be written there.
    """

    def __init__(self, address: str, stem: str) -> None:
        self.address = address
        try:
            self.file = self._take(stem)
        except errors() as error:
            raise PerfDoctorError(
                f"Nothing can be written to {address}: {reason_of(error)}.",
                hint="Name a folder or URL that every host can write to: --gather FOLDER|URL",
            ) from None

    def deliver(self, recording: Path) -> None:
        """Copies the recording there.

        Raises:
            PerfDoctorError: it cannot be; the recording stays where it is.
        """
        try:
            self._copy(recording)
        except errors() as error:
            raise PerfDoctorError(
                f"The recording could not be copied to {self.file}: {reason_of(error)}.",
                hint=f"It is kept on this host; make room, and copy it there: {recording}",
                recording=recording,
            ) from None

    def give_up(self) -> None:
        """Gives the name back, where nothing was recorded."""
        with suppress(*errors()):
            self._remove()

    @abstractmethod
    def _take(self, stem: str) -> str: ...

    @abstractmethod
    def _copy(self, recording: Path) -> None: ...

    @abstractmethod
    def _remove(self) -> None: ...


class _InFolder(Place):
    def _take(self, stem: str) -> str:
        folder = Path(self.address)
        folder.mkdir(parents=True, exist_ok=True)
        return str(next(folder / name for name in _names(stem) if _make(folder / name)))

    def _copy(self, recording: Path) -> None:
        partial = Path(self.file + _PARTIAL)
        try:
            shutil.copyfile(recording, partial)
            partial.replace(self.file)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def _remove(self) -> None:
        Path(self.file).unlink()


class _BehindUrl(Place):
    def _take(self, stem: str) -> str:
        self._files = file_system(self.address)
        folder = self.address.rstrip("/")
        url = next(url for name in _names(stem) if not self._files.exists(url := f"{folder}/{name}"))
        path = self._files._strip_protocol(url)
        try:
            self._files.pipe_file(path, b"")
        except FileNotFoundError:
            # Where folders are real ones they are made; a bucket is not.
            if not any(map(self._files.exists, self._above(path))):
                raise
            self._files.makedirs(self._files._parent(path), exist_ok=True)
            self._files.pipe_file(path, b"")
        return url

    def _above(self, path: str) -> Iterator[str]:
        """The folders above a path, without the uppermost."""
        while (parent := self._files._parent(path)) not in (path, "", "/"):
            yield parent
            path = parent

    def _copy(self, recording: Path) -> None:
        self._files.put_file(str(recording), self._files._strip_protocol(self.file))

    def _remove(self) -> None:
        self._files.rm_file(self._files._strip_protocol(self.file))


def take_place(address: str, host: str, ranks: Sequence[int]) -> Place:
    """Takes a name for this host's recording, by its first rank and the host's own name.

    Args:
        address: a folder, which is made if it is not there, or a URL.
        host: what this host is called.
        ranks: those that it has; none where they are not known.

    Raises:
        PerfDoctorError: nothing can be written there, or the URL needs a library that is missing.
    """
    own = re.sub(r"[^\w.-]+", "_", host) or "host"
    stem = f"rank{min(ranks):05d}-{own}" if ranks else own
    return _BehindUrl(address, stem) if is_url(address) else _InFolder(address, stem)


def _make(path: Path) -> bool:
    """Makes an empty file; False where there is one of that name."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _names(stem: str) -> Iterator[str]:
    yield stem + SUFFIX
    yield from (f"{stem}-{number}{SUFFIX}" for number in count(2))
