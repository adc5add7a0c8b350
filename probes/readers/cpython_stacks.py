"""The Python stack of one thread, read from the interpreter's memory without stopping anybody.

py-spy reads all threads of a process in each sample, and asks the kernel about each of them: with thousands of threads
one sample takes tenths of a second. And it reads frame by frame, so that a stack that changes meanwhile is lost: of a
step of 4 ms it saw half of the time in the model, whose calls are short. Here a stack is read page by page and seldom
lost; one takes about 0.1 ms (Linux 6.18, x86-64, CPython 3.11).

What is read of a thread state, a frame and a code object, by version: Include/cpython/pystate.h, Include/cpython/code.h
and Include/internal/pycore_frame.h; up to 3.10 Include/cpython/frameobject.h. Their private structures do not change
within a minor version; what was read with an address of something else does not decode, and is no stack.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import PAGESIZE
from typing import NamedTuple

from perfdoctor.probes.readers.cpython_objects import text_at
from perfdoctor.probes.readers.process_memory import Memory

# What is read may be torn or no stack at all: more frames, characters or bytes of line numbers are not believed.
_DEEPEST = 2000
_LONGEST_TABLE = 1 << 16
_MOST_CALLS = 20_000  # remembered at once
_WORD = struct.Struct("<Q")
_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")


class CodeFrame(NamedTuple):
    """One call on a Python stack."""

    file: str
    function: str
    line: int


class PythonStack(NamedTuple):
    """The calls of one thread, outermost first.

    Attributes:
        calls: those of Python code.
        frames: the address of each one's frame, where it was a moment ago.
    """

    calls: tuple[CodeFrame, ...]
    frames: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Where things lie, in bytes.

    Attributes:
        frame: of the innermost frame in a thread state; where ``through`` is given, of what leads to it.
        through: of the innermost frame in ``_PyCFrame``.
        previous: of the calling frame in a frame; likewise ``code`` and ``instruction``.
        file_name: in a code object; likewise ``name``, ``first_line`` and ``line_table``.
        instructions: where a code object's instructions begin, to which a frame's points; None where it counts them.
        ascii_text: size of a string's head, if it is plain ASCII.
        text: size of it otherwise.
        variables: of a frame's local variables in it, its arguments first.
    """

    frame: int
    through: int | None
    previous: int
    code: int
    instruction: int
    file_name: int
    name: int
    first_line: int
    line_table: int
    instructions: int | None
    ascii_text: int
    text: int
    variables: int


def _until_3_10(instruction: int, variables: int) -> _Offsets:
    return _Offsets(
        frame=24, through=None, previous=24, code=32, instruction=instruction, variables=variables,
        file_name=104, name=112, first_line=40, line_table=120, instructions=None, ascii_text=48, text=72,
    )  # fmt: skip


_OFFSETS = {
    (3, 8): _until_3_10(instruction=104, variables=360),
    (3, 9): _until_3_10(instruction=104, variables=360),
    (3, 10): _until_3_10(instruction=96, variables=352),
    (3, 11): _Offsets(
        frame=56, through=8, previous=48, code=32, instruction=56, variables=72,
        file_name=112, name=128, first_line=72, line_table=136, instructions=184, ascii_text=48, text=72,
    ),
    (3, 12): _Offsets(
        frame=56, through=0, previous=8, code=0, instruction=56, variables=72,
        file_name=112, name=128, first_line=68, line_table=136, instructions=192, ascii_text=40, text=56,
    ),
    (3, 13): _Offsets(
        frame=72, through=None, previous=8, code=0, instruction=56, variables=72,
        file_name=112, name=128, first_line=68, line_table=136, instructions=200, ascii_text=40, text=56,
    ),
}  # fmt: skip


def knows(version: tuple[int, int] | None) -> bool:
    """Whether stacks of this CPython can be read."""
    return version in _OFFSETS


class StackChangedError(Exception):
    """A stack changed while it was read."""


class _Lines(NamedTuple):
    """The lines of a code object's instructions.

    Attributes:
        ends: where spans of instructions end, as frames count them.
        lines: the line of each span.
    """

    ends: list[int]
    lines: list[int]

    def of(self, index: int) -> int:
        """The line of an instruction; 0 if there is none."""
        if not self.lines:
            return 0
        return self.lines[min(bisect_right(self.ends, index), len(self.lines) - 1)]


class _Code(NamedTuple):
    file: str
    name: str
    lines: _Lines


class _Pages:
    """Memory of a process as it is at one instant, or nearly so: what lies in one page is read at once.

    From 3.11 on frames lie one after the other, so that a stack is read in one to three pieces and few of them change
    meanwhile: those that do are mostly of code that calls much, and it would seem to take less time than it does.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pages: dict[int, bytes] = {}
        self.count = 0

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes."""
        begin = address & -PAGESIZE
        if address + size > begin + PAGESIZE:
            self.count += 1
            return self._memory.read(address, size)
        if begin not in self._pages:
            self.count += 1
            self._pages[begin] = self._memory.read(begin, PAGESIZE)
        return self._pages[begin][address - begin : address - begin + size]


class StackReader:
    """Reads stacks of one process.

    Args:
        memory: its memory.
        version: of its CPython; one that ``knows`` knows.
    """

    def __init__(self, memory: Memory, version: tuple[int, int]) -> None:
        self._memory = memory
        self._at = _OFFSETS[version]
        self._lines_of = _reader_of_lines(version)
        self._frame_bytes = max(self._at.previous, self._at.code, self._at.instruction) + 8
        self._code_bytes = max(self._at.line_table, self._at.file_name, self._at.name) + 8
        self._codes: dict[int, _Code | None] = {}
        self._calls: dict[tuple[int, int], CodeFrame | None] = {}

    def read(self, thread_state: int) -> PythonStack:
        """The stack of a thread; empty where it runs no Python code.

        Args:
            thread_state: address of its ``PyThreadState``.

        Raises:
            StackChangedError: it changed meanwhile.
        """
        innermost = self._innermost(thread_state)
        if not innermost:
            return PythonStack((), ())
        pages = _Pages(self._memory)
        places = self._walk(pages, innermost)
        if pages.count > 1 and self._innermost(thread_state) != innermost:
            raise StackChangedError
        # Between calls from C lie frames that stand for no code.
        calls = [(call, frame) for frame, *place in reversed(places) if (call := self._call_at(*place)) is not None]
        return PythonStack(tuple(call for call, _ in calls), tuple(frame for _, frame in calls))

    def first_argument(self, frame: int) -> int | None:
        """The address of the first argument in a frame, of a method its object; of something else if that has ended."""
        return self._memory.word(frame + self._at.variables)

    def _innermost(self, thread_state: int) -> int:
        frame = self._memory.word(thread_state + self._at.frame)
        if frame and self._at.through is not None:
            frame = self._memory.word(frame + self._at.through)
        if frame is None:
            raise StackChangedError
        return frame

    def _walk(self, pages: _Pages, frame: int) -> list[tuple[int, int, int]]:
        """Where each frame lies, its code object and its instruction, the innermost first."""
        size, at = self._frame_bytes, self._at
        found = []
        for _ in range(_DEEPEST):
            data = pages.read(frame, size)
            if len(data) < size:
                raise StackChangedError
            found.append((frame, _word(data, at.code), _word(data, at.instruction)))
            frame = _word(data, at.previous)
            if not frame:
                return found
        raise StackChangedError

    def _call_at(self, code: int, instruction: int) -> CodeFrame | None:
        if (code, instruction) not in self._calls:
            self._calls[code, instruction] = self._call(code, instruction)
        return self._calls[code, instruction]

    def _call(self, address: int, instruction: int) -> CodeFrame | None:
        if len(self._calls) >= _MOST_CALLS:
            self.forget()
        if address not in self._codes:
            self._codes[address] = self._read_code(address)
        code = self._codes[address]
        if code is None:
            return None
        begin = self._at.instructions
        # Where frames count instructions, the number takes 32 bits.
        index = instruction & 0xFFFFFFFF if begin is None else (instruction - address - begin) // 2
        return CodeFrame(code.file, code.name, code.lines.of(index))

    def forget(self) -> None:
        """Reads code objects anew from here on: they may have been freed."""
        self._codes.clear()
        self._calls.clear()

    def _read_code(self, address: int) -> _Code | None:
        data = self._memory.read(address, self._code_bytes)
        if len(data) < self._code_bytes:
            return None
        file, name = self._text(_word(data, self._at.file_name)), self._text(_word(data, self._at.name))
        if not file or not name or file == "<shim>":
            return None
        table = self._bytes(_word(data, self._at.line_table))
        (first_line,) = struct.unpack_from("<i", data, self._at.first_line)
        return _Code(file, name, self._lines_of(table, first_line))

    def _text(self, address: int) -> str | None:
        return text_at(self._memory, address, self._at.ascii_text, self._at.text)

    def _bytes(self, address: int) -> bytes:
        length = self._memory.word(address + 16) or 0
        return self._memory.read(address + 32, length) if length <= _LONGEST_TABLE else b""


def _word(data: bytes, offset: int) -> int:
    word: int = _WORD.unpack_from(data, offset)[0]
    return word


def _reader_of_lines(version: tuple[int, int]) -> Callable[[bytes, int], _Lines]:
    """What reads a line table, given the first line."""
    if version >= (3, 11):
        return _from_locations
    return _from_ranges if version == (3, 10) else _from_steps


def _from_locations(table: bytes, line: int) -> _Lines:
    """From 3.11 on (Objects/locations.md): entries begin with a byte whose highest bit is set."""
    found = _Lines([], [])
    covered = 0
    for entry in _ENTRY.findall(table):
        kind = entry[0] >> 3 & 15
        if kind in (13, 14):  # the line's change is a signed number of variable length
            line += _signed(entry)
        elif 10 <= kind <= 12:
            line += kind - 10
        covered += (entry[0] & 7) + 1
        found.ends.append(covered)
        found.lines.append(line)
    return found


def _signed(entry: bytes) -> int:
    """The number that follows an entry's first byte: six bits in each byte, lowest first, and a bit for "more"."""
    number = 0
    for shift, byte in enumerate(entry[1:]):
        number |= (byte & 63) << 6 * shift
        if not byte & 64:
            break
    return -(number >> 1) if number & 1 else number >> 1


def _from_ranges(table: bytes, line: int) -> _Lines:
    """In 3.10 (Objects/lnotab_notes.txt): pairs of a range's length in bytes and the line's change before it."""
    found = _Lines([], [])
    covered, known = 0, line
    for length, change in _pairs(table):
        if change != -128:  # else these instructions have no line
            line += change
            known = line
        covered += length
        found.ends.append(covered // 2)
        found.lines.append(known)
    return found


def _from_steps(table: bytes, line: int) -> _Lines:
    """Before 3.10 (Objects/lnotab_notes.txt): pairs of steps in bytes and in lines; frames count bytes."""
    found = _Lines([], [])
    covered = 0
    for step, change in _pairs(table):
        covered += step
        found.ends.append(covered)
        found.lines.append(line)
        line += change
    return _Lines(found.ends, [*found.lines, line])


def _pairs(table: bytes) -> Iterator[tuple[int, int]]:
    return struct.iter_unpack("Bb", table[: len(table) // 2 * 2])
