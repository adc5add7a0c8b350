"""Where a running CPython keeps its interpreter lock and its collector's state.

CPython publishes these places from 3.13 on (``_Py_DebugOffsets`` at the start of ``_PyRuntime``,
Include/internal/pycore_debug_offsets.h; 3.13: pycore_runtime.h). For 3.8 to 3.12 they are private, and
found by what is peculiar to their structure, not by tables of offsets per version:

* ``struct _gil_runtime_state`` (Include/internal/pycore_gil.h): ``unsigned long interval; PyThreadState
  *last_holder; int locked;``. The holder must be a thread state on its interpreter's list of threads.
* ``struct _gc_runtime_state`` (Include/internal/pycore_gc.h; 3.8: pycore_pymem.h): ``struct gc_generation
  generations[3]; PyGC_Head *generation0; struct gc_generation permanent_generation; struct
  gc_generation_stats generation_stats[3]; int collecting;`` where ``generation0`` points at
  ``generations[0]``, nine words before it.
* ``PyThreadState`` (Include/cpython/pystate.h) begins with ``prev``, ``next`` and ``interp``, and holds
  ``thread_id``, the thread's ``pthread_t``. glibc says to debuggers where that keeps the kernel's thread id
  (``_thread_db_pthread_tid``, nptl_db/structs.def).
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes.readers.process_memory import Mapping, Memory, image_path, images
from perfdoctor.probes.readers.symbols import Elf
from perfdoctor.probes.readers.thread_ids import ThreadIds

_SELF_WORDS = 9  # generations[3] are 3 x 24 bytes
_COLLECTING = 72 + 8 + 24 + 72  # generations, generation0, permanent generation, statistics
_LIST_WORDS = 64  # the head of the list of threads lies near the interpreter state's start
_THREAD_WORDS = 64  # so does thread_id in a thread state
_MOST_THREADS = 10_000  # a list that is longer was torn while it was read
_ADDRESSES = 1 << 56  # of user space, with page tables of five levels


@dataclass(frozen=True, slots=True)
class LockSearch:
    """Looks for the interpreter lock in memory that may hold it.

    Attributes:
        native_id: offset of the kernel's thread id in glibc's thread descriptor.
        tids: the process's threads, as its own pid namespace counts.
    """

    memory: Memory
    native_id: int
    tids: frozenset[int]

    def run(self, base: int, words: Sequence[int], interval: int | None) -> Iterator[tuple[int, int, int]]:
        """Address of ``last_holder``, interpreter and offset of ``thread_id`` for all that looks like the
        lock.

        Args:
            base: address of the first word.
            words: the memory to search.
            interval: the switch interval in µs; None for any.
        """
        if interval is not None:
            places = [i for i, word in enumerate(words[:-2]) if word == interval]
        else:
            places = [i for i, word in enumerate(words[:-2]) if 0 < word < 1 << 32]
        for i in places:
            holder, locked = words[i + 1], words[i + 2]
            if locked & 0xFFFFFFFF > 1 or holder & 7 or not holder >> 16:
                continue
            found = self._lock(base + 8 * (i + 1), holder)
            if found is not None:
                yield found

    def _lock(self, address: int, holder: int) -> tuple[int, int, int] | None:
        states = _thread_states(self.memory, holder)
        thread_id = _thread_id_offset(self.memory, states, self.native_id, self.tids)
        if thread_id is None:
            return None
        interpreter = self.memory.words(holder, 3)[2]
        if interpreter <= address < interpreter + 8 * _LIST_WORDS:
            return None  # ``threads.head``, between two small numbers, looks the same
        return address, interpreter, thread_id


def _thread_states(memory: Memory, member: int) -> list[int]:
    """The interpreter's list of threads that this thread state is on, empty if it is on none."""
    found = memory.words(member, 3)
    if len(found) < 3:
        return []
    interpreter = found[2]
    states: list[int] = []
    state = member
    for _ in range(_MOST_THREADS):  # back to the head, which the interpreter points at
        previous = memory.word(state)
        if not previous:
            break
        state = previous
    if state not in memory.words(interpreter, _LIST_WORDS):
        return []
    while state and len(states) < _MOST_THREADS:
        found = memory.words(state, 3)
        if len(found) < 3 or found[2] != interpreter:
            return []
        states.append(state)
        state = found[1]
    return states if member in states else []


def _thread_id_offset(memory: Memory, states: list[int], native_id: int, tids: frozenset[int]) -> int | None:
    """Where thread states hold the ``pthread_t``: what is found there must lead to a living thread's id, in
    all of them."""
    for offset in range(24, 8 * _THREAD_WORDS, 8) if states else ():
        for state in states:
            pthread = memory.word(state + offset)
            if not pthread or memory.number(pthread + native_id) not in tids:
                break
        else:
            return offset
    return None


def collecting_flags(base: int, words: Sequence[int]) -> Iterator[int]:
    """Addresses of ``collecting`` after what looks like the collector's generations."""
    for i in range(_SELF_WORDS, len(words) - 14):
        first = i - _SELF_WORDS
        if words[i] == base + 8 * first:
            thresholds = [words[first + 3 * k + 2] & 0xFFFFFFFF for k in range(3)]
            links = [words[first + 3 * k + j] for k in range(3) for j in (0, 1)]
            flag = words[first + _COLLECTING // 8] & 0xFFFFFFFF
            if all(t < 1 << 31 for t in thresholds) and all(link >> 16 for link in links) and flag < 2:
                yield base + 8 * first + _COLLECTING


_COOKIE = b"xdebugpy"
_INTERPRETER_WORDS = 512  # the collector lies within the first 4 KiB of an interpreter state
_DEFAULT_INTERVAL = 5000  # µs, DEFAULT_INTERVAL in Python/ceval_gil.h


class _Published(NamedTuple):
    """Indices into the 64-bit words after the cookie, as ordered in ``_Py_DebugOffsets`` of one minor
    version."""

    collector: int
    lock: int
    holder: int
    thread_id: int
    collecting: int


_PUBLISHED = {
    (3, 13): _Published(collector=9, lock=13, holder=17, thread_id=23, collecting=71),
    (3, 14): _Published(collector=10, lock=14, holder=18, thread_id=26, collecting=81),
}
_INTERPRETERS_HEAD = 4  # the word of _Py_DebugOffsets that says where the list of interpreters begins
OLDEST, NEWEST = (3, 8), max(_PUBLISHED)
"""The versions of CPython in which lock and collector are found."""


class LayoutError(Exception):
    """The interpreter's state was not found. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Addresses in one program image (and in its forks).

    Attributes:
        holder: of ``last_holder``; ``locked`` follows 8 bytes later. None in a build without the lock.
        collecting: of the collector's flag.
        thread_id: offset of the ``pthread_t`` in a thread state.
        native_id: offset of the kernel's thread id in glibc's thread descriptor.
    """

    holder: int | None
    collecting: int
    thread_id: int
    native_id: int

    def thread(self, memory: Memory, thread_state: int) -> int | None:
        """Kernel thread id, as its own pid namespace counts, of a thread state."""
        pthread = memory.word(thread_state + self.thread_id)
        return memory.number(pthread + self.native_id) if pthread else None

    def main_state(self, memory: Memory, main: int) -> int:
        """The main thread's state: the last one of the interpreter's list, which grows at its head.

        Args:
            memory: of the process.
            main: the thread's id, as its own pid namespace counts.

        Raises:
            LayoutError: it is not there.
        """
        state = 0 if self.holder is None else memory.word(self.holder) or 0
        for _ in range(_MOST_THREADS if state else 0):
            following = memory.words(state, 2)[1:]
            if following == (0,) and self.thread(memory, state) == main:
                return state
            if following in ((), (0,)):
                break
            state = following[0]
        raise LayoutError("the main thread was not found in the interpreter's list of threads")

    def states(self, memory: Memory, member: int) -> list[int]:
        """All thread states of the interpreter that one of them belongs to; empty if the list changed meanwhile."""
        return _thread_states(memory, member)

    def ident(self, memory: Memory, thread_state: int) -> int | None:
        """Python's identifier of the thread of a thread state (``threading.get_ident``); None where there is none.

        glibc's ``pthread_t`` is an address of the process's: another number shows that the state has been given back.
        """
        ident = memory.word(thread_state + self.thread_id)
        return ident if ident is not None and ident < _ADDRESSES else None

    def fits(self, memory: Memory, tids: frozenset[int]) -> bool:
        """These addresses hold plausible values: flags are 0 or 1, and the last holder is one of the
        process's threads."""
        if memory.number(self.collecting) not in (0, 1):
            return False
        if self.holder is None:
            return True
        words = memory.words(self.holder, 2)
        if len(words) < 2 or words[1] & 0xFFFFFFFF not in (0, 1):
            return False
        return self.thread(memory, words[0]) in tids


class Layouts:
    """The layouts of the program images seen so far: a forked child has its parent's, and so have equal programs that
    were not moved in memory.
    """

    def __init__(self) -> None:
        self._known: list[Layout] = []

    def open(self, process: Path, ids: ThreadIds) -> tuple[Memory, Layout, int]:
        """The memory of a process, to be closed, the layout of its interpreter there, and its main thread's state.

        Raises:
            OSError: it is gone, or may not be looked at.
            LayoutError: its interpreter, or its main thread there, was not found.
        """
        memory = Memory(process)
        try:
            layout = self.of(process, memory, ids.inner())
            return memory, layout, layout.main_state(memory, ids.main)
        except (OSError, LayoutError):
            memory.close()
            raise

    def of(self, process: Path, memory: Memory, tids: frozenset[int]) -> Layout:
        """The layout of a process; arguments and exceptions are those of ``find_layout``."""
        layout = next((known for known in self._known if known.fits(memory, tids)), None)
        if layout is None:
            layout = find_layout(process, memory, tids)
            self._known.append(layout)
        return layout


def find_layout(process: Path, memory: Memory, tids: frozenset[int]) -> Layout:
    """Finds lock and collector of a running CPython 3.8 to 3.14.

    Args:
        process: its directory in /proc.
        memory: its memory.
        tids: its threads, as its own pid namespace counts.

    Raises:
        LayoutError: this is no CPython, or not one whose state we can find and check.
        OSError: the process is gone.
    """
    loaded = list(images(process).values())
    runtime, size = _runtime(process, loaded)
    native_id = _native_id_offset(process, memory, loaded)
    if memory.read(runtime, 8) == _COOKIE:
        layout = _published_layout(memory, runtime, native_id)
    else:
        layout = _searched_layout(memory, runtime, size, native_id, tids)
    if not layout.fits(memory, tids):
        raise LayoutError("the interpreter's state does not hold plausible values where it was expected")
    return layout


def _symbol(process: Path, image: Mapping, name: str) -> tuple[int, int] | None:
    """Address in the process, and size, of an exported symbol."""
    try:
        with Elf(image_path(process, image)) as elf:
            found = elf.find(name)
            return (image.start - elf.lowest_address + found[0], found[1]) if found else None
    except (OSError, ValueError):
        return None


def _runtime(process: Path, images: list[Mapping]) -> tuple[int, int]:
    named = [image for image in images if "python" in image.path.rpartition("/")[2]]
    for image in sorted(named, key=lambda image: "libpython" not in image.path) + images[:1]:
        found = _symbol(process, image, "_PyRuntime")
        if found:
            return found
    raise LayoutError("no CPython interpreter that exports _PyRuntime is mapped")


def _native_id_offset(process: Path, memory: Memory, images: list[Mapping]) -> int:
    """Reads glibc's own description of where ``struct pthread`` holds the thread id: bits, count, offset."""
    for image in images:
        if image.path.rpartition("/")[2].startswith(("libc.so", "libc-", "libpthread")):
            found = _symbol(process, image, "_thread_db_pthread_tid")
            if found:
                described = memory.read(found[0], 12)
                if len(described) == 12:
                    bits, count, offset = struct.unpack("<III", described)
                    if bits == 32 and count == 1 and offset < 4096:
                        return int(offset)
    raise LayoutError("the C library does not say where it keeps thread ids (only glibc does)")


def _published_layout(memory: Memory, runtime: int, native_id: int) -> Layout:
    offsets = memory.words(runtime + 8, 100)
    if len(offsets) < 100:
        raise LayoutError("the interpreter's debug offsets cannot be read")
    version = (offsets[0] >> 24 & 0xFF, offsets[0] >> 16 & 0xFF)
    where = _PUBLISHED.get(version)
    if where is None:
        raise LayoutError("CPython {}.{} is not known to this version of perfdoctor".format(*version))
    interpreter = memory.word(runtime + offsets[_INTERPRETERS_HEAD])
    if not interpreter:
        raise LayoutError("the interpreter is not initialised")
    lock = memory.word(interpreter + offsets[where.lock]) or 0
    # The published offsets lead to the interpreter's own lock, which the main interpreter always uses.
    holder = interpreter + offsets[where.holder]
    if not offsets[1] and not lock <= holder < lock + 64:
        raise LayoutError("the interpreter does not use a lock of its own")
    return Layout(
        holder=None if offsets[1] else holder,
        collecting=interpreter + offsets[where.collector] + offsets[where.collecting],
        thread_id=offsets[where.thread_id],
        native_id=native_id,
    )


def _searched_layout(memory: Memory, runtime: int, size: int, native_id: int, tids: frozenset[int]) -> Layout:
    words = array("Q", memory.read(runtime, size & ~7))
    search = LockSearch(memory, native_id, tids)
    locks = list(search.run(runtime, words, _DEFAULT_INTERVAL)) or list(search.run(runtime, words, None))
    if len(locks) != 1:
        raise LayoutError(f"{len(locks)} places in the interpreter look like its lock")
    holder, interpreter, thread_id = locks[0]
    flags = set(collecting_flags(runtime, words))
    flags |= set(collecting_flags(interpreter, memory.words(interpreter, _INTERPRETER_WORDS)))
    if len(flags) != 1:
        raise LayoutError(f"{len(flags)} places in the interpreter look like its collector")
    return Layout(holder, flags.pop(), thread_id, native_id)
