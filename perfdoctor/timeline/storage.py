"""CPU time that the kernel spends on storage in a process's name, while its threads count as running."""

from __future__ import annotations

from perfdoctor.causes import CHECKPOINT_WRITE, STORAGE_READ, SWAP
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.readings import Counters


class StorageWork:
    """Answers for one recording, from its counters.

    Args:
        counters: of the recording.
        minor_fault_s: what a page fault costs that needs no device; 0 where that was not measured.
    """

    def __init__(self, counters: Counters, minor_fault_s: float = 0.0) -> None:
        self._counters = counters
        self._minor_fault_s = minor_fault_s
        self._known: dict[tuple[int, int], tuple[float, str]] = {}

    def at(self, pid: int, time_ns: int) -> tuple[float, str]:
        """The part of a process's CPU time that is the kernel's work on storage, and whose cause it is.

        Mapping pages that a major fault brought in, and copying what is saved into the page cache. (0, "") where
        neither happens at a rate that matters. Page faults that need no device, as all fresh memory does, are none of
        it: they are counted, and what one costs was measured on the machine.
        """
        key = (pid, time_ns // NS_PER_S)
        if key not in self._known:
            self._known[key] = self._around(pid, time_ns)
        return self._known[key]

    def saves_state(self, pid: int) -> bool:
        """Whether a process writes in large pieces over the whole recording, as state is written and no log."""
        written, calls = (
            self._counters.growth(f"pid:{pid}", name) for name in ("write_call_bytes_total", "write_calls_total")
        )
        return calls > 0 and written / calls >= thresholds.STATE_BYTES_PER_CALL

    def fault_cause(self, time_ns: int) -> str:
        """What a page fault that needs a device brings in: swapped memory, or a mapped file."""
        swapped = self._grown("host", "swapped_in_bytes_total", time_ns) / 2
        return SWAP if swapped > thresholds.SWAP_BYTES_PER_S else STORAGE_READ

    def _around(self, pid: int, time_ns: int) -> tuple[float, str]:
        subject = f"pid:{pid}"
        system = self._grown(subject, "system_seconds_total", time_ns)
        busy = system + self._grown(subject, "user_seconds_total", time_ns)
        if busy <= 0:
            return 0.0, ""
        everyday = self._grown(subject, "minor_faults_total", time_ns) * self._minor_fault_s
        work = max(0.0, system - everyday) / busy
        if self._grown(subject, "major_faults_total", time_ns) / 2 >= thresholds.MAJOR_FAULTS_PER_S:
            return work, self.fault_cause(time_ns)
        stored = self._grown(subject, "storage_write_bytes_total", time_ns) / 2
        if stored >= thresholds.STATE_WRITTEN_PER_S and self.saves_state(pid):
            return work, CHECKPOINT_WRITE
        return 0.0, ""

    def _grown(self, subject: str, name: str, time_ns: int) -> float:
        """Growth in the two seconds around an instant."""
        return self._counters.growth(subject, name, time_ns - NS_PER_S, time_ns + NS_PER_S)
