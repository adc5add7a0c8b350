"""Reads a recording while it is written: what is new, and any stretch of it, in glances that hold up no recorder."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar, get_args

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.own_source import OwnSource
from perfdoctor.recording.reader import Database, Recording, by_field, require_file, require_header, unreadable
from perfdoctor.recording.schema import (
    TABLES,
    CodeSample,
    CountedCall,
    Event,
    InterpreterSample,
    Mark,
    Profile,
    Reading,
    Sample,
    SerialMark,
    StackSegment,
    ThreadSample,
    TraceCost,
    TrialSeen,
)
from perfdoctor.recording.stack_segments import left_stacks

S = TypeVar("S", bound=Sample)

# These grow with every tick, and are read by the stretch.
STREAMS: tuple[type[Sample], ...] = (CodeSample, CountedCall, InterpreterSample, Mark, Reading, ThreadSample)
# These are made when the watching has ended, about no stretch of it.
AFTERWARDS: tuple[type[Sample], ...] = (Profile, SerialMark, *get_args(OwnSource), TraceCost, TrialSeen)
# All others are small, and kept.
KEPT = tuple(table for table in TABLES if table not in (*STREAMS, *AFTERWARDS, StackSegment))
# A recorder that commits waits until nobody reads: so many rows take some milliseconds.
AT_ONCE = 2000
# The rows of a stream are in order of time but for this: probes that read in a thread of their own deliver later.
_DISORDER_NS = 2 * NS_PER_S


class Follower:
    """Reads a recording that another process may be writing.

    Args:
        path: the file.

    Attributes:
        meta: text facts about the run.
        start_ns: when recording began.
        newest_ns: the newest instant of any sample, as of the last ``read_on``.
        grown_ns: when the recording was last seen to grow, on the clock of whoever follows it.

    Raises:
        PerfDoctorError: there is no such file, or it is no recording.
    """

    def __init__(self, path: Path) -> None:
        require_file(path)
        self.path = path
        with ExitStack() as on_failure:
            try:
                self._db = on_failure.enter_context(closing(sqlite3.connect(path)))
                require_header(self._db, path)
                self._tables = Database(self._db, path)
                self.meta = self._tables.meta()
                self.start_ns = int(self.meta["start_ns"])
            except (sqlite3.Error, MemoryError) as error:
                raise unreadable(path, error) from None
            except (KeyError, ValueError):
                raise PerfDoctorError(f"The recording {path} is damaged: it has no start.") from None
            on_failure.pop_all()
        self._kept: dict[type[Sample], list[Sample]] = {table: [] for table in KEPT}
        self._given: Counter[type[Any]] = Counter()
        self.newest_ns = self.start_ns
        self.grown_ns = now_ns() - max(0, time.time_ns() - os.stat(path).st_mtime_ns)

    def read_on(self) -> None:
        """Reads what has come since.

        Raises:
            PerfDoctorError: the file is damaged, or gone.
        """
        for table, rows in self._kept.items():
            while new := self._tables.select(table, " WHERE rowid > ? ORDER BY rowid LIMIT ?", (len(rows), AT_ONCE)):
                rows += new
        last = [row for table in STREAMS for row in self._tables.select(table, " ORDER BY rowid DESC LIMIT 1")]
        newest_ns = max(map(_time, last), default=self.start_ns)
        if newest_ns > self.newest_ns:
            self.newest_ns, self.grown_ns = newest_ns, now_ns()

    @property
    def stopped(self) -> str:
        """Why the watching stopped, as the recorder wrote it; "" while it goes on, or where the recorder was killed."""
        return next((event.text for event in self.kept(Event) if event.kind == "stopped"), "")

    def kept(self, kind: type[S]) -> list[S]:
        """All samples of a kind that is not read by the stretch."""
        rows: list[Any] = self._kept[kind]  # type: ignore[index]  # mypy takes no union for its member
        return rows

    def stretch(self, kind: type[S], from_ns: int, to_ns: int) -> list[S]:
        """Samples of a stream between two instants, in order of time."""
        first, end = self._first(kind, from_ns - _DISORDER_NS), self._first(kind, to_ns + _DISORDER_NS)
        found: list[tuple[int, S]] = []
        for start in range(first, end, AT_ONCE):
            rows = self._tables.select(kind, " WHERE rowid >= ? AND rowid < ?", (start, min(end, start + AT_ONCE)))
            found += [(time_ns, row) for row in rows if from_ns <= (time_ns := _time(row)) <= to_ns]
        found.sort(key=lambda one: one[0])
        return [row for _, row in found]

    def newer(self, kind: type[S]) -> Iterator[S]:
        """Samples of a stream that have come since this was last asked for, in the order in which they came."""
        while rows := self._tables.select(
            kind, " WHERE rowid > ? ORDER BY rowid LIMIT ?", (self._given[kind], AT_ONCE)
        ):
            self._given[kind] += len(rows)
            yield from rows

    def stacks_until(self) -> dict[int, int]:
        """By process, until when its Python stacks have been written."""
        try:
            return dict(self._db.execute('SELECT pid, max(until_ns) FROM "StackSegment" GROUP BY pid'))
        except sqlite3.Error as error:
            raise unreadable(self.path, error) from None

    def stack_segments(self, from_ns: int, to_ns: int) -> list[StackSegment]:
        """Those that have stacks between two instants."""
        return self._tables.select(
            StackSegment, " WHERE until_ns > ? AND time_ns < ? ORDER BY time_ns", (from_ns, to_ns)
        )

    def part(self, from_ns: int, to_ns: int) -> Recording:
        """The recording as if the watching had begun and ended at these instants."""
        return Recording(self.path, {**self.meta, "start_ns": str(from_ns)}, _Stretch(self, from_ns, to_ns), to_ns)

    def close(self) -> None:
        """Closes the file."""
        self._tables.close()

    def _first(self, kind: type[Any], time_ns: int) -> int:
        """The first row of a stream that is not before an instant, as far as they are in order: they are numbered."""
        if self._tables.lacks(kind):
            return 1
        table = kind.__name__
        try:
            low, high = 1, (self._db.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 0) + 1
            while low < high:
                middle = (low + high) // 2
                at = self._db.execute(f'SELECT time_ns FROM "{table}" WHERE rowid = ?', (middle,)).fetchone()[0]
                low, high = (middle + 1, high) if at < time_ns else (low, middle)
        except sqlite3.Error as error:
            raise unreadable(self.path, error) from None
        return low


class _Stretch:
    """The samples of a stretch."""

    def __init__(self, follower: Follower, from_ns: int, to_ns: int) -> None:
        self._follower, self._from_ns, self._to_ns = follower, from_ns, to_ns

    def rows(self, kind: type[S]) -> list[S]:
        """As ``Recording.rows``."""
        if kind in AFTERWARDS:
            return []
        if kind in STREAMS:
            # Which steps count was marked when the first of them began, before the watching perhaps.
            from_ns = 0 if kind is Mark else self._from_ns
            return self._follower.stretch(kind, from_ns, self._to_ns)
        if kind is StackSegment:
            segments = self._follower.stack_segments(self._from_ns, self._to_ns)
            return [row for row in segments if isinstance(row, kind)]
        rows = self._follower.kept(kind)
        if "time_ns" not in kind._fields:
            return rows
        return sorted((row for row in rows if _time(row) <= self._to_ns), key=_time)

    def columns(self, kind: type[Sample], *names: str) -> list[list[Any]]:
        """As ``Tables.columns``."""
        return by_field(self.rows(kind), names)

    def left_stacks(self) -> list[StackSegment]:
        """As ``Tables.left_stacks``, of the stretch."""
        found = left_stacks(self._follower.path)
        return [one for one in found if one.until_ns > self._from_ns and one.time_ns < self._to_ns]

    def lacks(self, kind: type[Sample]) -> bool:
        """As ``Recording.lacks``."""
        return kind in AFTERWARDS

    def close(self) -> None:
        """The follower's file stays open."""


def _time(row: Sample) -> int:
    time_ns: int = getattr(row, "time_ns", 0)
    return time_ns
