"""What the Python threads of a process that waits are in: the exception that its main thread handles, others' stacks.

Read from the interpreter's memory without stopping anybody; of the exception what ``sys.exception()`` says. A thread
state points at a stack of what is being handled, one entry per generator or coroutine that runs (``_PyErr_StackItem``,
Include/cpython/pystate.h); the exception's type has its name (``tp_name``, Include/cpython/object.h).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers import cpython_stacks
from perfdoctor.probes.readers.cpython import LayoutError, Layouts
from perfdoctor.probes.readers.cpython_stacks import StackChangedError, StackReader
from perfdoctor.probes.readers.process import python_of
from perfdoctor.probes.readers.process_memory import Memory
from perfdoctor.probes.readers.thread_ids import ThreadIds
from perfdoctor.probes.readers.training_stacks import StackLog
from perfdoctor.recording.schema import PythonThread, Sample

MOST_THREADS = 64  # of one process
_TYPE = 8  # of an object, after its count of references
_TYPE_NAME = 24  # in a type object
_LONGEST_NAME = 128  # bytes that are read of a type's name, never beyond its page
_MOST_ITEMS = 50  # generators within generators
_NONE = "NoneType"


class _ExceptionOffsets(NamedTuple):
    """Where things lie, in bytes: the stack in a thread state; the exception, and the entry below, in an entry."""

    stack: int
    exception: int
    below: int


_OFFSETS = {
    (3, 8): _ExceptionOffsets(144, 8, 24),
    (3, 9): _ExceptionOffsets(144, 8, 24),
    (3, 10): _ExceptionOffsets(144, 8, 24),
    (3, 11): _ExceptionOffsets(120, 0, 8),
    (3, 12): _ExceptionOffsets(104, 0, 8),
    (3, 13): _ExceptionOffsets(120, 0, 8),
}


class WaitingThreads:
    """The Python threads of one process. To be closed.

    Args:
        pid: the process.
        layouts: of interpreters.
        root: where /proc is.

    Raises:
        OSError: it is gone, or may not be looked at.
        LayoutError: it runs no Python, or its interpreter was not found.
    """

    def __init__(self, pid: int, layouts: Layouts, root: Path = Path("/")) -> None:
        process = root / f"proc/{pid}"
        python = python_of(pid, root)
        if python is None or python.version is None:
            raise LayoutError(f"process {pid} runs no Python that is known")
        self._pid, self._version = pid, python.version
        self._ids = ThreadIds(process)
        self._memory, self._layout, self._main = layouts.open(process, self._ids)

    def close(self) -> None:
        """Lets go of the process."""
        self._memory.close()

    def handled_exception(self) -> str | None:
        """The type of the exception that the main thread handles; "" if none, None where that cannot be read."""
        return _handled_exception(self._memory, self._main, self._version)

    def stacks_of_others(self, now_ns: int) -> Iterator[Sample]:
        """The stacks of the other Python threads, as far as they did not change while they were read."""
        if not cpython_stacks.knows(self._version):
            return
        reader, log = StackReader(self._memory, self._version), StackLog(self._pid)
        for state in self._layout.states(self._memory, self._main)[:MOST_THREADS]:
            ident, inner = self._layout.ident(self._memory, state), self._layout.thread(self._memory, state)
            tid = self._ids.outer(inner) if inner else None
            if state == self._main or not ident or not tid:
                continue
            try:
                log.note(now_ns, ident, reader.read(state).calls)
            except StackChangedError:
                continue
            yield PythonThread(now_ns, self._pid, tid, ident, "")
        yield from filter(None, [log.segment(now_ns)])


def _handled_exception(memory: Memory, thread_state: int, version: tuple[int, int]) -> str | None:
    """The type of the exception that a thread handles just now: what its innermost ``except`` or ``finally`` caught.

    Args:
        memory: of the process.
        thread_state: the thread's state.
        version: of its CPython.

    Returns:
        The type's name, "" if it handles none; None where that cannot be read.
    """
    offsets = _OFFSETS.get(version)
    if offsets is None:
        return None
    item = memory.word(thread_state + offsets.stack)
    for _ in range(_MOST_ITEMS):
        if item is None:
            return None
        if not item:
            return ""
        exception = memory.word(item + offsets.exception)
        if exception is None:
            return None
        if exception and (name := _type_name(memory, exception)) != _NONE:
            return name
        item = memory.word(item + offsets.below)
    return ""


def _type_name(memory: Memory, thing: int) -> str | None:
    """The name of an object's type; None where it cannot be read."""
    kind = memory.word(thing + _TYPE)
    address = memory.word(kind + _TYPE_NAME) if kind else None
    if not address:
        return None
    # Up to the end of the page at first: the next one may not be mapped.
    size = min(_LONGEST_NAME, 4096 - address % 4096)
    name = memory.read(address, size).split(b"\0")[0].decode("utf-8", "replace")
    return name if name.replace(".", "").isidentifier() else None
