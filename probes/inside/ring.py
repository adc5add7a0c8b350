"""The ring: marks on their way from a training process to the sidecar, in memory that outlives either of them.

The memory is an anonymous file (``memfd_create``, a temporary file where the kernel has none), so nothing has to be
cleaned up: it lives as long as somebody has it open. Layout: a header, a text area that only grows (names of the user's
phases, notes about what failed), and ``CAPACITY`` records of 32 bytes. A record carries its number at both ends. The
writer never waits: it overwrites the oldest record. The reader sees from the numbers what it has missed, and counts it.
"""

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

NAME = "perfdoctor-marks"
_MAGIC = b"pdmarks1"
_HEADER = struct.Struct("<8sII")  # magic, pid, thread that trains
_TEXT_END = struct.Struct("<I")
_TEXT_END_AT, _TRAINER_AT, _SIDECAR_AT, _TEXT_AT = 32, 40, 41, 64
_RECORDS_AT = 16_384
# Number (from 1), time, kind, value, number again.
_RECORD = struct.Struct("<QqIIQ")
_NUMBER = struct.Struct("<Q")
# A power of two. A step makes about 12 marks: room for more than 2500 steps that were not read yet, in 1 MiB.
CAPACITY = 32_768
SIZE = _RECORDS_AT + CAPACITY * _RECORD.size
# With so many marks waiting (three numbers each) they are written at the collector's next run, step or no step.
MANY = 30_000
# How far behind a missing record the reader looks for later ones.
_LOOK_AHEAD = 64

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
)
SCOPE, DATA, LOADER_START, FORWARD, LOSS, BACKWARD, OPTIMIZER, SYNC, COLLECTOR, STEP, OBSERVED, CLOSURE = range(
    len(KINDS)
)
OWN = 64
BEGIN, END, POINT = 0, 1 << 8, 2 << 8
EDGES = ("begin", "end", "point")

# How far the training process is: the last observed step has ended; perfdoctor has stepped aside.
SEEN, ASIDE = 1, 2
# What the sidecar does.
NOT_YET, WATCHING, REPORTED, FAILED = range(4)


class Record(NamedTuple):
    """One mark as it lies in the ring."""

    time_ns: int
    kind: int
    value: int


class RingWriter:
    """The training process's end.

    Args:
        thread: native id of the thread whose phases are marked.

    Attributes:
        fd: the anonymous file, for the sidecar to inherit.
        remember: makes a mark from ``(time_ns, kind, value)``. After a step of a model the processor's caches hold the
            model, and whatever is touched costs many times what it costs in a loop: writing a record 4 µs instead of
            0.3 µs (measured). So a mark is only added to a list, by a method of the list itself, which is atomic;
            ``flush`` writes many at a time.

    Raises:
        OSError: there is no memory for it.
    """

    def __init__(self, thread: int) -> None:
        self.fd = _anonymous_file(NAME, SIZE)
        self._memory = mmap.mmap(self.fd, SIZE)
        self._text_end = 0
        self._number = 0
        self._writing = False
        self._waiting: list[int] = []
        self.remember: Callable[[tuple[int, int, int]], None] = self._waiting.extend
        _HEADER.pack_into(self._memory, 0, _MAGIC, os.getpid(), thread)

    def flush(self) -> None:
        """Writes the marks that are not written yet. The collector may call this while it is at work already."""
        if self._writing:
            return
        self._writing = True
        memory, pack, mask, size, number = self._memory, _RECORD.pack_into, CAPACITY - 1, _RECORD.size, self._number
        taken = self._waiting[:]
        for time_ns, kind, value in zip(taken[0::3], taken[1::3], taken[2::3], strict=True):
            number += 1
            pack(memory, _RECORDS_AT + ((number - 1) & mask) * size, number, time_ns, kind, value, number)
        self._number = number
        del self._waiting[: len(taken)]
        self._writing = False

    def flush_many(self) -> None:
        """The same if so many marks wait that memory matters."""
        if len(self._waiting) > MANY:
            self.flush()

    def say(self, *words: "str | int") -> None:
        """Adds a line of words to the text area; what does not fit is left out."""
        line = json.dumps(words).encode() + b"\n"
        end = self._text_end + len(line)
        if _TEXT_AT + end <= _RECORDS_AT:
            self._memory[_TEXT_AT + self._text_end : _TEXT_AT + end] = line
            self._text_end = end
            _TEXT_END.pack_into(self._memory, _TEXT_END_AT, end)

    def finish(self, state: int) -> None:
        """Writes the last marks and tells the sidecar how far the training process is: ``SEEN`` or ``ASIDE``."""
        self.flush()
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
        lost: marks that were overwritten, or never finished, before they could be read.

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
        self._next = 1
        self._gap = 0

    @property
    def trainer(self) -> int:
        """How far the training process is: 0, ``SEEN`` or ``ASIDE``."""
        return self._memory[_TRAINER_AT]

    def close(self) -> None:
        """Lets go of the memory."""
        self._memory.close()

    def tell(self, state: int) -> None:
        """Tells the training process what the sidecar does."""
        self._memory[_SIDECAR_AT] = state

    def texts(self) -> "list[list[str | int]]":
        """The lines of the text area."""
        (end,) = _TEXT_END.unpack_from(self._memory, _TEXT_END_AT)
        lines = self._memory[_TEXT_AT : _TEXT_AT + min(end, _RECORDS_AT - _TEXT_AT)].splitlines()
        return [json.loads(line) for line in lines]

    def read(self, *, last: bool = False) -> Iterator[Record]:
        """The marks that have come since the last call.

        Args:
            last: the writer is gone, so a record that is missing now will never come.
        """
        while True:
            at = self._slot(self._next)
            (after,) = _NUMBER.unpack_from(self._memory, at + _RECORD.size - _NUMBER.size)
            number, time_ns, kind, value, _ = _RECORD.unpack_from(self._memory, at)
            # The end was looked at before the beginning: if both are right, nothing was overwritten in between.
            (before,) = _NUMBER.unpack_from(self._memory, at)
            if after == number == before == self._next:
                self._next += 1
                yield Record(time_ns, kind, value)
            elif before > self._next:
                self._skip_to(before - CAPACITY + 1)  # the writer has come round: this is the oldest that is left
            elif not self._skip_gap(last):
                return

    def _skip_gap(self, last: bool) -> bool:
        """Leaves out a record that an interrupt kept from being written: it is missing twice, and later ones exist."""
        if self._gap != self._next and not last:
            self._gap = self._next
            return False
        for later in range(self._next + 1, self._next + _LOOK_AHEAD):
            if _NUMBER.unpack_from(self._memory, self._slot(later))[0] == later:
                self._skip_to(later)
                return True
        return False

    def _skip_to(self, number: int) -> None:
        number = max(number, self._next + 1)
        self.lost += number - self._next
        self._next = number

    def _slot(self, number: int) -> int:
        return _RECORDS_AT + ((number - 1) & (CAPACITY - 1)) * _RECORD.size


def find_ring(pid: int) -> "RingReader | None":
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


def _anonymous_file(name: str, size: int) -> int:
    """A file without a name, all of its space taken: memory that runs short must not become a SIGBUS later."""
    try:
        fd = os.memfd_create(name)
    except (AttributeError, OSError):
        fd, path = tempfile.mkstemp(prefix=name)
        os.unlink(path)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.close(fd)
        raise
    return fd
