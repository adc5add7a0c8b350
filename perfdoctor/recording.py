"""The recording: what a run left behind, one SQLite file, readable after a crash of either side.

Each class of ``perfdoctor.samples`` is one table; its fields are the columns. ``meta`` holds the format version,
which clock the times are on, and what the recorder was asked to do.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from perfdoctor.errors import PerfDoctorError
from perfdoctor.samples import (
    TABLES,
    Fact,
    Mark,
    ProcessGone,
    ProcessSeen,
    Profile,
    Reading,
    Sample,
    SerialMark,
    StackMissed,
    ThreadSeen,
    TrialSeen,
)

FORMAT = 1
# Tables that came after the first recordings of this format; where they are missing, nobody looked.
ADDED: frozenset[type[Sample]] = frozenset({Mark, Profile, SerialMark, StackMissed, TrialSeen})
MAGIC = 0x70646F63  # "pdoc", SQLite's application_id

S = TypeVar("S", bound=Sample)

_HINT_RECORD = "Record the job again with `perfdoctor attach PID --recording FILE`."


def is_recording(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes, 72 or more, is a recording (sqlite.org/fileformat.html, 1.3)."""
    return beginning.startswith(b"SQLite format 3") and beginning[68:72] == MAGIC.to_bytes(4, "big")


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
            table: f'INSERT INTO "{table.__name__}" VALUES ({", ".join("?" * len(table._fields))})'
            for table in TABLES
        }
        self._rows: dict[type[Sample], list[Sample]] = {}

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

    def abandon(self) -> None:
        """Closes a recording that cannot be written any more; what was committed stays readable."""
        self._db.close()

    def close(self) -> None:
        """Commits and closes."""
        self.commit()
        self._db.close()


class Recording:
    """Reads a recording.

    Attributes:
        meta: text facts about the run.
        start_ns: when recording began.
        end_ns: the last instant at which anything was seen.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self.path = path
        self.meta: dict[str, str] = dict(db.execute("SELECT key, value FROM meta"))
        self.start_ns = int(self.meta["start_ns"])
        held = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._lacks = {table for table in ADDED if table.__name__ not in held}
        last = [
            db.execute(f'SELECT max(time_ns) FROM "{table.__name__}"').fetchone()[0]
            for table in TABLES
            if "time_ns" in table._fields and table not in self._lacks
        ]
        self.end_ns = max([self.start_ns, *(time for time in last if time is not None)])

    @classmethod
    def open(cls, path: Path) -> Recording:
        """Opens a recording for reading.

        Raises:
            PerfDoctorError: there is no such file, it is no recording, it is damaged or from another version.
        """
        _require_file(path)
        with ExitStack() as on_failure:
            try:
                # A journal left by a killed writer is rolled back here, which needs the right to write.
                db = on_failure.enter_context(closing(sqlite3.connect(path)))
                _require_format(db, path)
                recording = cls(db, path)
            except (sqlite3.Error, MemoryError) as error:
                raise _unreadable(path, error) from None
            except (KeyError, ValueError):
                raise PerfDoctorError(
                    f"The recording {path} is damaged: it has no start.", hint=_HINT_RECORD
                ) from None
            on_failure.pop_all()
        return recording

    def rows(self, kind: type[S]) -> list[S]:
        """All samples of one kind, in order of time where they have one; none where nobody looked.

        Raises:
            PerfDoctorError: the file is damaged there.
        """
        if kind in self._lacks:
            return []
        order = ' ORDER BY "time_ns"' if "time_ns" in kind._fields else ""
        try:
            return [kind(*row) for row in self._db.execute(f'SELECT * FROM "{kind.__name__}"{order}')]
        except (sqlite3.Error, MemoryError) as error:
            raise _unreadable(self.path, error) from None

    @cached_property
    def series(self) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
        """By subject and name when something was read, and what. Looks that failed are left out.

        Raises:
            PerfDoctorError: as ``rows``.
        """
        found: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
        for row in self.rows(Reading):
            if row.value is not None:
                times, values = found.setdefault((row.subject, row.name), ([], []))
                times.append(row.time_ns)
                values.append(row.value)
        return found

    @cached_property
    def facts(self) -> dict[tuple[str, str], str]:
        """What is known by subject and name, as it was last seen."""
        return {(fact.subject, fact.name): fact.value for fact in self.rows(Fact)}

    @cached_property
    def processes(self) -> dict[int, ProcessSeen]:
        """The job's processes by their ids, as they were last seen."""
        return {process.pid: process for process in self.rows(ProcessSeen)}

    @cached_property
    def ended_ns(self) -> dict[int, int]:
        """When processes of the job ended, by their ids."""
        return {process.pid: process.time_ns for process in self.rows(ProcessGone)}

    @cached_property
    def threads(self) -> dict[int, ThreadSeen]:
        """The job's threads by their ids, as they were last seen."""
        return {thread.tid: thread for thread in self.rows(ThreadSeen)}

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def _require_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise PerfDoctorError(f"{path} is a folder, not a recording.", hint="Name the file that is in it.")
        size = path.stat().st_size
    except FileNotFoundError:
        raise PerfDoctorError(f"There is no recording at {path}.", hint=_HINT_RECORD) from None
    except OSError as error:
        raise PerfDoctorError(f"{path} cannot be read: {error.strerror}.", hint=_HINT_RECORD) from None
    if not path.is_file():
        raise PerfDoctorError(f"{path} is not a perfdoctor recording.", hint=_HINT_RECORD)
    if not os.access(path, os.R_OK):
        hint = f"Run perfdoctor as its owner, or: sudo chmod a+r {shlex.quote(str(path))}"
        raise PerfDoctorError(f"You have no right to read {path}.", hint=hint)
    if size == 0:
        raise PerfDoctorError(f"The recording {path} is empty.", hint=_HINT_RECORD)


def _require_format(db: sqlite3.Connection, path: Path) -> None:
    magic = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if magic != MAGIC:
        raise _no_recording(path)
    if version != FORMAT:
        raise PerfDoctorError(
            f"{path} has recording format {version}, and this perfdoctor reads format {FORMAT}.",
            hint="Read it with the perfdoctor version that wrote it.",
        )
    # SQLite fills up a last page that was cut off, and does not say so.
    cut = path.stat().st_size % db.execute("PRAGMA page_size").fetchone()[0]
    if cut or db.execute("PRAGMA quick_check").fetchone()[0] != "ok":
        raise PerfDoctorError(f"The recording {path} is damaged.", hint=_HINT_RECORD)


def _no_recording(path: Path) -> PerfDoctorError:
    """The next move where a file is none of ours; a profiler's trace begins as JSON does, or is packed."""
    with path.open("rb") as file:
        begins = file.read(64).lstrip()
    hint = f"If it is a profiler's trace: perfdoctor analyze {shlex.quote(str(path))}"
    traced = begins.startswith((b"{", b"[", b"\x1f\x8b"))
    return PerfDoctorError(f"{path} is not a perfdoctor recording.", hint=hint if traced else _HINT_RECORD)


def _unreadable(path: Path, error: Exception) -> PerfDoctorError:
    """What SQLite's complaint means to the user."""
    # A length that has gone bad can ask for more memory than there is.
    said = str(error) or "it cannot be held in memory"
    said = said.partition(" with text ")[0]  # what follows quotes the bad bytes
    if "not a database" in said:
        return _no_recording(path)
    if "locked" in said:
        return PerfDoctorError(f"{path} is being written just now.", hint="Try again in a moment.")
    if "unable to open" in said or "readonly" in said:
        return PerfDoctorError(
            f"{path} cannot be opened: {said}.",
            hint=f"Copy it, and {path}-journal if there is one, to a folder of yours.",
        )
    return PerfDoctorError(f"The recording {path} is damaged: {said}.", hint=_HINT_RECORD)
