"""Marks that training processes of the job make from inside, read from their rings."""

from collections.abc import Iterable, Iterator

from perfdoctor.probes import Availability, Processes
from perfdoctor.probes.inside.ring import EDGES, KINDS, OWN, SERIALISED, WATCHING, RingReader, find_ring
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Fact, Mark, Sample, SerialMark, Unavailable

# A ring takes the marks of more than 2500 steps: enough for steps of 0.1 ms.
PERIOD_S = 0.2
FIND_NS = NS_PER_S // 2
# What is asked of a ring that nobody has read yet, is asked of its last seconds.
RECENT_NS = 10 * NS_PER_S
# How far the device's times may be off the one clock's; by how much its clock has run ahead in the end, None where that
# could not be read; marks that had to be left out.
DEVICE_CLOCK = ("device_clock_error_ns", "device_clock_drift_ns", "device_marks_skipped")


class MarksProbe:
    """Reads the rings of all processes of the job that have one.

    Args:
        rings: those that are known already.
    """

    name = "marks"
    period_s = PERIOD_S

    def __init__(self, *rings: RingReader) -> None:
        self.rings = {ring.pid: ring for ring in rings}
        self._job: Processes | None = None
        self._found_ns = 0

    def check(self, process: Candidate) -> Availability:
        """Marks are there where the script makes them: ``with diagnose():``."""
        ring = None if process.pid is None else find_ring(process.pid)
        if ring is not None:
            ring.close()
            return Availability(self.name, True)
        return Availability(self.name, False, "Nothing marks its steps.", "with perfdoctor.diagnose(): in the script")

    def open(self, job: Processes) -> Iterable[Sample]:
        """Lets the training processes know that they are watched."""
        self._job = job
        self._find_rings()  # all ranks begin together, and none is left out where the first one ends soon
        for ring in self.rings.values():
            ring.tell(WATCHING)
        return ()

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """Looks for new rings, and empties all."""
        if now_ns - self._found_ns >= FIND_NS:
            self._found_ns = now_ns
            self._find_rings()
        for ring in self.rings.values():
            yield from marks_of(ring)

    def close(self) -> Iterable[Sample]:
        """Reads what is left, and what the training processes could not do."""
        for ring in self.rings.values():
            yield from marks_of(ring)
            yield from _notes(ring)

    def _find_rings(self) -> None:
        for pid in self._job.torch_pids() if self._job is not None else ():
            if pid not in self.rings and (ring := find_ring(pid)) is not None:
                self.rings[pid] = ring
                ring.tell(WATCHING)


def marks_of(ring: RingReader) -> Iterator[Mark | SerialMark]:
    """The marks that have come into a ring since it was last read."""
    names: dict[int, str] = {}
    for time_ns, kind, value in ring.read():
        number = kind & 0xFF
        if number >= OWN and number not in names:
            names = _names(ring)
        what = KINDS[number] if number < len(KINDS) else f"own: {names.get(number, '?')}"
        edge = EDGES[kind >> 8]
        serial = ring.serialising or number == SERIALISED
        yield (SerialMark if serial else Mark)(time_ns, ring.pid, edge, what, value)
        if number == SERIALISED:
            ring.serialising = edge == "begin"


def steps_per_second(pid: int, now_ns: int) -> float | None:
    """How many steps a process makes per second, by its marks of the last seconds; None where it makes none.

    Args:
        pid: the process.
        now_ns: the time.
    """
    ring = find_ring(pid)
    if ring is None:
        return None
    since = now_ns - RECENT_NS
    ends = [mark.time_ns for mark in marks_of(ring) if isinstance(mark, Mark) and mark[2:4] == ("point", "step")]
    ring.close()
    recent = [time_ns for time_ns in ends if time_ns > since]
    return (len(recent) - 1) * NS_PER_S / (recent[-1] - recent[0]) if len(recent) > 1 else None


def _names(ring: RingReader) -> dict[int, str]:
    return {int(words[1]): str(words[2]) for words in ring.texts() if words[0] == "phase"}


def _notes(ring: RingReader) -> Iterator[Sample]:
    for words in ring.texts():
        if words[0] == "note":
            yield Unavailable("marks", str(words[1]), str(words[2]))
        elif words[0] == "device clock":
            for name, value in zip(DEVICE_CLOCK, words[1:], strict=True):
                yield Fact(now_ns(), "marks", f"pid:{ring.pid}", name, str(value))
    if ring.lost:
        reason = f"{ring.lost} marks of process {ring.pid} came faster than they were read, and are lost."
        yield Unavailable("marks", reason, "")
