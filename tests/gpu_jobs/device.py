"""A GPU: streams that work through a bounded queue of launches, and what its units did from when to when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from tests.gpu_jobs.events import Signal, Simulation

# Launches that may be pending on a stream before the host has to wait: 1022 to 1024 were seen.
QUEUE = 1024


@dataclass(frozen=True, slots=True)
class Use:
    """What of a GPU is in use while something runs there.

    Attributes:
        kernel: a kernel runs (a copy is none).
        sm: multiprocessors with a warp on them.
        occupancy: warps per multiprocessor, of those that fit.
        tensor: tensor pipes active.
        dram: memory bandwidth, of the theoretical one.
        fp32: single-precision pipes active.
        fp16: half-precision pipes active, tensor cores not counted.
        heat: what it draws, of what its activities would draw as a rule.
        pcie_in: B/s from the host.
        pcie_out: B/s to the host.
        nvlink: B/s in each direction.
    """

    kernel: bool = True
    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    heat: float = 1.0
    pcie_in: float = 0.0
    pcie_out: float = 0.0
    nvlink: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """A product.

    Attributes:
        limit_w: its power limit.
        idle_w: with a context on it and nothing to do.
        clock_hz: of its multiprocessors at most.
        window_ns: over which NVML's utilisation counts: 1/6 to 1 s, by product.
        power_ns: over which power is a mean, and how much of each 100 ms is sampled at all.
        gpm: it has GPU performance monitoring.
        pcie: B/s that a pinned copy reaches.
        links: B/s of NVLink in one direction; 0 without.
    """

    name: str
    capability: str
    limit_w: float
    idle_w: float
    clock_hz: float
    memory_bytes: int
    window_ns: int
    power_ns: int
    gpm: bool
    pcie_generation: int
    pcie: float
    links: float


GB = 1_000_000_000
H100 = Model("NVIDIA H100 80GB HBM3", "9.0", 700, 120, 1980e6, 85_520_809_984, 10**9 // 6, 10**9, True, 5, 50e9, 300e9)
H200 = Model("NVIDIA H200", "9.0", 700, 122, 1980e6, 150_754_820_096, 10**9 // 6, 10**9, True, 5, 50e9, 300e9)
A100 = Model(
    "NVIDIA A100-SXM4-80GB", "8.0", 400, 85, 1410e6, 85_899_345_920, 10**9 // 6, 25 * 10**6, False, 4, 24e9, 200e9
)
A100_PCIE = Model(
    "NVIDIA A100 80GB PCIe", "8.0", 300, 68, 1410e6, 85_899_345_920, 10**9 // 2, 25 * 10**6, False, 4, 22e9, 0
)
A10 = Model("NVIDIA A10", "8.6", 150, 56, 1695e6, 24_146_608_128, 10**9, 10**9, False, 4, 22e9, 0)
MODELS = (H100, H200, A100, A100_PCIE, A10)


class Op:
    """Something in a stream: kernels that follow one another, a copy, or this rank's part of a collective.

    Attributes:
        entries: places that it takes in the launch queue.
        length: ns that it takes by itself.
        after: what must have ended before, in whatever stream.
        meeting: the collective that it is a part of.
        start: when it began; None while that is open.
        end: when it ended; likewise.
    """

    __slots__ = ("after", "end", "entries", "length", "meeting", "start", "submitted", "use")

    def __init__(
        self, entries: int, length: int, use: Use, after: tuple[Op, ...] = (), meeting: Meeting | None = None
    ) -> None:
        self.entries = entries
        self.length = length
        self.use = use
        self.after = after
        self.meeting = meeting
        self.submitted = 0
        self.start: int | None = None
        self.end: int | None = None


class Meeting:
    """A collective: nobody moves data before all have come, and all end together.

    Attributes:
        waiting: what a GPU does in it until the last one has come.
        moving: what it does from then on.
    """

    def __init__(self, ranks: int, length: int, waiting: Use, moving: Use) -> None:
        self.missing = ranks
        self.length = length
        self.waiting = waiting
        self.moving = moving
        self._parts: list[tuple[Op, Stream]] = []

    def arrive(self, op: Op, stream: Stream) -> None:
        """A rank's stream has come to its part."""
        self.missing -= 1
        self._parts.append((op, stream))
        if self.missing:
            return
        last = max(part.start or 0 for part, _ in self._parts)
        for part, _ in self._parts:
            part.end = last + self.length
        for part, at in self._parts:
            assert part.start is not None
            at.gpu.note(part.start, last, self.waiting)
            at.gpu.note(last, last + self.length, self.moving)
        for _, at in self._parts:
            at.resume()

    def stop(self, now: int) -> None:
        """Those that have come, where some never do, have waited until now."""
        for part, at in self._parts if self.missing else ():
            assert part.start is not None
            at.gpu.note(part.start, now, self.waiting)


# Counts as busy, and computes nothing.
NOTHING = Use()


class Gpu:
    """A device.

    Attributes:
        slower: by what a kernel takes longer than at full clocks and alone.
        part: what it then gets of the device's time.
        neighbour: the part of the time that somebody else's kernels ask for.
        intervals: from when to when something ran, and what it used.
        front_end_ns: for how long it counts as busy beyond each kernel.
    """

    def __init__(self, sim: Simulation, index: int, model: Model) -> None:
        self.sim = sim
        self.index = index
        self.model = model
        self.slower = 1.0
        self.part = 1.0
        self.neighbour = 0.0
        self.front_end_ns = 0
        self.intervals: list[tuple[int, int, Use]] = []
        self.streams: list[Stream] = []
        self._scaled: dict[Use, Use] = {}

    def note(self, start: int, end: int, use: Use) -> None:
        """Something ran."""
        if end <= start:
            return
        if self.part < 1 and use.kernel:
            use = self._taking_turns(use)
        if self.intervals:
            last_start, last_end, last_use = self.intervals[-1]
            if last_end == start and last_use is use:
                self.intervals[-1] = last_start, end, use
                return
        self.intervals.append((start, end, use))

    def _taking_turns(self, use: Use) -> Use:
        scaled = self._scaled.get(use)
        if scaled is None:
            names = ("sm", "occupancy", "tensor", "dram", "fp32", "fp16", "nvlink", "pcie_in", "pcie_out")
            scaled = self._scaled[use] = replace(use, **{name: getattr(use, name) * self.part for name in names})
        return scaled

    def stream(self) -> Stream:
        """A new stream."""
        self.streams.append(Stream(self))
        return self.streams[-1]

    def resume(self) -> None:
        """Something ended that streams may have waited for."""
        for stream in self.streams:
            stream.advance()


class Stream:
    """Works through what was launched, in order.

    Attributes:
        changed: fires when what was open is settled.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.changed = Signal()
        self.last: Op | None = None
        self._open: deque[Op] = deque()  # no start is known yet
        self._begun: deque[Op] = deque()  # a start is known, perhaps one in the future
        self._queued = 0
        self._free_at = -(10**18)

    def launch(self, op: Op) -> Op:
        """Puts something behind all that is there."""
        op.submitted = self.gpu.sim.now
        self._queued += op.entries
        self._open.append(op)
        self.last = op
        self.advance()
        return op

    def advance(self) -> None:
        """Settles what can be settled."""
        settled = False
        while self._open:
            op = self._open[0]
            if op.start is not None:  # in a collective whose end is open
                if op.end is None:
                    break
                self._free_at = op.end
                self._open.popleft()
                settled = True
                continue
            begins = max(op.submitted, self._free_at)
            ready = True
            for other in op.after:
                if other.end is None:
                    ready = False
                    break
                begins = max(begins, other.end)
            if not ready:
                break
            op.start = begins
            self._begun.append(op)
            settled = True
            if op.meeting is not None:
                op.meeting.arrive(op, self)
                continue
            op.end = begins + round(op.length * (self.gpu.slower if op.use.kernel else 1.0))
            self.gpu.note(op.start, op.end, op.use)
            if op.use.kernel and self.gpu.front_end_ns:
                self.gpu.note(op.end, op.end + op.entries * self.gpu.front_end_ns, NOTHING)
            self._free_at = op.end
            self._open.popleft()
        if settled:
            self.changed.fire()

    def resume(self) -> None:
        """A collective of this stream has ended; others of the device may have waited for it."""
        self.gpu.resume()

    def queued(self) -> int:
        """Launches that have not begun."""
        begun, now = self._begun, self.gpu.sim.now
        while begun and (begun[0].start or 0) <= now:
            self._queued -= begun.popleft().entries
        return self._queued

    def room_at(self, entries: int) -> int | None:
        """From when on so many more fit into the queue; None while that is open."""
        missing = self.queued() + entries - QUEUE
        if missing <= 0:
            return self.gpu.sim.now
        for op in self._begun:
            missing -= op.entries
            if missing <= 0:
                return op.start
        return None

    def drained_at(self) -> int | None:
        """When all that is there now has ended; None while that is open."""
        if self.last is None:
            return self.gpu.sim.now
        return self.last.end
