"""What holds up main threads that wait at one place for a second or longer: who could end it, who traces or froze them.

A job that does not step has hardly anything to sample, but much to ask: who has the other end of the pipe, who holds
the lock of the file, how long the sleep is, whether an exception is being handled. Each is asked once per wait.
Nothing is stopped or changed.

Where more wait than can be looked into, who may hold the others up comes first. Most of a job that hangs are victims
and workers without work, and these wait alike: processes that run a program of their own, as ranks do, come before
those that were forked, and among either, who waits as nobody else does comes before the rest.

A sample costs 30 µs of CPU per process and second, and looking into a wait on a channel 2 ms once, on a host of 100
processes (Linux 6.18, x86-64).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.cgroup import Freezers
from perfdoctor.probes.readers.channel_ends import other_end, serves, unsent_bytes
from perfdoctor.probes.readers.cpython import LayoutError, Layouts
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import name_of
from perfdoctor.probes.readers.ptrace_sampler import stops_threads
from perfdoctor.probes.readers.syscalls import NAMES, WRITES_TO_OTHERS, Descriptors, awaited_child, ends_within
from perfdoctor.probes.readers.waiting_threads import WaitingThreads
from perfdoctor.recording.schema import FROZEN_IN, TRACED_BY, Fact, Reading, Sample, WaitSeen

MOST_PROCESSES = 64  # in one sample; of more, those that were not forked, and of the rest some in turn
MOST_INTO = 4  # waits are looked into in one sample
_SEARCH_S = 0.05  # CPU time for the processes of the host that may have a channel's other end
_TRACER = re.compile(rb"^TracerPid:\s*(\d+)", re.MULTILINE)
# What went away of a write for which a main thread waits.
SENT_WAITING = "sent_waiting_bytes_total"
_FILE_LOCKS = ("flock", "fcntl")
# Waits that another thread of the process may have to end.
_FOR_THREADS = ("futex", "futex_waitv")
_MOST_THREADS = 512  # of a process, whose system calls are read at once: some 10 ms


@dataclass
class _Known:
    """What was seen of a process the last time.

    Attributes:
        call: the line of its system call, arguments and stack pointer included.
        looked_into: the last one that was looked into.
        kind: of how it waits in ``call``; "" where nobody has asked yet.
        tracer: who traced it, 0 for nobody.
        frozen_in: the control group with which it was frozen, "" for none.
        sending: the connection into which it writes, as far as ``call`` was looked into.
        unsent: what was on its way there; None where that was not told.
        sent: what has gone away there meanwhile, at least.
    """

    call: bytes = b""
    looked_into: bytes = b""
    kind: str = ""
    tracer: int = 0
    frozen_in: str = ""
    sending: int | None = None
    unsent: int | None = None
    sent: int = 0


@dataclass(frozen=True)
class _BlockingCall:
    """A system call that a thread waits in, as far as its line tells without a look at others.

    Attributes:
        arguments: none of a page fault.
        descriptor: as of a ``WaitSeen``; likewise what follows.
    """

    call: str
    arguments: list[int]
    descriptor: int | None
    target: str
    ends_ns: int | None

    @property
    def kind(self) -> str:
        """What is the same of waits that are alike: the call, and what sort of thing it is about."""
        return f"{self.call} {self.target.partition('/')[0]}"


class WaitsProbe:
    """Looks at the main threads of the job's processes.

    Args:
        root: where /proc is.
        layouts: of interpreters, shared with others who look for them.
    """

    name = "waits"
    period_s = 1.0

    def __init__(self, root: Path = Path("/"), layouts: Layouts | None = None) -> None:
        self._root = root
        self._layouts = layouts or Layouts()
        self._job: Processes | None = None
        self._known: dict[int, _Known] = {}
        self._turns: list[int] = []
        self._freezers = Freezers(root)
        self._kinds: set[str] = set()  # of waits that were looked into

    def check(self, process: Candidate) -> Availability:
        """Who traces it is seen of everybody; the rest needs the right to trace it."""
        why = process.rights.why_not
        refusal = (
            None if process.rights.trace else Refusal(f"What ends its waits stays unseen. {why.reason}", why.enable)
        )
        return Availability.but_for(self.name, refusal)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking."""
        self._job = job
        return ()

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Looks at the processes whose turn it is, and into waits that are as they were a second ago."""
        members = self._job.pids() if self._job else ()
        forked = frozenset(self._job.forked_pids() if self._job else ())
        self._known = {pid: self._known.get(pid, _Known()) for pid in members}
        self._freezers.look_anew()
        lasting = set()
        for pid in self._next_turns(forked):
            known = self._known[pid]
            yield from self._look_for_tracer(pid, known, now_ns)
            if (frozen_in := self._freezers.frozen_in(pid)) != known.frozen_in:
                known.frozen_in = frozen_in
                yield Fact(now_ns, self.name, f"pid:{pid}", FROZEN_IN, frozen_in)
            call = self._call(pid)
            if call != known.call:
                known.call, known.kind, known.sending, known.unsent = call, "", None, None
            elif call and call != known.looked_into:
                lasting.add(pid)
            elif known.sending is not None:
                yield self._look_at_sending(pid, known, known.sending, now_ns)
        for pid in self._first_to_ask([pid for pid in members if pid in lasting], forked, now_ns):
            known = self._known[pid]
            known.looked_into = known.call
            wait = self._read(pid, known.call, now_ns)
            self._kinds.add(wait.kind)
            if wait.call in WRITES_TO_OTHERS and wait.target.startswith("socket:tcp"):
                known.sending = wait.descriptor
            yield from self._look_into(pid, wait, members, now_ns)

    def _next_turns(self, forked: Collection[int]) -> list[int]:
        """The processes of this sample; they have their next turn after all others."""
        waiting = [pid for pid in dict.fromkeys([*self._turns, *self._known]) if pid in self._known]
        now = sorted(waiting, key=forked.__contains__)[:MOST_PROCESSES]
        later = set(waiting).difference(now)
        self._turns = [*(pid for pid in waiting if pid in later), *now]
        return now

    def _first_to_ask(self, waiting: list[int], forked: Collection[int], now_ns: int) -> list[int]:
        """Of processes in waits that last, parents before children, those who most likely hold the others up."""
        if len(waiting) <= MOST_INTO:
            return waiting
        seen, alike = set(self._kinds), set()
        for pid in sorted(waiting, key=forked.__contains__):
            known = self._known[pid]
            known.kind = known.kind or self._read(pid, known.call, now_ns).kind
            if known.kind in seen:
                alike.add(pid)
            seen.add(known.kind)
        return sorted(waiting, key=lambda pid: (pid in forked, pid in alike))[:MOST_INTO]

    def close(self) -> Iterable[Sample]:
        """Nothing was kept open."""
        return ()

    def _call(self, pid: int, tid: str = "") -> bytes:
        """The line of a thread's system call, the main one's if none is named; empty where it cannot be told."""
        try:
            line = (self._root / f"proc/{pid}/{f'task/{tid}/' if tid else ''}syscall").read_bytes()
        except OSError:
            return b""
        return b"" if line.startswith(b"running") else line

    def _look_for_tracer(self, pid: int, known: _Known, now_ns: int) -> Iterator[Fact]:
        try:
            found = _TRACER.search((self._root / f"proc/{pid}/status").read_bytes())
        except OSError:
            return
        tracer = int(found[1]) if found else 0
        if tracer not in (0, known.tracer, os.getpid()) and not stops_threads(tracer, self._root):
            yield Fact(now_ns, self.name, f"pid:{pid}", TRACED_BY, f"{tracer} {name_of(tracer, self._root)}")
        known.tracer = tracer

    def _look_at_sending(self, pid: int, known: _Known, descriptor: int, now_ns: int) -> Reading:
        """What goes away of what a process writes: over a slow connection it is not woken for minutes meanwhile."""
        unsent = unsent_bytes(pid, descriptor)
        if unsent is not None and known.unsent is not None:
            known.sent += abs(known.unsent - unsent)
        known.unsent = unsent
        return Reading(now_ns, self.name, f"pid:{pid}", SENT_WAITING, float(known.sent))

    def _read(self, pid: int, line: bytes, now_ns: int) -> _BlockingCall:
        call, arguments = _call_of(line)
        if not arguments:
            return _BlockingCall(call, [], None, "", None)
        descriptors = Descriptors(pid, self._root)
        try:
            descriptor = descriptors.waited_on(call, arguments)
            target = descriptors.target(call, arguments) or (
                "" if descriptor is None else descriptors.name_of(descriptor)
            )
            return _BlockingCall(call, arguments, descriptor, target, descriptors.sleeps_until(call, arguments, now_ns))
        finally:
            descriptors.close()

    def _look_into(self, pid: int, wait: _BlockingCall, members: tuple[int, ...], now_ns: int) -> Iterator[Sample]:
        others = json.dumps(self._others(pid, wait, members))
        seen = WaitSeen(now_ns, pid, wait.call, wait.descriptor, wait.target, others, wait.ends_ns, None)
        try:
            threads = WaitingThreads(pid, self._layouts, self._root)
        except (OSError, LayoutError):
            yield seen
            return
        try:
            yield seen._replace(handling=threads.handled_exception())
            if wait.call in _FOR_THREADS:
                yield from threads.stacks_of_others(now_ns)
        finally:
            threads.close()

    def _others(self, pid: int, wait: _BlockingCall, members: tuple[int, ...]) -> list[int] | None:
        """Who could end a wait; None where nobody is known to be at the other end, or who it is cannot be seen."""
        if wait.call in _FILE_LOCKS:
            return lock_holders(pid, self._root)
        if (child := awaited_child(wait.call, wait.arguments)) is not None:
            return [child]
        if ends_within(wait.call, wait.arguments):
            return [pid] if self._shares_no_lock(pid) else None
        end = None if wait.descriptor is None else other_end(pid, wait.descriptor)
        if end is None:
            return None
        reads = wait.call in WRITES_TO_OTHERS
        found = [other for other in members if serves(end, other, reads=reads)]  # perhaps itself
        until_s = time.thread_time() + _SEARCH_S
        for other in (int(name) for name in os.listdir(self._root / "proc") if name.isdigit()):
            if time.thread_time() > until_s:
                return found or None
            if other not in members and other != os.getpid() and serves(end, other, reads=reads):
                found.append(other)
        return found

    def _shares_no_lock(self, pid: int) -> bool:
        """Whether no thread waits for a lock that processes share: another one may end that, and so a wait here."""
        try:
            tasks = os.listdir(self._root / f"proc/{pid}/task")
        except OSError:  # it has just ended
            return False
        return len(tasks) <= _MOST_THREADS and all(self._awaits_own(pid, tid) for tid in tasks)

    def _awaits_own(self, pid: int, tid: str) -> bool:
        line = self._call(pid, tid)
        if not line:
            return True
        call, arguments = _call_of(line)
        return call not in _FOR_THREADS or ends_within(call, arguments)


def _call_of(line: bytes) -> tuple[str, list[int]]:
    """The name and the arguments of a system call, by its line; there are none of a page fault."""
    words = line.split()
    number = int(words[0])
    if number < 0:
        return "fault", []
    return NAMES.get(number, f"syscall_{number}"), [int(word, 16) for word in words[1:7]]


_WAITS = b"->"
_PID = 4  # column of a line; one later in that of a waiter


def lock_holders(pid: int, root: Path = Path("/")) -> list[int] | None:
    """The processes that hold the lock for which this one waits.

    Args:
        pid: who waits.
        root: where /proc is.

    Returns:
        Their ids, without those that the kernel does not name (locks of open files have no owner); None if the process
        waits for no lock, or the kernel does not say.
    """
    try:
        lines = [line.split() for line in (root / "proc/locks").read_bytes().splitlines()]
    except OSError:
        return None
    # A waiter is listed below the lock that it waits for, under the same number.
    waiters = (line for line in lines if line[1:2] == [_WAITS] and line[_PID + 1 : _PID + 2] == [b"%d" % pid])
    waits = next((line[0] for line in waiters), None)
    if waits is None:
        return None
    held = [int(line[_PID]) for line in lines if line[0] == waits and line[1] != _WAITS]
    return [holder for holder in held if holder > 0]
