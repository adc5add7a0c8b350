"""Sampling threads' instruction pointers where the kernel's profiler is refused: ``ptrace_program`` stops them."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers import ptrace_program
from perfdoctor.probes.readers.perf_events import CodePlace
from perfdoctor.probes.readers.permissions import NO_FILTER
from perfdoctor.probes.readers.procfs import arguments_of

_PATIENCE_S = 1.0


class PtraceSampler:
    """Runs the program that stops threads.

    Attributes:
        process: the program.
        refused: threads that may not be stopped, and the error numbers that say why; for the caller to empty.
        stopped_ns: for how long threads were stopped so far.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self) -> None:
        self.refused: list[tuple[int, int]] = []
        self.stopped_ns = 0
        self._places: dict[int, list[CodePlace]] = {}
        self._unread = b""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            # A session of its own: what the terminal sends is for perfdoctor, which then ends the program itself.
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", ptrace_program.__file__],
                stdin=subprocess.PIPE,
                stdout=theirs,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._records = ours

    def sample(self, tid: int, task: Path, *, in_turn: bool) -> StoppedThread:
        """Takes up a thread.

        Args:
            tid: kernel id of the thread.
            task: its folder in /proc.
            in_turn: it is one of those of which one at a time is looked at.
        """
        self._places[tid] = []
        self._say(f"{'~' if in_turn else '+'} {tid} {task}")
        return StoppedThread(self, tid)

    def places(self, tid: int) -> list[CodePlace]:
        """Where a thread was since the last call, oldest first."""
        self._read()
        found = self._places.get(tid, [])
        if found:
            self._places[tid] = []
        return found

    def forget(self, tid: int) -> None:
        """Lets go of a thread."""
        if self._places.pop(tid, None) is not None:
            self._say(f"- {tid}")

    def close(self) -> None:
        """Ends the program."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:  # it waits for a thread that does not stop
            self.process.kill()
            self.process.wait()
        self._read()
        os.close(self._records)

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended; nothing comes any more
            os.write(self.process.stdin.fileno(), f"{line}\n".encode())

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while text := os.read(self._records, 65536):
                self._unread += text
        whole = len(self._unread) - len(self._unread) % ptrace_program.RECORD.size
        for time_ns, address, tid, error in ptrace_program.RECORD.iter_unpack(self._unread[:whole]):
            if not tid:
                self.stopped_ns = address
            elif error:
                self.refused.append((tid, error))
            elif tid in self._places:
                self._places[tid].append(CodePlace(time_ns, tid, address))
        self._unread = self._unread[whole:]


class StoppedThread:
    """One thread that is stopped now and then."""

    def __init__(self, sampler: PtraceSampler, tid: int) -> None:
        self._sampler, self._tid = sampler, tid

    def read(self) -> list[CodePlace]:
        """Where it was since the last call, oldest first."""
        return self._sampler.places(self._tid)

    def close(self) -> None:
        """Stops it no more."""
        self._sampler.forget(self._tid)


def stops_threads(pid: int, root: Path = Path("/")) -> bool:
    """Whether a process is the program that stops threads, for this perfdoctor or another of the same installation."""
    return arguments_of(pid, root)[-1:] == [ptrace_program.__file__]


def refusal() -> Refusal | None:
    """Why ptrace(2) is filtered out; None if it is let through. Stops nobody."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.restype = ctypes.c_long
    detach = ptrace_program.DETACH
    if ptrace(ctypes.c_long(detach), ctypes.c_long(os.getpid()), None, None) < 0 and ctypes.get_errno() == errno.ESRCH:
        return None
    return Refusal(f"The system call ptrace is filtered here ({os.strerror(ctypes.get_errno())}).", NO_FILTER)
