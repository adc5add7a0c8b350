"""What was summarised before, in one SQLite file: an analysis that was interrupted goes on where it was."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from types import TracebackType

from perfdoctor import __version__
from perfdoctor.cluster.files import File
from perfdoctor.errors import PerfDoctorError

# Raised whenever what is kept changes between two releases.
_FORM = 1
_DAYS = 7.0  # without being used
_COMMIT_S = 1.0
_TABLE = """
    CREATE TABLE IF NOT EXISTS summaries (
        address TEXT, state TEXT, version TEXT, used REAL, summary BLOB, PRIMARY KEY (address, state, version)
    )
"""


def usual_place() -> Path:
    """Where it lies if the user names no file: in the cache folder of the XDG base directories."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "perfdoctor" / "summaries.sqlite"


class Kept:
    """Summaries of files, by address, size and time of change, and by perfdoctor's version.

    Args:
        path: the SQLite file; made where there is none.

    Raises:
        PerfDoctorError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = f"{__version__} {_FORM}"
        self._committed = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path)
            self._db.execute(_TABLE)
            self._db.execute("DELETE FROM summaries WHERE used < ?", (time.time() - _DAYS * 86400,))
            self._db.commit()
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._db.commit()
        finally:
            self._db.close()

    def find(self, file: File) -> bytes | None:
        """The summary of a file as it is now; None if there is none."""
        key = (file.address, file.state, self._version)
        where = "WHERE address = ? AND state = ? AND version = ?"
        try:
            row = self._db.execute(f"SELECT summary FROM summaries {where}", key).fetchone() if file.state else None
            if row is not None:
                self._db.execute(f"UPDATE summaries SET used = ? {where}", (time.time(), *key))
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        return None if row is None else bytes(row[0])

    def keep(self, file: File, summary: bytes) -> None:
        """Keeps the summary of a file; on disk within a second.

        Raises:
            PerfDoctorError: there is no room for it.
        """
        if not file.state:
            return
        row = (file.address, file.state, self._version, time.time(), summary)
        try:
            self._db.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?, ?)", row)
            if time.monotonic() - self._committed > _COMMIT_S:
                self._db.commit()
                self._committed = time.monotonic()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> PerfDoctorError:
        return PerfDoctorError(
            f"Summaries cannot be kept in {self._path}: {error}.",
            hint="Name another file: perfdoctor analyze FOLDER --summaries FILE.sqlite",
        )
