"""A DataLoader: workers that prepare batches ahead, in turn, and the thread that pins them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import count

from tests.gpu_jobs import places
from tests.gpu_jobs.events import MS, US, Signal, Simulation, Task
from tests.gpu_jobs.host import Doing, Process, Thread


@dataclass(frozen=True)
class Input:
    """How batches are made.

    Attributes:
        workers: 0 for the trainer itself.
        cpu_ms: CPU time that one batch takes.
        disk_ms: time blocked in reads of files, for one batch.
        network_ms: time blocked in reads of sockets.
        batch_bytes: what is read for it.
        prefetch: batches that a worker may be ahead.
        pin: a thread of the trainer copies batches into pinned memory.
        pin_ms: what that takes.
        uneven: the spread of what batches take.
        folder: where files lie.
    """

    workers: int
    cpu_ms: float
    disk_ms: float = 0.0
    network_ms: float = 0.0
    batch_bytes: int = 20_000_000
    prefetch: int = 2
    pin: bool = True
    pin_ms: float = 2.0
    uneven: float = 0.1
    folder: str = "/data/train"

    @property
    def one_ms(self) -> float:
        """What one batch takes whoever makes it."""
        return self.cpu_ms + self.disk_ms + self.network_ms


class Fetching:
    """What a thread does that makes batches."""

    def __init__(self, plan: Input, in_worker: bool) -> None:
        self.cpu = Doing(stacks=places.fetching(in_worker, "cpu"), code=places.DECODE, gil=not in_worker)
        self.disk = [
            Doing("D", "pread64" if number % 2 else "read", f"file:{plan.folder}/shard-{number:05}.tar",
                  places.fetching(in_worker, "disk"))
            for number in range(6)
        ]  # fmt: skip
        self.network = [
            Doing("S", call, "socket:tcp", places.fetching(in_worker, "network")) for call in ("recvfrom", "poll")
        ]


def fetch(thread: Thread, plan: Input, kinds: Fetching, number: int) -> Task:
    """Makes one batch."""
    scale = max(0.2, thread.random.gauss(1.0, plan.uneven)) * MS
    pieces = 4
    for piece in range(pieces):
        yield from thread.sleep(plan.disk_ms * scale / pieces, kinds.disk[(number + piece) % len(kinds.disk)])
        yield from thread.sleep(plan.network_ms * scale / pieces, kinds.network[piece % 2])
        yield from thread.run(plan.cpu_ms * scale / pieces, kinds.cpu)
    if plan.disk_ms:
        thread.process.read.append((thread.sim.now, plan.batch_bytes))
    if plan.network_ms:
        thread.process.received.append((thread.sim.now, plan.batch_bytes))


_WORKER_IDLE = Doing("S", "poll", "pipe", places.WORKER_IDLE)
_PIN_WAITS = Doing("S", "poll", "pipe", places.PIN_WAITS)
_PIN_COPIES = Doing(stacks=places.PIN_COPIES, code=places.MEMCPY)
_WAIT_PINNED = Doing("S", "futex", stacks=places.WAIT_PINNED)
_WAIT_WORKERS = Doing("S", "poll", "pipe", places.WAIT_WORKERS)
_TAKE = Doing(stacks=places.TAKE_BATCH, code=places.IN_PYTHON, gil=True)


class Loader:
    """Hands batches to a trainer.

    Args:
        sim: the clock.
        plan: how batches are made.
        workers: their main threads.
        pinner: the thread that pins; None without.
    """

    def __init__(self, sim: Simulation, plan: Input, workers: list[Thread], pinner: Thread | None) -> None:
        self.plan = plan
        self._single = Fetching(plan, in_worker=False)
        self._changed = Signal()
        self._ready: set[int] = set()  # by workers
        self._pinned: set[int] = set()
        self._orders = [
            deque(range(number, len(workers) * plan.prefetch, len(workers))) for number in range(len(workers))
        ]
        self._ordered = len(workers) * plan.prefetch
        self._taken = 0
        self._pinner = pinner
        for number, worker in enumerate(workers):
            sim.spawn(self._work(worker, number))
        if pinner is not None:
            sim.spawn(self._pin(pinner))

    def next(self, trainer: Thread) -> Task:
        """The trainer takes the next batch."""
        number = self._taken
        self._taken += 1
        if not self._orders:
            yield from fetch(trainer, self.plan, self._single, number)
            return
        ready = self._pinned if self._pinner is not None else self._ready
        doing = _WAIT_PINNED if self._pinner is not None else _WAIT_WORKERS
        yield from trainer.wait(lambda: number in ready, self._changed, doing)
        ready.discard(number)
        self._orders[self._ordered % len(self._orders)].append(self._ordered)
        self._ordered += 1
        self._changed.fire()
        yield from trainer.run(120 * US, _TAKE)

    def _work(self, worker: Thread, number: int) -> Task:
        kinds = Fetching(self.plan, in_worker=True)
        orders = self._orders[number]
        while True:
            yield from worker.wait(lambda: bool(orders), self._changed, _WORKER_IDLE)
            batch = orders.popleft()
            yield from fetch(worker, self.plan, kinds, batch)
            self._ready.add(batch)
            self._changed.fire()

    def _pin(self, pinner: Thread) -> Task:
        for batch in count():
            yield from pinner.wait(partial(self._ready.__contains__, batch), self._changed, _PIN_WAITS)
            self._ready.discard(batch)
            yield from pinner.run(self.plan.pin_ms * MS, _PIN_COPIES)
            self._pinned.add(batch)
            self._changed.fire()


def worker_process(sim: Simulation, parent: Process, number: int, comm: str) -> Thread:
    """A worker as a process; its threads keep the name that the first one has."""
    pid = parent.pid + 100 + 10 * number
    process = Process(pid, parent.pid, comm, parent.command, forked=True, environment=parent.environment)
    main = Thread(sim, process, pid, comm, python="MainThread")
    Thread(sim, process, pid + 1, comm).note(Doing("S", "futex"))
    return main
