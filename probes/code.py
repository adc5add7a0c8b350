"""Where in machine code the main threads of the job's processes are, sampled by the kernel's profiler.

Where that is refused, threads are stopped for a moment instead (``probes/readers/ptrace_sampler.py``).

So are autograd's threads, which carry out the backward pass on a device while the main thread sleeps.
While recording, samples carry image and offset only; the names of functions come at the end in one pass per
image (``Symbol`` rows), because reading libtorch's symbols takes longer than everything else.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal, Sample, Unavailable
from perfdoctor.probes.readers import perf_events, ptrace_sampler
from perfdoctor.probes.readers.perf_events import PerfEvent
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate, device_files
from perfdoctor.probes.readers.procfs import Births
from perfdoctor.probes.readers.ptrace_sampler import PtraceSampler, StoppedThread
from perfdoctor.probes.readers.symbols import AddressSpace, Images
from perfdoctor.probes.readers.task import AUTOGRAD
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import BY_STOPS, CODE_FREQUENCY, CodeSample, Reading, Symbol


class _SampledProcess:
    """One process, and the kernel's samples of some of its threads.

    Attributes:
        events: by thread id.
        has_unasked: it has threads whose names are still to be asked for.
    """

    def __init__(self, pid: int, root: Path, images: Images) -> None:
        self.pid = pid
        self.events: dict[int, PerfEvent | StoppedThread] = {}
        self._root = root
        self._folder = root / "proc" / str(pid)
        self._space = AddressSpace(self._folder, images)
        self._met: set[int] = set()
        self._met_twice = {pid}
        self.has_unasked = True
        self._on_gpu = False
        self._met_ns = self._ask_ns = now_ns()
        self._run_ns: dict[int, int] = {}
        self._timed_ns = 0

    def new_threads(self, name: bytes) -> list[int]:
        """Those of its threads whose names begin so and that are not sampled yet, as far as their names were asked for.

        Each is asked twice, for it is listed before it gives itself a name, and so many at most in one call.
        """
        tasks = f"{self._folder}/task"
        try:
            tids = set(map(int, os.listdir(tasks)))
        except OSError:
            return []
        asked = set(islice(tids - self._met_twice, _THREADS_ASKED))
        self._met_twice = (self._met_twice | asked & self._met) & tids
        self._met = (self._met | asked) & tids
        self.has_unasked = not tids <= self._met_twice
        names = {tid: _name(f"{tasks}/{tid}") for tid in asked}
        self._on_gpu = self._on_gpu or any(name.startswith(_OF_DRIVER) for name in names.values())
        return [tid for tid, own in names.items() if own.startswith(name) and tid not in self.events]

    def task(self, tid: int) -> Path:
        """The folder of one of its threads."""
        return self._folder / "task" / str(tid)

    def look_for_driver(self, time_ns: int) -> None:
        """Asks whether it has files of a GPU's driver open, ever more rarely: not each driver names its threads."""
        if self._on_gpu or time_ns < self._ask_ns:
            return
        self._ask_ns = time_ns + max(_LIST_THREADS_NS, time_ns - self._met_ns)
        with suppress(OSError):  # it has just ended, or is not ours to ask
            self._on_gpu = device_files(self.pid, self._root) is not None

    def busy_threads(self, time_ns: int) -> list[int]:
        """Threads of a process on a GPU that run for long and are not sampled yet, since the last call.

        Autograd's bears its creator's name in old versions of torch, and another than the first thread may train. Where
        there are many threads nobody is asked.
        """
        if not self._on_gpu or not 0 < len(self._met_twice) <= _THREADS_TIMED:
            return []
        elapsed, self._timed_ns = time_ns - self._timed_ns, time_ns
        before, self._run_ns = self._run_ns, {tid: _run_ns(f"{self._folder}/task/{tid}") for tid in self._met_twice}
        grown = {tid: run_ns - before.get(tid, run_ns) for tid, run_ns in self._run_ns.items()}
        busy = [tid for tid, ran_ns in grown.items() if ran_ns > _BUSY * elapsed and tid not in self.events]
        return busy[: max(0, _SAMPLED_THREADS - len(self.events))]

    def read(self) -> Iterator[CodeSample]:
        """What was sampled since the last call."""
        self._space.begin()
        for event in self.events.values():
            for place in event.read():
                image, offset = self._space.place(place.address)
                yield CodeSample(place.time_ns, place.tid, image, offset, "")

    def close(self) -> None:
        """Ends the sampling."""
        for event in self.events.values():
            event.close()
        self.events.clear()


def _by_stops(refusal: Refusal) -> Refusal:
    """What is seen otherwise where the kernel's profiler is refused."""
    instead = Refusal(
        "Threads are stopped for a moment instead, up to 33 times a second, to see where in machine code they are;"
        " how long they are in the kernel is not seen.",
        refusal.enable,
    )
    return instead._replace(reason=f"{refusal.reason} {instead.reason}")


def _name(task: str) -> bytes:
    try:
        with open(f"{task}/comm", "rb") as comm:
            return comm.read()
    except OSError:  # it has just ended
        return b""


def _run_ns(task: str) -> int:
    try:
        with open(f"{task}/schedstat", "rb") as schedstat:
            return int(schedstat.read().split()[0])
    except (OSError, IndexError):  # it has just ended
        return 0


# CUDA's driver has a thread of this name in each process with a context on a GPU; old ones and AMD's have none.
_OF_DRIVER = b"cuda-EvtHandlr"
# Of such processes, threads that take so much of a core are sampled, so many of a process at most, where no more are to
# be asked for their time.
_BUSY, _SAMPLED_THREADS, _THREADS_TIMED = 0.05, 6, 200
_LIST_THREADS_NS = 2 * NS_PER_S
# One call asks for the names of so many threads of a process, and of processes until so much time has passed: it must
# not hold up the other probes where there are thousands.
_THREADS_ASKED = 500
_ASKING_NS = NS_PER_S // 100


class CodeProbe:
    """Samples the instruction pointers of each process of the job that has torch loaded: of its main thread, and of
    autograd's; of one on a GPU those of its other busy threads, too.

    Listing its threads costs 1 µs for each that there is, and 15 µs twice for each new one (Linux 6.18, x86-64).

    Args:
        root: where ``proc`` is found.
    """

    name = "code"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._job: Processes | None = None
        self._processes: dict[int, _SampledProcess] = {}
        self._stops: PtraceSampler | None = None
        self._births = Births(root)
        self._listed_ns = 0
        self._unlisted: set[int] = set()  # processes whose threads are still to be listed
        self._images = Images()
        self._refused: set[int] = set()
        self._said: list[int | None] = []  # error numbers: each kind of refusal once, not once per worker

    def check(self, process: Candidate) -> Availability:
        """All is seen, or all but time in the kernel, or nothing."""
        refusal = perf_events.refusal(self._root)
        if refusal is not None and process.rights.trace and ptrace_sampler.refusal() is None:
            return Availability.but_for(self.name, _by_stops(refusal))
        if refusal is None and not process.rights.read:
            refusal = process.rights.why_not
        return Availability.unless(self.name, refusal)

    def open(self, job: Processes) -> Iterator[Sample]:
        """Starts sampling the processes that there are now."""
        self._job = job
        refusal = perf_events.refusal(self._root)
        if refusal is not None and ptrace_sampler.refusal() is None:
            with suppress(OSError):  # what the kernel's profiler says is told then
                self._stops = PtraceSampler()
                yield Unavailable(self.name, *_by_stops(refusal))
        yield from self._meet()

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """What the kernel has sampled since the last call; times are the kernel's, not ``now_ns``."""
        yield from self._meet()
        if now_ns - self._listed_ns >= _LIST_THREADS_NS:
            self._listed_ns = now_ns
            if self._births.any():
                self._unlisted.update(self._processes)
            forked = self._job.forked_pids() if self._job else ()  # they have their parents' files
            for process in self._processes.values():
                if process.pid not in forked:
                    process.look_for_driver(now_ns)
                for tid in process.busy_threads(now_ns):
                    yield from self._sample_thread(process, tid)
        yield from self._list_threads()
        for process in self._processes.values():
            yield from process.read()
        if self._stops is not None:
            yield from self._of_stops(self._stops, now_ns)

    def close(self) -> Iterator[Sample]:
        """Stops sampling, yields the last samples and then the names of all functions seen."""
        for process in self._processes.values():
            yield from process.read()
            process.close()
        self._processes.clear()
        if self._stops is not None:
            self._stops.close()
        self._births.close()
        for image, offset, symbol in self._images.functions():
            yield Symbol(image, offset, symbol)
        self._images.close()

    def _meet(self) -> Iterator[Sample]:
        """Takes up new processes and lets go of those that have left the job."""
        pids = self._job.torch_pids() if self._job else ()
        for pid in [pid for pid in self._processes if pid not in pids]:
            process = self._processes.pop(pid)
            yield from process.read()
            process.close()
        for pid in pids:
            if pid in self._processes or pid in self._refused:
                continue
            process = _SampledProcess(pid, self._root, self._images)
            yield from self._sample_thread(process, pid)
            if pid in process.events:
                self._processes[pid] = process
                self._unlisted.add(pid)

    def _list_threads(self) -> Iterator[Sample]:
        """Takes up threads of autograd's."""
        begun_ns, again = now_ns(), set()
        while self._unlisted and now_ns() - begun_ns < _ASKING_NS:
            process = self._processes.get(self._unlisted.pop())
            if process is not None:
                for tid in process.new_threads(AUTOGRAD.encode()):
                    yield from self._sample_thread(process, tid)
                if process.has_unasked:
                    again.add(process.pid)
        self._unlisted |= again

    def _sample_thread(self, process: _SampledProcess, tid: int) -> Iterator[Sample]:
        if self._stops is not None:
            is_worker = self._job is not None and process.pid in self._job.forked_pids()
            process.events[tid] = self._stops.sample(tid, process.task(tid), in_turn=is_worker)
            return
        try:
            process.events[tid] = PerfEvent(tid, CODE_FREQUENCY)
        except OSError as error:
            yield from self._refuse(tid, process.pid, error)

    def _of_stops(self, stops: PtraceSampler, now_ns: int) -> Iterator[Sample]:
        """What is to be kept of the stops themselves, and of threads that may not be stopped."""
        yield Reading(now_ns, self.name, "perfdoctor", BY_STOPS, stops.stopped_ns / NS_PER_S)
        while stops.refused:
            tid, number = stops.refused.pop()
            yield from self._refuse(tid, tid, OSError(number, os.strerror(number)))

    def _refuse(self, tid: int, pid: int, error: OSError) -> Iterator[Sample]:
        self._refused.add(tid)
        if error.errno not in (errno.ESRCH, *self._said):
            self._said.append(error.errno)
            yield Unavailable(self.name, *self._why(pid, error))

    def _why(self, pid: int, error: OSError) -> Refusal:
        """Why the kernel refused a process, and what would allow it."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return Refusal("too many open files to sample every process's code", "raise ulimit -n for perfdoctor")
        if (refusal := perf_events.refusal(self._root)) is not None:
            return refusal
        reason, enable = why_not(pid, self._root)
        return Refusal(f"The kernel's profiler is refused for process {pid} ({error.strerror}). {reason}", enable)
