"""What the Python threads of a process that waits are in: the exception that its main thread handles, others' stacks.

Read from the interpreter's memory without stopping anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes.readers import cpython_stacks
from perfdoctor.probes.readers.cpython import LayoutError, Layouts
from perfdoctor.probes.readers.cpython_stacks import StackChangedError, StackReader
from perfdoctor.probes.readers.handled_exceptions import handled_exception
from perfdoctor.probes.readers.process import python_of
from perfdoctor.probes.readers.thread_ids import ThreadIds
from perfdoctor.probes.readers.training_stacks import StackLog
from perfdoctor.recording.schema import PythonThread, Sample

MOST_THREADS = 64  # of one process


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
        return handled_exception(self._memory, self._main, self._version)

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
                log.note(now_ns, ident, reader.read(state))
            except StackChangedError:
                continue
            yield PythonThread(now_ns, self._pid, tid, ident, "")
        yield from filter(None, [log.segment(now_ns)])
