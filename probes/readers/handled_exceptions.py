"""Whether a Python thread is in an exception handler, and which exception it handles.

Read from the interpreter's memory without stopping anybody: ``sys.exception()`` of another process. A thread state
points at a stack of what is being handled, one entry per generator or coroutine that runs
(``_PyErr_StackItem``, Include/cpython/pystate.h); the exception's type has its name (``tp_name``,
Include/cpython/object.h).
"""

from __future__ import annotations

from typing import NamedTuple

from perfdoctor.probes.readers.process_memory import Memory

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


def handled_exception(memory: Memory, thread_state: int, version: tuple[int, int]) -> str | None:
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
