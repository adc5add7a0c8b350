"""The folder of a watch for days: its history, its recordings, and what is removed so that it does not grow."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.monitor.history import NAME, History
from perfdoctor.results.history import Incident

_LOCK = "lock"
_INCIDENT = "incident-"
_NUMBERED = re.compile(r"(?:window|counts|incident)-(\d{6})\.")


class Folder:
    """A folder in which one perfdoctor at a time keeps what it sees of a job.

    Args:
        path: the folder.
        keep_bytes: how large recordings and reports in it may be together.

    Attributes:
        history: what is kept for good.
    """

    def __init__(self, path: Path, keep_bytes: int) -> None:
        self.path, self._keep_bytes = path, keep_bytes
        self.history = History(path)
        self._number = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder where it is not there, and keeps others out of it.

        Raises:
            PerfDoctorError: it cannot be made or written, or another perfdoctor watches into it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PerfDoctorError(
                f"The folder {self.path} cannot be written: {error.strerror}.",
                hint="Choose another one: perfdoctor monitor PID --into FOLDER",
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise PerfDoctorError(
                f"Another perfdoctor keeps its history in {self.path} just now.",
                hint=f"Look at it: perfdoctor monitor --history {shlex.quote(str(self.path))}",
            ) from None
        try:
            numbers = [int(found[1]) for name in os.listdir(self.path) if (found := _NUMBERED.match(name))]
            self._number = max(numbers, default=0)
            yield
        finally:
            os.close(file)

    def next(self, kind: str) -> Path:
        """The file of the next recording: a ``window``, or the ``counts`` of all that was read at a low rate."""
        self._number += 1
        return self.path / f"{kind}-{self._number:06}.perfdoctor"

    def counts(self) -> Path | None:
        """The newest recording of that kind; None where there is none."""
        return max(self.path.glob("counts-*.perfdoctor"), default=None)

    def report_of(self, incident: Incident) -> Path:
        """The page on which the recordings of an incident are compared."""
        return self.path / f"{_INCIDENT}{incident.number:06}.html"

    def tidy(self, shown: Collection[str], written: Collection[Path]) -> None:
        """Removes the oldest recordings with their reports until the rest fits.

        Args:
            shown: names of recordings that show what happened: they go last.
            written: those that are being written, which stay.
        """
        sizes: dict[str, int] = {}
        for entry in os.scandir(self.path):
            if (numbered := _NUMBERED.match(entry.name)) and entry.is_file():
                stem = entry.name[: numbered.end() - 1]
                sizes[stem] = sizes.get(stem, 0) + entry.stat().st_size
        stay = {path.stem for path in written}
        kept = {Path(name).stem for name in shown}
        total = sum(sizes.values())
        last = {stem for stem in sizes if stem in kept or stem.startswith(_INCIDENT)}
        for stem in sorted(sizes.keys() - stay, key=lambda stem: (stem in last, stem[-6:])):
            if total <= self._keep_bytes:
                return
            total -= sizes[stem]
            for path in self.path.glob(f"{stem}.*"):
                path.unlink(missing_ok=True)

    def require_history(self) -> None:
        """Makes sure that there is a history.

        Raises:
            PerfDoctorError: there is none.
        """
        if not (self.path / NAME).is_file():
            raise PerfDoctorError(
                f"There is no history in {self.path}.", hint="Watch a job first: perfdoctor monitor PID --into FOLDER"
            )
