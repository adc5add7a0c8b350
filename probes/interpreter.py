"""Who holds the Python interpreter lock, and whether the cyclic collector runs.

Read from the interpreters' memory, two small reads a sample, without stopping anybody; see
``perfdoctor.probes.readers.cpython`` for what is read and which of CPython's private structures that relies on.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal, Sample, Unavailable
from perfdoctor.probes.readers.cpython import NEWEST, OLDEST, Layout, LayoutError, Layouts
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.process_memory import Memory
from perfdoctor.probes.readers.thread_ids import ThreadIds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import InterpreterSample

_RETRY_NS = NS_PER_S // 2  # a start takes no longer, as a rule
_TRIES = 6  # an interpreter may be starting, or may change its list of threads just while we read it
_FORGET_NS = NS_PER_S // 2  # thread states are freed and used again
_TURNS = 3  # loader workers are alike, and what they are asked for is their collector
MOST_WORKERS = 12  # in one sample
_MOST_NEW = 4  # interpreters are taken up in one sample
_HOLDER = struct.Struct("<Qi")

_SUPPORTED = "CPython {}.{} to {}.{}".format(*OLDEST, *NEWEST)
_OTHER_WAY = f"sample Python stacks (the stacks probe), or run the job on {_SUPPORTED}"
_NO_LOCK = "this is a free-threaded CPython: it has no interpreter lock to watch"


class _Interpreter:
    """One process's interpreter."""

    def __init__(self, ids: ThreadIds, memory: Memory, layout: Layout) -> None:
        self._ids = ids
        self._memory = memory
        self._layout = layout
        self._tids: dict[int, int | None] = {}
        self._forget_ns = 0

    @property
    def has_lock(self) -> bool:
        """It has an interpreter lock, unlike a free-threaded CPython."""
        return self._layout.holder is not None

    def read(self, now_ns: int) -> tuple[int | None, bool | None] | None:
        """Holder's thread id and the collector's flag; None once the process has gone or has become another
        program."""
        flag = self._memory.number(self._layout.collecting)
        if flag is None:
            return None
        return self._holder(now_ns), bool(flag) if flag in (0, 1) else None

    def _holder(self, now_ns: int) -> int | None:
        if self._layout.holder is None:
            return None
        data = self._memory.read(self._layout.holder, _HOLDER.size)
        if len(data) < _HOLDER.size:
            return None
        thread_state, locked = _HOLDER.unpack(data)
        if locked != 1:
            return 0 if locked == 0 else None
        if now_ns >= self._forget_ns:
            self._tids.clear()
            self._forget_ns = now_ns + _FORGET_NS
        if thread_state not in self._tids:
            inner = self._layout.thread(self._memory, thread_state)
            self._tids[thread_state] = self._ids.outer(inner) if inner else None
        return self._tids[thread_state]

    def close(self) -> None:
        self._memory.close()


class _Failure:
    """A process whose interpreter we could not find so far."""

    def __init__(self) -> None:
        self.tries = 0
        self.next_ns = 0

    def due(self, now_ns: int) -> bool:
        return self.tries < _TRIES and now_ns >= self.next_ns


class InterpreterProbe:
    """Samples the interpreter lock and the collector of every process of the job that has torch loaded.

    Args:
        root: where ``proc`` is found.
        layouts: of interpreters, shared with others who look for them.

    Attributes:
        share: of the loader workers that may be looked at in one sample.
    """

    name = "interpreter"
    period_s = 0.02

    def __init__(self, root: Path = Path("/"), layouts: Layouts | None = None) -> None:
        self._proc = root / "proc"
        self._job: Processes | None = None
        self._open: dict[int, _Interpreter] = {}
        self._failed: dict[int, _Failure] = {}
        self._layouts = layouts or Layouts()
        self._said: set[str] = set()
        self.share = 1.0
        self._turns: deque[int] = deque()  # of forked processes

    def check(self, process: Candidate) -> Availability:
        """Both are seen, or neither."""
        return Availability.unless(self.name, _refusal(process))

    def open(self, job: Processes) -> Iterator[Sample]:
        """Finds the interpreters of the processes that there are now."""
        self._job = job
        yield from self._meet(0)

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples each interpreter; those of forked processes in every third turn, of many in turn."""
        yield from self._meet(now_ns)
        forked = frozenset(self._job.forked_pids() if self._job else ())
        for pid in [pid for pid in self._open if pid not in forked]:
            yield from self._read(pid, now_ns)
        self._turns.extend(sorted(forked.intersection(self._open).difference(self._turns)))
        for _ in range(min(-(-len(self._turns) // _TURNS), max(1, int(MOST_WORKERS * self.share)))):
            pid = self._turns.popleft()
            if pid in self._open:
                yield from self._read(pid, now_ns)

    def _read(self, pid: int, now_ns: int) -> Iterator[Sample]:
        seen = self._open[pid].read(now_ns)
        if seen is None:
            self._open.pop(pid).close()
        else:
            yield InterpreterSample(now_ns, pid, *seen)

    def close(self) -> Iterable[Sample]:
        """Lets go of the processes' memory."""
        for interpreter in self._open.values():
            interpreter.close()
        self._open.clear()
        return ()

    def _meet(self, now_ns: int) -> Iterator[Sample]:
        """Takes up processes that are new, or whose interpreter was not found the last time."""
        new = [pid for pid in (self._job.torch_pids() if self._job else ()) if pid not in self._open]
        due = [pid for pid in new if pid not in self._failed or self._failed[pid].due(now_ns)]
        for pid in due[:_MOST_NEW]:
            failure = self._failed.setdefault(pid, _Failure())
            failure.tries += 1
            failure.next_ns = now_ns + _RETRY_NS
            try:
                self._open[pid] = self._interpreter(pid)
                del self._failed[pid]
            except PermissionError:
                failure.tries = _TRIES
                yield from self._unavailable("rights", why_not(pid, self._proc.parent))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            except OSError as error:  # too many open files, for instance
                if failure.tries == _TRIES:
                    why = Refusal(f"process {pid}: {error.strerror}", "raise ulimit -n for perfdoctor")
                    yield from self._unavailable("files", why)
            except LayoutError as error:
                if failure.tries == _TRIES:
                    yield from self._unavailable("layout", Refusal(f"process {pid}: {error}", _OTHER_WAY))
            else:
                if not self._open[pid].has_lock:
                    yield from self._unavailable("no lock", Refusal(_NO_LOCK, _OTHER_WAY))

    def _interpreter(self, pid: int) -> _Interpreter:
        process = self._proc / str(pid)
        ids = ThreadIds(process)
        memory = Memory(process)
        try:
            return _Interpreter(ids, memory, self._layouts.of(process, memory, ids.inner()))
        except (OSError, LayoutError):
            memory.close()
            raise

    def _unavailable(self, kind: str, refusal: Refusal) -> Iterator[Unavailable]:
        if kind not in self._said:  # once per kind, not once per worker
            self._said.add(kind)
            yield Unavailable(self.name, *refusal)


def _refusal(process: Candidate) -> Refusal | None:
    if process.python is None:
        return process.not_python()
    version = process.python.version
    if version and not OLDEST <= version <= NEWEST:
        return Refusal(f"The interpreter lock of {process.python} cannot be read.", f"run the job on {_SUPPORTED}")
    return None if process.rights.trace else process.rights.why_not
