"""A program of its own that says where in machine code threads are, by stopping each of them for a moment (ptrace(2)).

It serves where the kernel's profiler is refused. The kernel lets go of a stopped thread when its tracer ends, however
that comes about, so that no thread of the job stays stopped, whatever becomes of perfdoctor. It is run by its path and
imports nothing that starts slowly.

Its standard input has a line for each thread: ``+ TID TASK`` takes one up (``TASK`` is its folder in /proc),
``~ TID TASK`` one that is only to have its turn now and then, and ``- TID`` lets go of one. It ends with its input.
It writes ``RECORD``s: time of CLOCK_MONOTONIC, instruction pointer, thread, error number. One with an error says, once,
why a thread cannot be stopped; one without a thread has in the pointer's place for how long threads were stopped so
far, in nanoseconds.

A stop takes 40 to 60 µs, a few of them milliseconds, and 150 to 200 µs of CPU time (Linux 6.18, x86-64, 2 busy cores).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import random
import select
import struct
import time
from collections import deque
from collections.abc import Iterator

RECORD = struct.Struct("<QQii")
# Ticks follow each other this fast at most, and so slowly that no thread is stopped for more than this part of the
# time, nor this program takes more than that part of a core.
PERIOD_S = 0.03
STOPPED_PART, OWN_PART = 0.005, 0.015
# In one tick so many threads are stopped at most, and one of those that only have their turn.
_AT_ONCE = 8
_REMEMBERED = 0.9  # of what a tick took before, in the mean
_STATED_S = 1.0

# <linux/ptrace.h>, <elf.h>, <linux/wait.h>
DETACH, _GETREGSET, _SEIZE, _INTERRUPT = 17, 0x4204, 0x4206, 0x4207
_PRSTATUS = 1
_EVENT_STOP = 128
_WALL = 0x40000000
# In the general registers, as words: the instruction pointer, and the number of a system call, -1 outside of one (that
# is elsewhere on arm64).
_POINTER, _CALL = {"x86_64": (16, 15)}.get(platform.machine(), (32, None))


class _Registers(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Stopper:
    """Stops threads and reads their registers."""

    def __init__(self) -> None:
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._ptrace.restype = ctypes.c_long
        self._words = (ctypes.c_ulong * 64)()
        self._registers = _Registers(ctypes.addressof(self._words), 0)
        self._delay = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def stop(self, tid: int) -> tuple[int, int, int | None]:
        """Stops a thread and lets it go on.

        Returns:
            When it was stopped and for how long, in nanoseconds, and its instruction pointer; none in a system call.

        Raises:
            OSError: it has ended, or is not ours to stop.
        """
        self._call(_SEIZE, tid, None, None)
        delayed_ns = self._delayed_ns()
        self._call(_INTERRUPT, tid, None, None)
        _, status = os.waitpid(tid, _WALL)
        stopped_ns = time.monotonic_ns()
        if not os.WIFSTOPPED(status):
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        try:
            self._registers.length = ctypes.sizeof(self._words)
            self._call(_GETREGSET, tid, _PRSTATUS, ctypes.addressof(self._registers))
        finally:
            # A signal that stopped it first is given to it.
            signal = 0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status)
            self._call(DETACH, tid, None, signal)
        # While this program waits for a CPU the thread stands still; before it is stopped, it runs or waits for one.
        took_ns = time.monotonic_ns() - stopped_ns + self._delayed_ns() - delayed_ns
        called = _CALL is not None and ctypes.c_long(self._words[_CALL]).value >= 0
        return stopped_ns, took_ns, None if called else self._words[_POINTER]

    def _call(self, request: int, tid: int, address: int | None, data: int | None) -> None:
        if self._ptrace(request, tid, address, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _delayed_ns(self) -> int:
        return int(os.pread(self._delay, 100, 0).split()[1])


class Threads:
    """Whom to stop; each says by the file of its system call whether it runs."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._always: deque[int] = deque()
        self._in_turn: deque[int] = deque()

    def obey(self, line: str) -> None:
        """Does what a line of the input says."""
        what, tid, *task = line.split(" ", 2)
        self.forget(int(tid))
        if what != "-":
            try:
                self._files[int(tid)] = os.open(f"{task[0]}/syscall", os.O_RDONLY)
            except OSError:  # it has just ended
                return
            (self._always if what == "+" else self._in_turn).append(int(tid))

    def forget(self, tid: int) -> None:
        """Lets go of a thread, if it is known."""
        file = self._files.pop(tid, None)
        if file is not None:
            os.close(file)
            (self._always if tid in self._always else self._in_turn).remove(tid)

    def due(self) -> list[int]:
        """Those that are to be stopped now, as far as they run."""
        found: list[int] = []
        for turns, most in ((self._always, _AT_ONCE), (self._in_turn, 1)):
            for _ in range(min(most, len(turns))):
                found.append(turns[0])
                turns.rotate(-1)
        return [tid for tid in found if self._runs(tid)]

    def _runs(self, tid: int) -> bool:
        try:
            return os.pread(self._files[tid], 8, 0) == b"running\n"
        except OSError:  # it has just ended
            self.forget(tid)
            return False


class TickPeriod:
    """How long to wait from one tick to the next.

    Attributes:
        period_s: the mean.
    """

    def __init__(self) -> None:
        self.period_s = PERIOD_S
        self._stopped_s = self._used_s = 0.0
        self._before_s = time.process_time()

    def ticked(self, stopped_s: float) -> None:
        """Counts a tick, in which one thread was stopped for so long at most."""
        used_s = time.process_time()
        self._stopped_s = _REMEMBERED * self._stopped_s + (1 - _REMEMBERED) * stopped_s
        self._used_s = _REMEMBERED * self._used_s + (1 - _REMEMBERED) * (used_s - self._before_s)
        self._before_s = used_s
        self.period_s = max(PERIOD_S, self._stopped_s / STOPPED_PART, self._used_s / OWN_PART)

    def next_s(self) -> float:
        """Until the next tick: spread, so as not to march in step with the job."""
        return self.period_s * (0.5 + random.random())


class Stops:
    """Stops threads in turn, and says what was seen of them.

    Attributes:
        total_ns: for how long threads were stopped so far.
        longest_ns: the longest stop of the last tick.
    """

    def __init__(self, threads: Threads) -> None:
        self.total_ns = self.longest_ns = 0
        self._stopper, self._threads = Stopper(), threads
        self._refused: set[int] = set()

    def tick(self) -> Iterator[bytes]:
        """Stops those whose turn it is; the records about them."""
        self.longest_ns = 0
        for tid in self._threads.due():
            try:
                time_ns, took_ns, pointer = self._stopper.stop(tid)
            except OSError as error:
                yield from self._refuse(tid, error)
                continue
            self.total_ns, self.longest_ns = self.total_ns + took_ns, max(self.longest_ns, took_ns)
            if pointer is not None:
                yield RECORD.pack(time_ns, pointer, tid, 0)

    def _refuse(self, tid: int, error: OSError) -> Iterator[bytes]:
        if error.errno != errno.EPERM:  # another tracer may let go of it
            self._threads.forget(tid)
        if tid not in self._refused:
            self._refused.add(tid)
            yield RECORD.pack(time.monotonic_ns(), 0, tid, error.errno or errno.ESRCH)


def main() -> None:
    """Stops threads until the input ends."""
    threads, period = Threads(), TickPeriod()
    stops = Stops(threads)
    stated_s, unread = 0.0, b""
    due_s = time.monotonic()
    while True:
        if select.select([0], [], [], max(0.0, due_s - time.monotonic()))[0]:
            text = os.read(0, 65536)
            if not text:
                return
            *lines, unread = (unread + text).split(b"\n")
            for line in lines:
                threads.obey(line.decode())
            continue
        records = [*stops.tick()]
        period.ticked(stops.longest_ns / 1e9)
        now_s = time.monotonic()
        due_s = now_s + period.next_s()
        if now_s - stated_s > _STATED_S:
            stated_s = now_s
            records.append(RECORD.pack(time.monotonic_ns(), stops.total_ns, 0, 0))
        if records:
            os.write(1, b"".join(records))


if __name__ == "__main__":
    main()
