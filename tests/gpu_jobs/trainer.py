"""A rank: its threads, and what they do in a step."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.gpu_jobs import places
from tests.gpu_jobs.device import NOTHING, Gpu, Meeting, Op, Stream, Use
from tests.gpu_jobs.doings import Doings, Waits
from tests.gpu_jobs.events import MS, US, Signal, Simulation, Task
from tests.gpu_jobs.host import Doing, Gil, Process, Thread
from tests.gpu_jobs.job import Job, Kernels, Step
from tests.gpu_jobs.loader import Loader, worker_process

# Kernels are launched in groups of about so much host time; at most so many at once.
_GROUP_NS, _GROUP = 400 * US, 64
# Calls of the driver that follow one another are as one of about this length.
_CALLS_NS = 2 * MS
# A kernel of NCCL occupies a block per channel, 10 to 20 % of an H100's multiprocessors, and draws little.
# What hangs does so from the first step on that begins after this; the watching begins at 0.
HANGS_NS = -1000 * MS
_NCCL_WAITS = Use(sm=0.14, occupancy=0.03, heat=0.5)


class Trainer:
    """One rank.

    Attributes:
        ends: the last operation of each step.
    """

    def __init__(self, sim: Simulation, job: Job, rank: int, process: Process, gpu: Gpu) -> None:
        self.sim = sim
        self.job = job
        self.rank = rank
        self.plan: Step = job.steps[rank]
        self.process = process
        self.gpu = gpu
        self.random = random.Random(f"{job.seed} {rank}")
        self.ends: list[Op] = []
        self.partners: Partners | None = None
        self.doing = Doings(job.ranks > 1, self.plan.compiled, job.unsure)
        self.waits = Waits(job)
        self.compute = gpu.stream()
        self.comm = gpu.stream()
        self.copies = gpu.stream()
        comm = job.unsure.comm
        first = self._thread(0, comm("python"), "MainThread")
        first.note(Doing("S", "futex", stacks=places.RAY_MAIN))
        self.main = self._thread(40, "python", "TrainingThread(train)") if job.own_thread else first
        self.main.note(Doing(stacks=(places.LOOP,), code=places.IN_PYTHON, gil=True))
        self.autograd = self._thread(31, comm("pt_autograd_0"), "")
        self.autograd.note(Doing("S", "futex"))
        self._idle_threads()
        self.loader = self._loader()
        if job.hog:
            self._hog()
        self._backward_asked = Signal()
        self._backward_done = Signal()
        self._in_backward = False
        self._exchanged: list[Op] = []
        # No two steps take the same time.
        self._host_scale = self._device_scale = 1.0
        sim.spawn(self._train())
        sim.spawn(self._autograd_loop())

    def _thread(self, number: int, name: str, python: str | None = None, **more: tuple[int, int]) -> Thread:
        thread = Thread(self.sim, self.process, self.process.pid + number, name, python=python, **more)
        thread.cores = self.job.host.wait
        return thread

    def _idle_threads(self) -> None:
        """Those of torch, NCCL and the driver, asleep as they are."""
        name = self.job.unsure.comm
        idle = [("python", "futex", "", (0, 0))]
        if self.job.watch.device != "rocm":
            idle += [("cuda00001400006", "poll", "", (0, 0)), ("cuda-EvtHandlr", "poll", "", (100 * MS, 20 * US))]
        if self.job.ranks > 1:
            idle += [
                (name("pt_nccl_watchdg"), "futex", "", (100 * MS, 60 * US)),
                (name("pt_nccl_heartbt"), "futex", "", (400 * MS, 20 * US)),
                (name("pt_tcpstore_uv"), "epoll_wait", "socket:tcp", (500 * MS, 10 * US)),
                (self._nccl("NCCL Service 0"), "poll", "socket:tcp", (500 * MS, 10 * US)),
            ]
            # While network traffic runs the proxy thread polls, and yields its core each time; else it sleeps.
            network = self.job.exchange is not None and self.job.exchange.link == "network"
            proxy = self._thread(20, self._nccl("NCCL Progress 0"))
            proxy.note(Doing(system=0.8) if network else Doing("S", "futex"))
        for number, (comm, call, target, wakes) in enumerate(idle):
            self._thread(2 + number, comm, wakes=wakes).note(Doing("S", call, target))

    def _nccl(self, name: str) -> str:
        return name if self.job.unsure.nccl_named else self.job.unsure.comm("python")

    def _loader(self) -> Loader:
        plan = self.plan.input
        workers = []
        for number in range(plan.workers):
            worker = worker_process(self.sim, self.process, number, self.job.unsure.comm("pt_data_worker"))
            worker.cores = self.job.host.worker_wait
            workers.append(worker)
        self.workers = [worker.process for worker in workers]
        pinner = None
        if workers and plan.pin:
            pinner = self._thread(30, self.job.unsure.comm("pt_data_pin"), "Thread-1 (_pin_memory_loop)")
        return Loader(self.sim, plan, workers, pinner)

    def _hog(self) -> None:
        gil = Gil(self.sim)
        thread = self._thread(29, "python", "Thread-2 (update)")
        self.process.gil = gil
        self.main.loses_gil = self.job.unsure.loses_gil
        self.sim.spawn(self._busy(thread))

    def _busy(self, thread: Thread) -> Task:
        busy = Doing(stacks=places.BUSY_THREAD, code=places.IN_PYTHON, gil=True)
        rest = Doing("S", "clock_nanosleep", stacks=places.BUSY_THREAD)
        while True:
            yield from thread.run(40 * MS, busy)
            if self.job.hog < 1:
                yield from thread.sleep(40 * MS * (1 / self.job.hog - 1), rest)

    def _train(self) -> Task:
        number = self.random.randrange(1000)
        while True:
            number += 1
            if self.plan.hangs and self.sim.now > HANGS_NS:
                self.main.let_go()
                self.main.note(Doing("S", "futex", stacks=(places.at(77),)))
                yield Signal()
            self._host_scale = max(0.5, self.random.gauss(1.0, 0.03))
            self._device_scale = max(0.5, self.random.gauss(1.0, self.plan.uneven))
            yield from self.loader.next(self.main)
            yield from self._copy()
            yield from self._forward(number)
            yield from self._launch(self.main, Kernels(4, 8, 15, self.plan.forward.use), self.doing.loss)
            yield from self._backward()
            yield from self._small_collectives()
            after, self._exchanged = tuple(self._exchanged), []
            yield from self._launch(self.main, self.plan.optimizer, self.doing.optimizer, after)
            assert self.compute.last is not None
            self.ends.append(self.compute.last)
            yield from self._afterwards(number)

    def _launch(
        self, thread: Thread, kernels: Kernels, doing: Doing, after: tuple[Op, ...] = (), stream: Stream | None = None
    ) -> Task:
        stream = stream or self.compute
        most = min(max(1, round(_GROUP_NS / US / kernels.host_us)), _GROUP)
        group, left = most, kernels.count
        while left > 0:
            # What an idle stream gets first begins when it is launched, not with its group.
            idle = stream.drained_at()
            group = 1 if idle is not None and idle <= self.sim.now else min(2 * group, most)
            some = min(group, left)
            left -= some
            yield from thread.run(some * kernels.host_us * US * self._host_scale, doing)
            yield from self._room(thread, stream, some, doing)
            length = round(some * kernels.device_us * US * self._device_scale)
            stream.launch(Op(some, length, kernels.use, after))
            after = ()

    def _room(self, thread: Thread, stream: Stream, entries: int, doing: Doing) -> Task:
        while True:
            when = stream.room_at(entries)
            if when is not None and when <= self.sim.now:
                return
            waiting = self.waits.room(doing.stacks)
            if when is None:
                thread.let_go()
                thread.note(waiting)
                yield stream.changed
            else:
                yield from thread.run(when - self.sim.now, waiting)

    def _drain(self, thread: Thread, doing: Doing, stream: Stream | None = None) -> Task:
        """Waits until the stream has done all that is in it."""
        stream = stream or self.compute
        waiting = self.waits.device(doing.stacks)
        while True:
            when = stream.drained_at()
            if when is not None and when <= self.sim.now:
                return
            if when is None:
                thread.let_go()
                thread.note(waiting)
                yield stream.changed
            elif waiting.state == "R":
                yield from thread.run(when - self.sim.now, waiting)
            else:
                yield from thread.sleep(when - self.sim.now, waiting)

    def _copy(self) -> Task:
        copy = self.plan.copy
        rate = self.gpu.model.pcie
        if copy.how == "pageable":
            yield from self._drain(self.main, self.doing.copy)
            length = round(copy.size / copy.pageable_rate * 1e9)
            self.compute.launch(Op(1, length, Use(kernel=False, pcie_in=copy.pageable_rate)))
            yield from self.main.run(length, self.doing.staging)
            return
        yield from self.main.run(20 * US, self.doing.copy)
        stream = self.copies if copy.how == "hidden" else self.compute
        yield from self._room(self.main, stream, 1, self.doing.copy)
        stream.launch(Op(1, round(copy.size / rate * 1e9), Use(kernel=False, pcie_in=rate, dram=0.02)))
        if copy.how == "waiting":
            yield from self._drain(self.main, self.doing.copy)

    def _forward(self, number: int) -> Task:
        plan = self.plan
        compiling = plan.compiling
        if compiling is not None and number % compiling.every == 0:
            yield from self.main.run(compiling.cpu_ms * MS, self.doing.compile)
            yield from self.main.sleep(compiling.blocked_ms * MS, self.doing.compile_waits)
        churn = plan.churn
        cuts = max(plan.sections, plan.items, churn.times if churn else 0, 8 if plan.own_us else 0, 1)
        for cut in range(cuts):
            some = plan.forward.count * (cut + 1) // cuts - plan.forward.count * cut // cuts
            yield from self._launch(self.main, replace(plan.forward, count=some), self.doing.forward)
            if plan.large is not None:
                some = plan.large.count * (cut + 1) // cuts - plan.large.count * cut // cuts
                yield from self._launch(self.main, replace(plan.large, count=some), self.doing.forward)
            yield from self.main.run(plan.own_us * US / cuts, self.doing.own)
            if (cut + 1) * plan.items // cuts > cut * plan.items // cuts:
                yield from self._item(self.doing.layer_item)
            if churn is not None and (cut + 1) * churn.times // cuts > cut * churn.times // cuts:
                yield from self._allocate()

    def _item(self, doing: Doing) -> Task:
        """Reads a number: a small copy back, behind all kernels."""
        yield from self.main.run(15 * US, doing)
        self.compute.launch(Op(1, 2 * US, Use(kernel=False, pcie_out=1e6)))
        yield from self._drain(self.main, doing)

    def _allocate(self) -> Task:
        """The allocator gives its cache back, which waits for all work, and asks the driver for memory again."""
        churn = self.plan.churn
        assert churn is not None
        stacks = self.doing.forward.stacks
        yield from self._drain(self.main, self.doing.forward)
        blocked = self.job.unsure.ioctl_blocks
        together = max(1, round(_CALLS_NS / US / churn.call_us))
        for first in range(0, churn.calls, together):
            device = ("nvidiactl", "nvidia0", "nvidia-uvm")[first // together % 3]
            length = min(together, churn.calls - first) * churn.call_us * US
            begun = self.main.sim.now
            yield from self.main.run(length * (1 - blocked), self.waits.driver(stacks, False, device))
            yield from self.main.sleep(length * blocked, self.waits.driver(stacks, True, device))
            if self.job.unsure.counts_mapping:
                self.compute.gpu.note(begun, self.main.sim.now, NOTHING)

    def _backward(self) -> Task:
        yield from self.main.run(30 * US, self.doing.enter)
        self._in_backward = True
        self._backward_asked.fire()
        yield from self.main.wait(lambda: not self._in_backward, self._backward_done, self.doing.backward)

    def _autograd_loop(self) -> Task:
        idle = Doing("S", "futex")
        while True:
            yield from self.autograd.wait(lambda: self._in_backward, self._backward_asked, idle)
            yield from self._gradients()
            self._in_backward = False
            self._backward_done.fire()

    def _gradients(self) -> Task:
        plan, exchange = self.plan.backward, self.job.exchange
        buckets = exchange.buckets if exchange and self.partners else 0
        overlapped = bool(exchange and exchange.overlapped)
        cuts = max(buckets, 1)
        for cut in range(cuts):
            some = plan.count * (cut + 1) // cuts - plan.count * cut // cuts
            yield from self._launch(self.autograd, replace(plan, count=some), self.doing.autograd)
            if buckets and overlapped:
                yield from self._reduce_bucket()
        for _ in range(0 if overlapped else buckets):
            yield from self._reduce_bucket()

    def _reduce_bucket(self) -> Task:
        assert self.partners is not None
        yield from self.autograd.run(30 * US, self.doing.autograd)
        self._join(self.partners.bucket(self.rank), 1)

    def _join(self, meeting: Meeting, entries: int) -> None:
        after = (self.compute.last,) if self.compute.last is not None else ()
        self._exchanged.append(self.comm.launch(Op(entries, 0, meeting.moving, after, meeting)))

    def _small_collectives(self) -> Task:
        exchange = self.job.exchange
        if exchange is None or self.partners is None or not exchange.small:
            return
        group = 4
        for first in range(0, exchange.small, group):
            some = min(group, exchange.small - first)
            yield from self.main.run(some * 22 * US, self.doing.exchange)
            yield from self._room(self.main, self.comm, some, self.doing.exchange)
            self._join(self.partners.small(self.rank, some), some)

    def _afterwards(self, number: int) -> Task:
        plan, doing = self.plan, self.doing
        if plan.item_every and number % plan.item_every == 0:
            yield from self._item(doing.item)
        if plan.collect_ms:
            yield from self.main.run(plan.collect_ms * MS, doing.collect)
        if plan.log is not None and number % plan.log.every == 0:
            yield from self.main.run(plan.log.cpu_ms * MS, doing.log)
            yield from self.main.sleep(plan.log.blocked_ms * MS, doing.logging)
            self.process.written.append((self.sim.now, plan.log.size))
        if plan.save is not None and number % plan.save.every == 0:
            yield from self._drain(self.main, doing.save)
            for piece in range(10):
                yield from self.main.run(plan.save.cpu_ms * MS / 10, doing.save)
                yield from self.main.sleep(
                    plan.save.blocked_ms * MS / 10, doing.syncing if piece == 9 else doing.saving
                )
                self.process.written.append((self.sim.now, plan.save.size // 10))


class Partners:
    """The collectives of a job, in the order in which every rank comes to them."""

    def __init__(self, sim: Simulation, job: Job) -> None:
        self._sim = sim
        exchange = job.exchange
        assert exchange is not None
        self._ranks = job.ranks
        self._exchange = exchange
        self._met: dict[tuple[str, int], Meeting] = {}
        self._count: dict[tuple[str, int], int] = {}
        rate = exchange.bucket_bytes / (exchange.bucket_ms / 1e3)
        self._moving = _moving(exchange.link, rate, job)
        self._tiny = _moving(exchange.link, 2e7, job)

    def bucket(self, rank: int) -> Meeting:
        return self._next("bucket", rank, round(self._exchange.bucket_ms * MS), self._moving)

    def small(self, rank: int, some: int) -> Meeting:
        return self._next("small", rank, round(some * self._exchange.small_us * US), self._tiny)

    def _next(self, kind: str, rank: int, length: int, moving: Use) -> Meeting:
        number = self._count[kind, rank] = self._count.get((kind, rank), 0) + 1
        alone = f"{kind} {rank}" if self._exchange.lost and self._sim.now > HANGS_NS else kind
        meeting = self._met.get((alone, number))
        if meeting is None:
            meeting = self._met[alone, number] = Meeting(self._ranks, length, _NCCL_WAITS, moving)
        return meeting

    def stop(self, now: int) -> None:
        """Whoever waits in a collective until now has done so since it came."""
        for meeting in self._met.values():
            meeting.stop(now)


def _moving(link: str, rate: float, job: Job) -> Use:
    if link == "nvlink":
        return Use(sm=0.16, occupancy=0.03, dram=min(0.3, rate / 2e12), heat=0.8, nvlink=rate)
    return Use(sm=0.14, occupancy=0.03, dram=0.02, heat=0.6, pcie_in=rate, pcie_out=rate)
