"""Writes a recording: one SQLite file, readable after a crash of either side.

Each class of ``perfdoctor.recording.schema`` is one table; its fields are the columns. ``meta`` holds the format
version, which clock the times are on, and what the recorder was asked to do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, get_args, get_type_hints

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.file_format import FORMAT, MAGIC
from perfdoctor.recording.schema import TABLES, Sample


def _columns(table: type[Sample]) -> str:
    hints = get_type_hints(table)
    return ", ".join(f'"{name}" {_sql_type(hints[name])}' for name in table._fields)


def _sql_type(hint: Any) -> str:
    members = get_args(hint) or (hint,)
    if float in members:
        return "REAL"
    if bytes in members:
        return "BLOB"
    return "INTEGER" if int in members or bool in members else "TEXT"


class RecordingWriter:
    """Writes a recording. Nothing is lost but what came after the last ``commit``, and nothing is written before it:
    SQLite would push the job's data out of the caches at every tick.

    Args:
        path: the file to write; it must not exist, or be empty.
        meta: text facts about the run, added to the format's own.

    Raises:
        PerfDoctorError: the file cannot be created.
    """

    def __init__(self, path: Path, meta: Mapping[str, str]) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            # A rollback journal keeps the file whole when either side is killed; durability against power loss is not
            # needed.
            self._db.execute("PRAGMA synchronous = OFF")
            # All at once: a recording is either empty or has its start, whenever the recorder is killed.
            self._db.execute("BEGIN")
            self._db.execute(f"PRAGMA application_id = {MAGIC}")
            self._db.execute(f"PRAGMA user_version = {FORMAT}")
            self._db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
            for table in TABLES:
                self._db.execute(f'CREATE TABLE "{table.__name__}" ({_columns(table)})')
            self.set_meta(meta)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise PerfDoctorError(
                f"The recording cannot be written to {path}: {error}.",
                hint="Choose another place with --recording FILE.",
            ) from None
        self._inserts = {
            table: f'INSERT INTO "{table.__name__}" VALUES ({", ".join("?" * len(table._fields))})' for table in TABLES
        }
        self._rows: dict[type[Sample], list[Sample]] = {}

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file; after an error without another commit: what was committed before stays readable."""
        if kind is None:
            self.commit()
        self._db.close()

    def set_meta(self, meta: Mapping[str, str]) -> None:
        """Adds or replaces text facts about the run."""
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())

    def add(self, samples: Iterable[Sample]) -> None:
        """Adds samples of any kind."""
        for sample in samples:
            self._rows.setdefault(type(sample), []).append(sample)

    def commit(self) -> None:
        """Makes everything added so far survive a kill.

        Raises:
            sqlite3.Error: the disk is full, for instance; what was committed before stays readable.
        """
        self._db.execute("BEGIN")
        for table, found in self._rows.items():
            self._db.executemany(self._inserts[table], found)
        self._db.execute("COMMIT")
        self._rows.clear()

    def close(self) -> None:
        """Commits and closes."""
        self.commit()
        self._db.close()
