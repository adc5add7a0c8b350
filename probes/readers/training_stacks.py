"""Python stacks of a process: of the threads that matter, and of the others in turn, however many there are.

Those that matter are the main thread and the threads that were seen to hold the interpreter lock lately. What was seen
is kept in the form of py-spy's traces, so that whoever reads a recording need not know who has sampled. Where the main
thread takes a batch from a loader, its iterator is asked how many it has given.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from perfdoctor.probes.readers.cpython import Layouts
from perfdoctor.probes.readers.cpython_objects import Objects
from perfdoctor.probes.readers.cpython_stacks import CodeFrame, PythonStack, StackChangedError, StackReader
from perfdoctor.probes.readers.thread_ids import ThreadIds
from perfdoctor.recording.clock import NS_PER_S, NS_PER_US
from perfdoctor.recording.schema import LoaderSample, PythonThread, Sample, StackMissed, StackSegment

_TRIES, _MANY_TRIES = 2, 20  # a stack may change while it is read
_AT_MOST = 4  # threads besides the main one
_FOLLOWED_NS = 2 * NS_PER_S  # since they held the lock
_FORGET_NS = 30 * NS_PER_S  # code objects are freed, and others take their addresses
_MOST_THREADS = 10_000  # a list that is longer was torn while it was read
_NAMED_AT_ONCE = 50  # code objects a round: each takes several reads of the job's memory
# Iterators of loaders: files and name of the method that gives a batch, and what counts batches in its object.
_LOADERS = ("torch/utils/data/dataloader.py", "torchdata/stateful_dataloader/stateful_dataloader.py")
_NEXT, _GIVEN = "__next__", "_num_yielded"
_ASK_LOADER_NS = NS_PER_S // 10  # it takes as long as two stacks


@dataclass
class _Followed:
    """A thread whose stack is sampled.

    Attributes:
        ident: Python's identifier of it (``threading.get_ident``).
        held_ns: when it was last seen to hold the lock.
    """

    ident: int
    held_ns: int


class TrainingStacks:
    """Samples one process.

    Args:
        pid: the process.
        version: of its CPython; one that ``cpython_stacks.knows``.
        layouts: where interpreters keep their lock.
        root: where /proc is.

    Raises:
        OSError: it is gone, or may not be looked at.
        LayoutError: its interpreter, or its main thread there, was not found.
    """

    def __init__(self, pid: int, version: tuple[int, int], layouts: Layouts, root: Path = Path("/")) -> None:
        process = root / "proc" / str(pid)
        self._pid = pid
        self._ids = ThreadIds(process)
        self._memory, self._layout, self._main = layouts.open(process, self._ids)
        self._reader, self._objects = StackReader(self._memory, version), Objects(self._memory, version)
        self._followed: dict[int, _Followed] = {}  # by address of the thread state
        self._log = StackLog(pid)
        self._turns = self._python_threads()
        self._took_turns = False
        self._met: set[int] = set()  # identifiers of those who had their turn
        self._named: set[int] = set()  # of all that were met
        self._forget_ns = 0
        self._ask_loader_ns = 0

    def main_stack(self) -> tuple[CodeFrame, ...]:
        """The main thread's stack, outermost call first; empty where it runs no Python code, or was not read."""
        stack = self._read(self._main, _MANY_TRIES)
        return stack.calls if stack else ()

    def sample(self, now_ns: int, others: int = 0) -> Iterator[Sample]:
        """Takes one sample of each thread that matters.

        Args:
            now_ns: when.
            others: of how many others.
        """
        if now_ns >= self._forget_ns:
            self._forget_ns = now_ns + _FORGET_NS
            self._reader.forget()
        yield from self._follow(self._main, now_ns)
        holder, held = self._lock()
        if held:
            yield from self._follow(holder, now_ns)
        for state, thread in list(self._followed.items()):
            ended = self._layout.ident(self._memory, state) != thread.ident
            if ended or (state != self._main and now_ns - thread.held_ns > _FOLLOWED_NS):
                del self._followed[state]
                self._log.note(now_ns, thread.ident, ())
            else:
                yield from self._sample_thread(state, thread.ident, now_ns)
        yield from self._take_turns(now_ns, others)

    def segment(self, now_ns: int) -> StackSegment | None:
        """What was seen since the last segment; None if nothing was."""
        return self._log.segment(now_ns)

    def close(self) -> None:
        """Lets go of the process."""
        self._memory.close()

    def _sample_thread(self, state: int, ident: int, now_ns: int) -> Iterator[StackMissed | LoaderSample]:
        stack = self._read(state, _TRIES)
        if stack is None:
            yield StackMissed(now_ns, self._pid, ident)
            return
        self._log.note(now_ns, ident, stack.calls)
        if state == self._main and now_ns >= self._ask_loader_ns:
            self._ask_loader_ns = now_ns + _ASK_LOADER_NS
            yield from self._sample_loader(stack, now_ns)

    def _sample_loader(self, stack: PythonStack, now_ns: int) -> Iterator[LoaderSample]:
        """The iterator that a stack takes a batch from; nothing where it takes none, or that changes just then."""
        for call, frame in zip(stack.calls, stack.frames, strict=True):
            if call.function.endswith(_NEXT) and call.file.endswith(_LOADERS):
                iterator = self._reader.first_argument(frame)
                number = self._objects.attribute(iterator, _GIVEN) if iterator else None
                given = self._objects.number(number) if number else None
                if iterator and given is not None:
                    yield LoaderSample(now_ns, self._pid, iterator, given)
                return

    def _read(self, state: int, tries: int) -> PythonStack | None:
        """The stack of a thread; None if it changed each time."""
        for _ in range(tries):
            with suppress(StackChangedError):
                return self._reader.read(state)
        return None

    def _take_turns(self, now_ns: int, others: int) -> Iterator[Sample]:
        """Says of the next threads that they are Python's, of many in the first turn, and samples some of them."""
        met = list(islice(self._turns, others if self._took_turns else _NAMED_AT_ONCE))
        for number, (state, ident, tid) in enumerate(met):
            self._met.add(ident)
            if ident not in self._named:
                self._named.add(ident)
                yield PythonThread(now_ns, self._pid, tid, ident, "")
            if number < others and state not in self._followed:
                yield from self._sample_thread(state, ident, now_ns)
        if not met and (others or not self._took_turns):
            for ident in self._named - self._met:
                self._log.note(now_ns, ident, ())  # it has ended
            self._named, self._met, self._took_turns = self._met, set(), True
            self._turns = self._python_threads()

    def _follow(self, state: int, now_ns: int) -> Iterator[PythonThread]:
        if state in self._followed:
            self._followed[state].held_ns = now_ns
            return
        ident, inner = self._layout.ident(self._memory, state), self._layout.thread(self._memory, state)
        tid = self._pid if state == self._main else self._ids.outer(inner) if inner else None
        if ident and tid and len(self._followed) <= _AT_MOST:
            self._followed[state] = _Followed(ident, now_ns)
            yield PythonThread(now_ns, self._pid, tid, ident, "")

    def _python_threads(self) -> Iterator[tuple[int, int, int]]:
        """Where the states of the threads lie that there are, Python's identifiers and the kernel's, newest first.

        A list that changes while it is read may lead astray: then some of them are left out.
        """
        state = self._lock()[0]
        for _ in range(_MOST_THREADS):
            previous = self._memory.word(state)
            if not previous:
                break
            state = previous
        for _ in range(_MOST_THREADS):
            ident, inner = self._layout.ident(self._memory, state), self._layout.thread(self._memory, state)
            if ident and inner and (tid := self._ids.outer(inner)):
                yield state, ident, tid
            state = self._memory.word(state + 8) or 0
            if not state:
                return

    def _lock(self) -> tuple[int, bool]:
        """The thread state that holds the interpreter lock or held it last, 0 if there is none; whether it does."""
        words = self._memory.words(self._layout.holder, 2) if self._layout.holder is not None else ()
        return (words[0], words[1] & 0xFFFFFFFF == 1) if len(words) == 2 else (0, False)


class StackLog:
    """Stacks over time, as the events of a trace: a call begins (B) or ends (E)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._zero_ns = 0
        self._events: list[dict[str, Any]] = []
        self._last: dict[int, tuple[CodeFrame, ...]] = {}

    def note(self, time_ns: int, ident: int, stack: tuple[CodeFrame, ...]) -> None:
        """A thread was seen with this stack; only what has changed is kept."""
        before = self._last.get(ident, ())
        if stack == before:
            return
        self._zero_ns = self._zero_ns or time_ns
        self._last[ident] = stack
        alike = 0
        while alike < min(len(before), len(stack)) and before[alike] == stack[alike]:
            alike += 1
        event = {"pid": self._pid, "tid": ident, "ts": (time_ns - self._zero_ns) // NS_PER_US}
        self._events += [{**event, "ph": "E"}] * (len(before) - alike)
        for call in stack[alike:]:
            where = {"filename": call.file, "line": call.line}
            self._events.append({**event, "ph": "B", "name": call.function, "args": where})

    def segment(self, now_ns: int) -> StackSegment | None:
        """What was noted since the last segment; the next one begins anew."""
        if not self._events:
            return None
        trace = zlib.compress(json.dumps(self._events).encode(), 1)
        segment = StackSegment(self._zero_ns, 0, now_ns, self._pid, trace)
        self._zero_ns = 0
        self._events = []
        self._last.clear()
        return segment
