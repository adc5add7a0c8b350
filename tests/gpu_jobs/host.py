"""Threads and processes of a simulated job: what each of them did from when to when.

Time on a core is not free: a thread may have to wait for one (a control group's quota, neighbours), or for the GIL.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.gpu_jobs.events import MS, Signal, Simulation, Task
from tests.gpu_jobs.places import Code, Stack


@dataclass(frozen=True, eq=False)
class Doing:
    """What a thread does for a while, as it looks from outside.

    Attributes:
        state: as in /proc: R, S or D.
        call: the system call that it is blocked in.
        target: what that is about, as the threads probe names it.
        stacks: Python stacks of this time, outermost frame first; each is as likely as the next.
        code: where its instruction pointer is, in user mode.
        system: the fraction of its CPU time that it spends in the kernel.
        gil: it needs the GIL.
        lets_go: the part of that time for which it lets go of it again, as torch's operators do.
        collecting: the cyclic collector runs.
    """

    state: str = "R"
    call: str | None = None
    target: str = ""
    stacks: tuple[Stack, ...] = ()
    code: Code = ()
    system: float = 0.02
    gil: bool = False
    lets_go: float = 0.0
    collecting: bool = False


@dataclass(frozen=True)
class Cores:
    """What stands between a runnable thread and a core.

    Attributes:
        delay: the part of the time for which a runnable thread waits in a run queue.
        slice_ns: how long it then runs before it has to wait again, in the mean.
        stopped: the part of every quota period for which the control group is stopped.
        period_ns: the quota's period.
    """

    delay: float = 0.0
    slice_ns: int = 4 * MS
    stopped: float = 0.0
    period_ns: int = 100 * MS


class Gil:
    """The lock of one interpreter; whoever wants it gets it after the switch interval (5 ms), or when it is let go.

    Attributes:
        holders: from when on which thread held it; None for nobody.
    """

    INTERVAL = 5 * MS

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.holder: Thread | None = None
        self.holders: list[tuple[int, Thread | None]] = []
        self._since = 0
        self._waiting: list[tuple[Thread, Signal]] = []

    def wanted(self) -> bool:
        return bool(self._waiting)

    def acquire(self, thread: Thread, asleep: Doing) -> Task:
        if self.holder is None:
            self._give(thread)
            return
        woken = Signal()
        self._waiting.append((thread, woken))
        thread.note(asleep)
        yield woken

    def release(self) -> None:
        if self._waiting:
            thread, woken = self._waiting.pop(0)
            self._give(thread)
            self.sim.at(self.sim.now, woken.fire)
        else:
            self.holder = None
            self.holders.append((self.sim.now, None))

    def left_ns(self) -> int:
        """For how long the holder has it at least before it looks again whether others want it."""
        return max(self.INTERVAL - (self.sim.now - self._since), 0) if self._waiting else self.INTERVAL

    def _give(self, thread: Thread) -> None:
        self.holder = thread
        self._since = self.sim.now
        self.holders.append((self.sim.now, thread))


@dataclass(eq=False)
class Process:
    """A process of the job."""

    pid: int
    parent: int
    name: str
    command: str
    forked: bool = False
    uses_torch: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    threads: list[Thread] = field(default_factory=list)
    rank: int | None = None
    written: list[tuple[int, int]] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)
    received: list[tuple[int, int]] = field(default_factory=list)
    gil: Gil | None = None


class Thread:
    """A thread and all that it did.

    Attributes:
        track: when it began to do what, and whether it waited for a core meanwhile.
        ident: Python's identifier of it; 0 if Python does not know it.
        loses_gil: how often another thread takes the GIL while an operator lets go of it for a moment.
        wakes: for an idle thread, how often it wakes up (ns), and for how long.
    """

    def __init__(
        self, sim: Simulation, process: Process, tid: int, name: str, *, python: str | None = None,
        wakes: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        self.sim = sim
        self.process = process
        self.tid = tid
        self.name = name
        self.python_name = python
        self.ident = 0 if python is None else 139_000_000_000_000 + tid * 4096
        self.wakes = wakes
        self.track: list[tuple[int, Doing, bool]] = []
        self.cores = Cores()
        self.loses_gil = 0.0
        self.random = random.Random(tid)
        process.threads.append(self)

    def note(self, doing: Doing, *, delayed: bool = False) -> None:
        """Begins to do something now."""
        track = self.track
        if track and track[-1][1] is doing and track[-1][2] == delayed:
            return
        if track and track[-1][0] == self.sim.now:
            track.pop()
        track.append((self.sim.now, doing, delayed))

    def run(self, for_ns: float, doing: Doing) -> Task:
        """Computes for so long; it takes longer where a core or the GIL is not to be had at once."""
        left = int(for_ns)
        if left <= 0:
            return
        gil = self.process.gil
        if not doing.gil or gil is None:
            self.let_go()
            yield from self._compute(left, doing)
            return
        asleep = waiting_for_gil(doing)
        if gil.holder is self and gil.wanted() and self.random.random() < self.loses_gil:
            gil.release()
        while left > 0:
            if gil.holder is not self:
                yield from gil.acquire(self, asleep)
            part = min(left, gil.left_ns())
            yield from self._compute(part, doing)
            left -= part
            if gil.wanted() and gil.left_ns() <= 0:
                gil.release()

    def let_go(self) -> None:
        """Gives the GIL back: what comes next does not need it, and takes longer than waking another thread up."""
        if self.process.gil is not None and self.process.gil.holder is self:
            self.process.gil.release()

    def _compute(self, left: int, doing: Doing) -> Task:
        while left > 0:
            yield from self._out_of_quota(doing)
            part = self._until_preempted(left)
            yield from self._in_run_queue(part, doing)
            self.note(doing)
            yield part
            left -= part

    def _out_of_quota(self, doing: Doing) -> Task:
        cores = self.cores
        if cores.stopped:
            since = self.sim.now % cores.period_ns
            if since >= int(cores.period_ns * (1 - cores.stopped)):
                self.note(doing, delayed=True)
                yield cores.period_ns - since

    def _in_run_queue(self, part: int, doing: Doing) -> Task:
        """Waits for a core before it computes for so long: seldom before a short while, and then for as long."""
        cores = self.cores
        if cores.delay and self.random.random() * cores.slice_ns < part:
            self.note(doing, delayed=True)
            yield int(self.random.expovariate(1.0) * cores.slice_ns * cores.delay / (1 - cores.delay))

    def _until_preempted(self, left: int) -> int:
        cores = self.cores
        part = min(left, cores.slice_ns) if cores.delay else left
        if cores.stopped:
            until = int(cores.period_ns * (1 - cores.stopped)) - self.sim.now % cores.period_ns
            part = min(part, max(until, 1))
        return part

    def wait(self, done: Callable[[], bool], signal: Signal, doing: Doing) -> Task:
        """Waits for something to become true; does not run on before it has a core again."""
        if done():
            return
        self.let_go()
        self.note(doing)
        while not done():
            yield signal
        yield from self._out_of_quota(doing)

    def sleep(self, for_ns: float, doing: Doing) -> Task:
        """Is blocked, or spins, for so long."""
        if for_ns >= 1:
            self.let_go()
            self.note(doing)
            yield int(for_ns)


_GIL_WAITS: dict[int, tuple[Doing, Doing]] = {}


def waiting_for_gil(doing: Doing) -> Doing:
    """A thread that was doing this, and waits for the GIL in it."""
    found = _GIL_WAITS.get(id(doing))
    if found is None or found[0] is not doing:
        found = _GIL_WAITS[id(doing)] = doing, Doing("S", "futex", stacks=doing.stacks)
    return found[1]
