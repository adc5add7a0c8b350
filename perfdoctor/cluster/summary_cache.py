"""Summaries of files that were read before, in one SQLite file: an interrupted analysis goes on where it was."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from perfdoctor import __version__
from perfdoctor.cluster.files import File
from perfdoctor.errors import PerfDoctorError

# Raised whenever what is kept changes between two releases.
_FORM = 4
_DAYS = 7.0  # without being used
_TABLE = """
    CREATE TABLE IF NOT EXISTS summaries (
        address TEXT, state TEXT, version TEXT, used REAL, summary BLOB, PRIMARY KEY (address, state, version)
    )
"""


def default_path() -> Path:
    """Where it lies if the user names no file: in the cache folder of the XDG base directories."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "perfdoctor" / "summaries.sqlite"


class SummaryCache:
    """Summaries of files, by address, size and time of change, and by perfdoctor's version.

    Args:
        path: the SQLite file; made where there is none.
        tell: gets, once, the error of a file that cannot be used; then nothing is found or kept. None to raise that.

    Raises:
        PerfDoctorError: it cannot be read or written, here and in all that follows.
    """

    def __init__(self, path: Path, tell: Callable[[PerfDoctorError], None] | None = None) -> None:
        self._path, self._tell = path, tell
        self._version = f"{__version__} {_FORM}"
        self._db: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Each statement is a transaction of its own, so that another analysis never waits for this one; it costs
            # little where nobody waits for the disk. A power failure may damage the file, which then is only of no use.
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.execute(_TABLE)
            self._db.execute("DELETE FROM summaries WHERE used < ?", (time.time() - _DAYS * 86400,))
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def __enter__(self) -> SummaryCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._db is not None:
            self._db.close()

    @property
    def usable(self) -> bool:
        """Whether anything is kept."""
        return self._db is not None

    def find(self, file: File) -> bytes | None:
        """The summary of a file as it is now; None if there is none."""
        if self._db is None or not file.state:
            return None
        key = (file.address, file.state, self._version)
        where = "WHERE address = ? AND state = ? AND version = ?"
        try:
            row = self._db.execute(f"SELECT summary FROM summaries {where}", key).fetchone()
            if row is not None:
                self._db.execute(f"UPDATE summaries SET used = ? {where}", (time.time(), *key))
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        return None if row is None else bytes(row[0])

    def keep(self, file: File, summary: bytes) -> None:
        """Keeps the summary of a file."""
        if self._db is None or not file.state:
            return
        row = (file.address, file.state, self._version, time.time(), summary)
        try:
            self._db.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        unusable = PerfDoctorError(
            f"Summaries cannot be kept in {self._path}: {error}.",
            hint="Name another file: perfdoctor analyze FOLDER --summaries FILE.sqlite",
        )
        if self._tell is None:
            raise unusable from None
        self._tell(unusable)
