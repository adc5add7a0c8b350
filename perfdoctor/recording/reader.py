"""Reads a recording: the samples of one kind, in order of time, and what most of the analysis asks of them."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import msgspec

from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.recording.file_format import ADDED, FORMAT, MAGIC
from perfdoctor.recording.schema import (
    TABLES,
    Fact,
    ProcessGone,
    ProcessSeen,
    PythonThread,
    Reading,
    Sample,
    StackSegment,
    Symbol,
    ThreadSeen,
)
from perfdoctor.recording.stack_segments import left_stacks

S = TypeVar("S", bound=Sample)
R = TypeVar("R", bound="Recording")

# Fields that are no whole numbers and no text.
_FRACTIONS = frozenset({(Reading, "value")})
# Rows of a table that are read together: SQLite makes no value of more than a gigabyte, and memory counts.
_AT_ONCE = 200_000
_REPORT = re.compile(rb'\{\s*"schema": \d+,\s*"perfdoctor": "')
_PAGE = re.compile(rb"<!doctype html|<html", re.IGNORECASE)
_HINT_RECORD = say("moves.record_again")


class Tables(Protocol):
    """Where the samples of a recording lie."""

    def rows(self, kind: type[S]) -> list[S]:
        """As ``Recording.rows``."""

    def columns(self, kind: type[Sample], *names: str) -> list[list[Any]]:
        """As ``Recording.columns``, in any order of samples."""

    def left_stacks(self) -> Iterable[StackSegment]:
        """Segments of stacks that a killed perfdoctor left beside the file, those that were taken into it too."""

    def lacks(self, kind: type[Sample]) -> bool:
        """As ``Recording.lacks``."""

    def close(self) -> None:
        """Lets go of them."""


class Recording:
    """Reads a recording.

    Args:
        path: its file.
        meta: text facts about the run.
        tables: its samples.
        end_ns: the last instant at which anything was seen.

    Attributes:
        start_ns: when recording began.
    """

    def __init__(self, path: Path, meta: dict[str, str], tables: Tables, end_ns: int) -> None:
        self.path, self.meta, self._tables = path, meta, tables
        self.start_ns = int(meta["start_ns"])
        self.end_ns = max(self.start_ns, end_ns)

    @classmethod
    def open(cls: type[R], path: str | os.PathLike[str]) -> R:
        """Opens a recording for reading.

        Raises:
            PerfDoctorError: there is no such file, it is no recording, it is damaged or from another version.
        """
        path = Path(path)
        require_file(path)
        with ExitStack() as on_failure:
            try:
                # A journal left by a killed writer is rolled back here, which needs the right to write.
                db = on_failure.enter_context(closing(sqlite3.connect(path)))
                _require_format(db, path)
                database = Database(db, path)
                recording = cls(path, database.meta(), database, database.last_ns())
            except (sqlite3.Error, MemoryError) as error:
                raise unreadable(path, error) from None
            except (KeyError, ValueError):
                raise PerfDoctorError(f"The recording {path} is damaged: it has no start.", hint=_HINT_RECORD) from None
            on_failure.pop_all()
        return recording

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rows(self, kind: type[S]) -> list[S]:
        """All samples of one kind, in order of time where they have one; none where no probe sampled it.

        Raises:
            PerfDoctorError: the file is damaged there.
        """
        return self._tables.rows(kind)

    def columns(self, kind: type[Sample], *names: str) -> list[list[Any]]:
        """Some fields of all samples of one kind, a list for each: as ``rows``, for tables of millions.

        Args:
            kind: of samples that have a time.
            names: of the fields, the time first.

        Raises:
            PerfDoctorError: as ``rows``.
        """
        columns = self._tables.columns(kind, *names)
        times = columns[0]
        if times == sorted(times):
            return columns
        order = sorted(range(len(times)), key=times.__getitem__)
        return [list(map(column.__getitem__, order)) for column in columns]

    def lacks(self, kind: type[Sample]) -> bool:
        """Whether nobody looked for this kind: the recording is older than it, or the watching goes on."""
        return self._tables.lacks(kind)

    def stacks(self) -> list[StackSegment]:
        """Segments of stacks in order of time, with those that a killed perfdoctor left beside the file.

        Raises:
            PerfDoctorError: as ``rows``.
        """
        held = self.rows(StackSegment)
        known = {(one.pid, one.time_ns) for one in held}
        return sorted([*held, *(one for one in self._tables.left_stacks() if (one.pid, one.time_ns) not in known)])

    @cached_property
    def series(self) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
        """By subject and name when something was read, and what. Samples that failed are left out.

        Raises:
            PerfDoctorError: as ``rows``.
        """
        found: defaultdict[tuple[str, str], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
        for time_ns, subject, name, value in zip(
            *self.columns(Reading, "time_ns", "subject", "name", "value"), strict=True
        ):
            if value is not None:
                times, values = found[subject, name]
                times.append(time_ns)
                values.append(value)
        return dict(found)

    @cached_property
    def facts(self) -> dict[tuple[str, str], str]:
        """What is known by subject and name, as it was last seen."""
        return {(fact.subject, fact.name): fact.value for fact in self.rows(Fact)}

    @cached_property
    def symbols(self) -> dict[tuple[str, int], str]:
        """Names of functions by image and offset, as they were looked up after samples of machine code were taken."""
        return {(row.image, row.offset): row.symbol for row in self.rows(Symbol)}

    @cached_property
    def processes(self) -> dict[int, ProcessSeen]:
        """The job's processes by their ids, as they were last seen."""
        return {process.pid: process for process in self.rows(ProcessSeen)}

    @cached_property
    def ended_ns(self) -> dict[int, int]:
        """When processes of the job ended, by their ids: who noticed first knows best."""
        return {process.pid: process.time_ns for process in reversed(self.rows(ProcessGone))}

    @cached_property
    def threads(self) -> dict[int, ThreadSeen]:
        """The job's threads by their ids, as they were last seen."""
        return {thread.tid: thread for thread in self.rows(ThreadSeen)}

    @cached_property
    def thread_names(self) -> dict[tuple[int, int], str]:
        """Names of Python threads, by process and Python's identifier; "" where that has none."""
        named_last = sorted(self.rows(PythonThread), key=lambda thread: thread.name != "")
        return {(thread.pid, thread.ident): thread.name for thread in named_last}

    def close(self) -> None:
        """Closes the file."""
        self._tables.close()


class Database:
    """The tables of a recording's file.

    Args:
        db: open on the file.
        path: for messages.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self._path = db, path
        held = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._lacks = {table for table in ADDED if table.__name__ not in held}

    def lacks(self, kind: type[Sample]) -> bool:
        """Whether the file was written before there was such a table."""
        return kind in self._lacks

    def meta(self) -> dict[str, str]:
        """Text facts about the run."""
        return dict(self._db.execute("SELECT key, value FROM meta"))

    def last_ns(self) -> int:
        """The last instant of any sample; 0 if there is none."""
        last = [
            self._db.execute(f'SELECT max(time_ns) FROM "{table.__name__}"').fetchone()[0]
            for table in TABLES
            if "time_ns" in table._fields and table not in self._lacks
        ]
        return max((time for time in last if time is not None), default=0)

    def rows(self, kind: type[S]) -> list[S]:
        """As ``Recording.rows``."""
        order = ' ORDER BY "time_ns"' if "time_ns" in kind._fields else ""
        return self.select(kind, order)

    def columns(self, kind: type[Sample], *names: str) -> list[list[Any]]:
        """As ``Tables.columns``."""
        if kind in self._lacks:
            return [[] for _ in names]
        table = f'FROM "{kind.__name__}"'
        found: list[list[Any]] = [[] for _ in names]
        try:
            last = self._db.execute(f"SELECT max(rowid) {table}").fetchone()[0] or 0
            for first in range(0, last, _AT_ONCE):
                some = f"{table} WHERE rowid > {first} AND rowid <= {first + _AT_ONCE}"
                for column, more in zip(found, self._columns(kind, names, some), strict=True):
                    column += more
        except (sqlite3.Error, MemoryError, msgspec.DecodeError) as error:
            raise unreadable(self._path, error) from None
        return found

    def _columns(self, kind: type[Sample], names: Sequence[str], some: str) -> Iterator[list[Any]]:
        """SQLite hands over JSON arrays much faster than as many rows, but no more than 15 digits of a fraction."""
        whole = [name for name in names if (kind, name) not in _FRACTIONS]
        arrays = ", ".join(f'json_group_array("{name}")' for name in whole)
        packed = dict(zip(whole, self._db.execute(f"SELECT {arrays} {some}").fetchone(), strict=True))
        for name in names:
            if name in packed:
                yield msgspec.json.decode(packed.pop(name), type=list[Any])
            else:
                yield [value for (value,) in self._db.execute(f'SELECT "{name}" {some}')]

    def left_stacks(self) -> Iterable[StackSegment]:
        """As ``Tables.left_stacks``."""
        return left_stacks(self._path)

    def select(self, kind: type[S], how: str, values: tuple[int, ...] = ()) -> list[S]:
        """Samples of one kind, chosen by what follows the table's name in SQL."""
        if kind in self._lacks:
            return []
        try:
            # As `kind._make` does, without a call of Python's for each of millions of rows.
            make = partial(tuple.__new__, kind)
            return list(map(make, self._db.execute(f'SELECT * FROM "{kind.__name__}"{how}', values)))
        except (sqlite3.Error, MemoryError) as error:
            raise unreadable(self._path, error) from None

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def by_field(rows: Sequence[Sample], names: Iterable[str]) -> list[list[Any]]:
    """Fields of samples, a list for each."""
    return [list(map(attrgetter(name), rows)) for name in names]


def require_file(path: Path) -> None:
    """Makes sure that a file can be read that is not empty.

    Raises:
        PerfDoctorError: it is not there, is no file, may not be read, or is empty.
    """
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
        raise PerfDoctorError(f"{path} is empty: what was to be recorded never came.", hint=_HINT_RECORD)


def _require_format(db: sqlite3.Connection, path: Path) -> None:
    require_header(db, path)
    # SQLite fills up a last page that was cut off, and does not say so.
    cut = path.stat().st_size % db.execute("PRAGMA page_size").fetchone()[0]
    if cut or db.execute("PRAGMA quick_check").fetchone()[0] != "ok":
        raise PerfDoctorError(f"The recording {path} is damaged.", hint=_HINT_RECORD)


def require_header(db: sqlite3.Connection, path: Path) -> None:
    """Makes sure that a file begins as a recording of this format.

    Raises:
        PerfDoctorError: it does not.
    """
    magic = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if magic != MAGIC:
        raise _no_recording(path)
    if version != FORMAT:
        raise PerfDoctorError(
            f"{path} has recording format {version}, and this perfdoctor reads format {FORMAT}.",
            hint="Read it with the perfdoctor version that wrote it.",
        )


def _no_recording(path: Path) -> PerfDoctorError:
    """What the file is instead, and the next move; a profiler's trace begins as JSON does, or is packed."""
    with path.open("rb") as file:
        begins = file.read(64).lstrip()
    if _REPORT.match(begins):
        return PerfDoctorError(
            f"{path} is a JSON report, not a recording.", hint="Name the recording it was made from."
        )
    if _PAGE.match(begins):
        return PerfDoctorError(
            f"{path} is a page to read, not a recording.", hint="Name the recording it was made from."
        )
    hint = say("moves.analyze_trace", path=shlex.quote(str(path)))
    traced = begins.startswith((b"{", b"[", b"\x1f\x8b"))
    return PerfDoctorError(f"{path} is not a perfdoctor recording.", hint=hint if traced else _HINT_RECORD)


def unreadable(path: Path, error: Exception) -> PerfDoctorError:
    """The error to raise: what SQLite's complaint means to the user."""
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
