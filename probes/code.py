"""Where in machine code the main threads of the job's processes are, sampled by the kernel's profiler.

While recording, samples carry image and offset only; the names of functions come at the end in one pass per
image (``Symbol`` rows), because reading libtorch's symbols takes longer than everything else.
"""

import errno
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal, Sample, Unavailable
from perfdoctor.probes.readers import perf_events
from perfdoctor.probes.readers.perf_events import PerfEvent
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.symbols import AddressSpace, Images
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, Symbol


class CodeProbe:
    """Samples the instruction pointer of the main thread of each process of the job that has torch loaded.

    Args:
        root: where ``proc`` is found.
    """

    name = "code"
    period_s = 0.5

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._job: Processes | None = None
        self._events: dict[int, PerfEvent] = {}
        self._spaces: dict[int, AddressSpace] = {}
        self._images = Images()
        self._refused: set[int] = set()
        self._said: list[int | None] = []  # error numbers: each kind of refusal once, not once per worker

    def check(self, process: Candidate) -> Availability:
        """All is seen, or nothing."""
        refusal = perf_events.refusal(self._root)
        if refusal is None and not process.rights.read:
            refusal = process.rights.why_not
        return Availability.unless(self.name, refusal)

    def open(self, job: Processes) -> Iterator[Sample]:
        """Starts sampling the processes that there are now."""
        self._job = job
        yield from self._meet()

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """What the kernel has sampled since the last call; times are the kernel's, not ``now_ns``."""
        yield from self._meet()
        for pid, event in self._events.items():
            yield from self._read(pid, event)

    def close(self) -> Iterator[Sample]:
        """Stops sampling, yields the last samples and then the names of all functions seen."""
        for pid, event in self._events.items():
            yield from self._read(pid, event)
            event.close()
        self._events.clear()
        for image, offset, symbol in self._images.functions():
            yield Symbol(image, offset, symbol)
        self._images.close()

    def _read(self, pid: int, event: PerfEvent) -> Iterator[Sample]:
        space = self._spaces[pid]
        space.begin()
        for place in event.read():
            image, offset = space.place(place.address)
            yield CodeSample(place.time_ns, place.tid, image, offset, "")

    def _meet(self) -> Iterator[Sample]:
        """Takes up new processes and lets go of those that have left the job."""
        pids = self._job.torch_pids() if self._job else ()
        for pid in [pid for pid in self._events if pid not in pids]:
            event = self._events.pop(pid)
            yield from self._read(pid, event)
            event.close()
            del self._spaces[pid]
        for pid in pids:
            if pid in self._events or pid in self._refused:
                continue
            try:
                self._events[pid] = PerfEvent(pid, CODE_FREQUENCY)
                self._spaces[pid] = AddressSpace(self._root / "proc" / str(pid), self._images)
            except OSError as error:
                self._refused.add(pid)
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
