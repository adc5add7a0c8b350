"""Lines of the job's own source around those that its stacks name, read while the job is watched.

Only files that stacks name as the job's own are read, none of a library's, and only Python source: a process names its
code as it likes, and what a root's perfdoctor may read is not all for reports. Bounded in number and length, secrets
masked.
"""

from __future__ import annotations

import ast
import io
import sqlite3
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfdoctor.capture.job import Job
from perfdoctor.capture.redact import mask_source
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.probes.readers.file_view import FileView
from perfdoctor.recording.clock import NS_PER_S, NS_PER_US, epoch_on_the_clock, now_ns
from perfdoctor.recording.own_source import SOURCE_NOT_READ, SourceLine
from perfdoctor.recording.reader import Database
from perfdoctor.recording.schema import Fact, Sample, StackSegment
from perfdoctor.recording.stack_segments import SeenStack, stack_changes

NAME = "source"
# Around so many lines, those that were on stacks longest, so many above and below each are kept: some more than a page
# shows, which has no small gaps then.
PLACES, AROUND = 48, 5
# A larger file is hardly written by hand.
LARGEST_FILE = 2_000_000
# Parsing and searching one for advice takes much longer than reading, of all of them some seconds.
_LARGEST_PARSED, _ALL_PARSED = 200_000, 500_000
# Of the stacks the newest are looked through, in so many segments and compressed bytes at most: of one process half an
# hour, in less than a second.
_SEGMENTS, _TRACE_BYTES = 3_600, 2_000_000
# A stack that was not seen to change stands for no more than this.
_LONGEST_US = int(thresholds.STACK_REACH_S * NS_PER_S) // NS_PER_US
# When a process was started is known to a clock tick, and a file's time may be another host's.
_TOLERANCE_NS = NS_PER_S


@dataclass(frozen=True, slots=True)
class StackLine:
    """A line of the job's own that a stack names, and a process that ran it."""

    pid: int
    file: str
    line: int


class _Seen(NamedTuple):
    files: FileView
    started_ns: int


class SourceReader:
    """Keeps hold of the files that the job's processes see, and reads what is wanted of them in the end."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen | OSError] = {}
        self._to_parse = _ALL_PARSED
        self._parsed_files: dict[str, tuple[ast.Module, Sequence[str]]] = {}

    def follow(self, job: Job) -> None:
        """Takes hold of the files of processes that have come; a forked one sees what its parent does."""
        for pid in job.torch_pids():
            if pid in self._seen:
                continue
            parent = self._seen.get(job.parent_of(pid) or 0) if job.members[pid].forked else None
            if parent is not None:
                self._seen[pid] = parent
                continue
            try:
                self._seen[pid] = _Seen(FileView(pid), job.members[pid].started_ns)
            except OSError as error:
                self._seen[pid] = error

    def read(self, recording: Path) -> Iterator[Sample]:
        """The lines around those that were on stacks longest, and calls, loops and draws of their files for advice.

        Args:
            recording: the file that the stacks are in, committed.

        Yields:
            Lines and calls, and of each file that could not be read a fact that says why.

        Raises:
            sqlite3.Error: the recording cannot be read.
        """
        with closing(sqlite3.connect(recording)) as db:
            segments = Database(db, recording).select(StackSegment, " ORDER BY time_ns DESC LIMIT ?", (_SEGMENTS,))
        by_file: dict[str, list[StackLine]] = {}
        for place in longest_places(_newest(segments))[:PLACES]:
            by_file.setdefault(place.file, []).append(place)
        epoch_ns, _ = epoch_on_the_clock()
        for file, places in by_file.items():
            try:
                yield from self._of_file(places, epoch_ns)
            except OSError as error:
                yield Fact(now_ns(), NAME, f"file:{file}", SOURCE_NOT_READ, error.strerror or str(error))
        yield from self._of_all_files()

    def _of_file(self, places: Sequence[StackLine], epoch_ns: int) -> Iterator[Sample]:
        """Those of one file; what was written after it had been loaded need not be what runs.

        Raises:
            OSError: it cannot be read.
        """
        first = places[0]
        if not first.file.endswith(".py"):
            raise OSError(0, "It is no file of Python source")
        seen = self._seen.get(first.pid)
        if not isinstance(seen, _Seen):
            raise seen or OSError(0, "The process that ran it had ended")
        content, written_ns = seen.files.read(first.file, LARGEST_FILE)
        changed = written_ns - epoch_ns > seen.started_ns + _TOLERANCE_NS
        lines = split_lines(content)
        wanted = {line for one in places for line in range(one.line - AROUND, one.line + AROUND + 1)}
        masked = mask_source(lines, sorted(line - 1 for line in wanted if 1 <= line <= len(lines)))
        for at, text in masked.items():
            yield SourceLine(first.file, at + 1, text, changed)
        if not changed and (tree := self._parsed(lines)) is not None:
            self._parsed_files[first.file] = tree, lines
            try:
                yield from _for_advice(first.file, tree, lines)
            except RecursionError:  # an expression of thousands of terms
                return

    def _of_all_files(self) -> Iterator[Sample]:
        """What only all of them together show."""
        from perfdoctor.capture.own_source.unchanged import find_unchanged

        trees = {file: tree for file, (tree, _) in self._parsed_files.items()}
        lines = {file: some for file, (_, some) in self._parsed_files.items()}
        try:
            yield from find_unchanged(trees, lines)
        except RecursionError:  # an expression of thousands of terms
            return

    def _parsed(self, lines: Sequence[str]) -> ast.Module | None:
        """The syntax tree of a file; None where it is too much, of another version of Python, or none."""
        from perfdoctor.results.edits import parse  # nothing of it is needed while the job is watched

        source = "\n".join(lines)
        if len(source) > min(_LARGEST_PARSED, self._to_parse):
            return None
        self._to_parse -= len(source)
        try:
            return parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def close(self) -> None:
        """Lets go of all files."""
        for files in {id(one.files): one.files for one in self._seen.values() if isinstance(one, _Seen)}.values():
            files.close()
        self._seen.clear()


def _for_advice(file: str, tree: ast.Module, lines: Sequence[str]) -> Iterator[Sample]:
    """What advice asks of it.

    Raises:
        RecursionError: it has expressions of thousands of terms.
    """
    from perfdoctor.capture.own_source.calls import find_calls
    from perfdoctor.capture.own_source.detours import find_detours
    from perfdoctor.capture.own_source.draws import find_draws
    from perfdoctor.capture.own_source.loops import find_loops
    from perfdoctor.capture.own_source.passes import find_once
    from perfdoctor.capture.own_source.read_outs import find_read_outs
    from perfdoctor.capture.own_source.results import find_results
    from perfdoctor.capture.own_source.rounds import find_rounds
    from perfdoctor.capture.own_source.state import find_stateful

    yield from find_calls(file, tree, lines)
    yield from find_loops(file, tree)
    yield from find_draws(file, tree)
    yield from find_stateful(file, tree)
    yield from find_read_outs(file, tree)
    yield from find_results(file, tree)
    yield from find_rounds(file, tree, lines)
    yield from find_once(file, tree)
    yield from find_detours(file, tree, lines)


def _newest(segments: Iterable[StackSegment]) -> Iterator[StackSegment]:
    """As many as may be looked through."""
    left = _TRACE_BYTES
    for segment in segments:
        yield segment
        left -= len(segment.trace)
        if left < 0:
            return


def longest_places(segments: Iterable[StackSegment]) -> list[StackLine]:
    """The innermost lines of the job's own on all stacks, those that were there longest first."""
    spent: dict[tuple[str, int], int] = {}
    ran: dict[tuple[str, int], StackLine] = {}
    empty = SeenStack(Frame)
    for segment in segments:
        for place, lasted_us in _places(segment, empty):
            key = place.file, place.line
            spent[key] = spent.get(key, 0) + min(lasted_us, _LONGEST_US)
            ran.setdefault(key, place)
    return [ran[key] for key in sorted(spent, key=lambda key: -spent[key])]


def _places(segment: StackSegment, empty: SeenStack[Frame]) -> Iterator[tuple[StackLine, int]]:
    """Where in the job's own code its threads were, and for how many microseconds; the last ones until the end."""
    since: dict[tuple[int, int], tuple[int, StackLine | None]] = {}
    for pid, ident, time_us, stack in stack_changes(segment.trace, empty):
        began_us, place = since.get((pid, ident), (time_us, None))
        if place is not None:
            yield place, time_us - began_us
        own = next((frame for frame in reversed(stack.frames) if is_own(frame)), None)
        since[pid, ident] = time_us, None if own is None else StackLine(pid, own.file, own.line)
    until_us = (segment.until_ns - segment.time_ns) // NS_PER_US
    for began_us, place in since.values():
        if place is not None:
            yield place, until_us - began_us


def split_lines(content: bytes) -> list[str]:
    """The lines of Python source as the interpreter counts them, without line breaks; what is not text is replaced."""
    try:
        return _decoded(content, tokenize.detect_encoding(io.BytesIO(content).readline)[0]).split("\n")
    except (SyntaxError, LookupError, ValueError):  # an encoding that is none, or none of text
        return _decoded(content, "utf-8").split("\n")


def _decoded(content: bytes, encoding: str) -> str:
    return io.TextIOWrapper(io.BytesIO(content), encoding, errors="replace", newline=None).read()
