"""The ring: marks on their way from a training process to the sidecar, in memory that outlives either of them.

The memory is an anonymous file (``memfd_create``, a temporary file where the kernel has none), so nothing has to be
cleaned up: it lives as long as somebody has it open. Layout: a header, a text area that only grows (names of the user's
phases, notes about what failed), and ``CAPACITY`` records of 16 bytes. The header counts the records that the writer
has begun to write and those that it has written. The writer never waits: it overwrites the oldest records. The reader
takes what is written, sees from the other number what was overwritten meanwhile, and counts what it has missed.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from array import array
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

NAME = "perfdoctor-marks"
_MAGIC = b"pdmarks1"
_HEADER = struct.Struct("<8sII")  # magic, pid, thread that trains
_COUNT = struct.Struct("=Q")
_TEXT_END = struct.Struct("<I")
_BEGUN_AT, _WRITTEN_AT, _TEXT_END_AT, _TRAINER_AT, _SIDECAR_AT, _TEXT_AT = 16, 24, 32, 40, 41, 64
_RECORDS_AT = 16_384
# Time, and what it is about: the kind in the lower half, the value in the upper one.
_RECORD = struct.Struct("=qII")
# A step makes about 12 marks: room for more than 2500 steps that were not read yet, in half a MiB.
CAPACITY = 32_768
SIZE = _RECORDS_AT + CAPACITY * _RECORD.size
# With so many marks waiting they are written at the garbage collector's next run, step or no step.
MANY = 10_000

# What a mark is about; the user's own phases follow from ``OWN`` on.
KINDS = (
    "scope",
    "data",
    "loader start",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "gradient sync",
    "collector",
    "step",
    "observed",
    "closure",
    "serialised",
    "rank wait",
    "transfer",
)
SCOPE, DATA, LOADER_START, FORWARD, LOSS, BACKWARD, OPTIMIZER, SYNC, COLLECTOR, STEP, OBSERVED, CLOSURE = range(12)
SERIALISED, RANK_WAIT, TRANSFER = 12, 13, 14
OWN = 64  # the numbers below are for phases of perfdoctor's own
BEGIN, END, POINT = 0, 1 << 8, 2 << 8
# Added to a border: when the device came to it, and not the host.
DEVICE = 3 << 8
EDGES = ("begin", "end", "point", "device begin", "device end", "device point")

# How far the training process is: the last observed step has ended; perfdoctor has detached; or it waits for orders.
SEEN, DETACHED, TREATABLE = 1, 2, 3
# What the sidecar does.
NOT_YET, WATCHING, REPORTED, FAILED = range(4)
# More names of the user's own phases than these are not marked.
MAX_NAMES = 100

# Makes a mark at a time in nanoseconds; and what gives such a function for a kind and a value.
Mark: TypeAlias = Callable[[int], None]
MakeMark: TypeAlias = Callable[..., Mark]


class Record(NamedTuple):
    """One mark as it lies in the ring."""

    time_ns: int
    kind: int
    value: int


class RingWriter:
    """The training process's end.

    After a step of a model the processor's caches hold the model, and whatever is touched costs many times what it
    costs in a loop: writing a record 4 µs instead of 0.3 µs (measured). So a mark is only a time that is appended to a
    list of its kind, by a method of the list itself, which is atomic; ``flush`` writes many at a time.

    Args:
        thread: native id of the thread whose phases are marked.

    Attributes:
        fd: the anonymous file, for the sidecar to inherit.

    Raises:
        OSError: there is no memory for it.
    """

    def __init__(self, thread: int) -> None:
        self.fd = anonymous_file(NAME)
        _take_space(self.fd)
        self._memory = mmap.mmap(self.fd, SIZE)
        self._text_end = 0
        self._number = 0
        self._writing = False
        # Gone through as a copy only: the collector, which may run amid a ``flush``, adds lists for its own marks.
        self._waiting: dict[int, list[int]] = {}
        self._own_phases: dict[str, int] = {}
        _HEADER.pack_into(self._memory, 0, _MAGIC, os.getpid(), thread)

    def marker(self, kind: int, value: int = 0) -> Mark:
        """A function that makes a mark of one kind and value; it takes the time in nanoseconds."""
        return self._waiting.setdefault(kind | value << 32, []).append

    def flush(self) -> None:
        """Writes the marks that are not written yet. The collector may call this while it is at work already."""
        if self._writing:
            return
        self._writing = True
        try:
            taken = [(code, _take(times)) for code, times in self._waiting.copy().items() if times]
            end = self._number + sum(len(times) for _, times in taken)
            self._count(_BEGUN_AT, end)
            number = self._number
            for code, times in taken:
                self._write(number, code, times)
                number += len(times)
            self._count(_WRITTEN_AT, end)
            self._number = end
        finally:
            self._writing = False

    def flush_many(self) -> None:
        """The same if so many marks wait that memory matters."""
        if sum(map(len, self._waiting.copy().values())) > MANY:
            self.flush()

    def _write(self, number: int, code: int, times: list[int]) -> None:
        number += len(times)
        times = times[-CAPACITY:]
        records = array("q", bytes(len(times) * _RECORD.size))
        records[0::2] = array("q", times)
        records[1::2] = array("q", [code]) * len(times)
        data, size = records.tobytes(), _RECORD.size
        at = (number - len(times)) % CAPACITY
        fitting = min(len(data), (CAPACITY - at) * size)
        begin = _RECORDS_AT + at * size
        self._memory[begin : begin + fitting] = data[:fitting]
        self._memory[_RECORDS_AT : _RECORDS_AT + len(data) - fitting] = data[fitting:]

    def _count(self, at: int, number: int) -> None:
        """Written in one piece, as a copy of eight bytes is."""
        self._memory[at : at + _COUNT.size] = _COUNT.pack(number)

    def say(self, *words: str | int | None) -> None:
        """Adds a line of words to the text area; what does not fit is left out."""
        line = json.dumps(words).encode() + b"\n"
        end = self._text_end + len(line)
        if _TEXT_AT + end <= _RECORDS_AT:
            self._memory[_TEXT_AT + self._text_end : _TEXT_AT + end] = line
            self._text_end = end
            _TEXT_END.pack_into(self._memory, _TEXT_END_AT, end)

    def note(self, reason: str, enable: str = "") -> None:
        """Says what could not be looked at, and what would enable it."""
        self.say("note", reason, enable)

    def own_phase(self, name: str) -> int | None:
        """The number of one of the user's own phases; None if there are too many."""
        number = self._own_phases.get(name)
        if number is None and len(self._own_phases) < MAX_NAMES:
            number = self._own_phases[name] = OWN + len(self._own_phases)
            self.say("phase", number, name[:80])
        return number

    def name(self, number: int) -> str:
        """What a mark of a number is about, alike in all ranks: each numbers its own phases as they come."""
        return KINDS[number] if number < len(KINDS) else next(one for one, n in self._own_phases.items() if n == number)

    def finish(self, state: int) -> None:
        """Writes the last marks, and says how far the training process is: ``SEEN``, ``DETACHED`` or ``TREATABLE``."""
        try:
            self.flush()
        finally:
            self._memory[_TRAINER_AT] = state

    def sidecar(self) -> int:
        """What the sidecar does: ``NOT_YET``, ``WATCHING``, ``REPORTED`` or ``FAILED``."""
        return self._memory[_SIDECAR_AT]

    def handed_over(self) -> None:
        """Closes the file once the sidecar has it; the mapping goes when the last function that marks is gone."""
        os.close(self.fd)


class RingReader:
    """The sidecar's end.

    Args:
        fd: the anonymous file; it is closed once it is mapped.

    Attributes:
        pid: the training process.
        thread: native id of the thread whose phases are marked.
        lost: marks that were overwritten before they could be read.
        serialising: the last mark that was read lies in serialised steps.

    Raises:
        OSError: it cannot be mapped.
        ValueError: it is not a ring.
    """

    def __init__(self, fd: int) -> None:
        try:
            self._memory = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        magic, self.pid, self.thread = _HEADER.unpack_from(self._memory, 0)
        if magic != _MAGIC:
            self._memory.close()
            raise ValueError("not a ring")
        self.lost = 0
        self.serialising = False
        self._next = 0

    @property
    def trainer(self) -> int:
        """How far the training process is: 0, ``SEEN``, ``DETACHED`` or ``TREATABLE``."""
        return self._memory[_TRAINER_AT]

    def close(self) -> None:
        """Lets go of the memory."""
        self._memory.close()

    def tell(self, state: int) -> None:
        """Lets the training process know what the sidecar does."""
        self._memory[_SIDECAR_AT] = state

    def texts(self) -> list[list[str | int]]:
        """The lines of the text area."""
        (end,) = _TEXT_END.unpack_from(self._memory, _TEXT_END_AT)
        lines = self._memory[_TEXT_AT : _TEXT_AT + min(end, _RECORDS_AT - _TEXT_AT)].splitlines()
        return [json.loads(line) for line in lines]

    def read(self) -> list[Record]:
        """The marks that have come since the last call, in order of time."""
        end = self._count(_WRITTEN_AT)
        start = max(self._next, end - CAPACITY)
        records = [_RECORD.unpack_from(self._memory, self._place(number)) for number in range(start, end)]
        # What the writer has begun to write by now may have been overwritten while it was read.
        kept = max(0, self._count(_BEGUN_AT) - CAPACITY - start)
        self.lost += min(end, start + kept) - self._next
        self._next = end
        return sorted(Record(*record) for record in records[kept:])

    def _count(self, at: int) -> int:
        """Read in one piece, as a copy of eight bytes is."""
        return int(_COUNT.unpack(self._memory[at : at + _COUNT.size])[0])

    def _place(self, number: int) -> int:
        return _RECORDS_AT + number % CAPACITY * _RECORD.size


def find_ring(pid: int) -> RingReader | None:
    """The ring of another process; None if it has none, or may not be looked at."""
    folder = f"/proc/{pid}/fd"
    try:
        for entry in os.scandir(folder):
            if NAME in os.readlink(entry.path):
                ring = RingReader(os.open(entry.path, os.O_RDWR))
                if ring.pid == pid:
                    return ring
                ring.close()  # inherited by fork
    except (OSError, ValueError):
        return None
    return None


def _take(times: list[int]) -> list[int]:
    """Empties a list to which other threads may append meanwhile."""
    taken = times[:]
    del times[: len(taken)]
    return taken


def anonymous_file(name: str) -> int:
    """A file without a path, in memory where the kernel has that (``memfd_create``), else in the temporary folder.

    Raises:
        OSError: neither can be had.
    """
    try:
        return os.memfd_create(name)
    except (AttributeError, OSError):
        fd, path = tempfile.mkstemp(prefix=name)
        os.unlink(path)
        return fd


def _take_space(fd: int) -> None:
    """Takes all of a file's space now: memory that runs short must not become a SIGBUS later."""
    try:
        os.posix_fallocate(fd, 0, SIZE)
    except OSError:
        os.close(fd)
        raise
