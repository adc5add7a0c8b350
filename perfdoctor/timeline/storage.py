"""CPU time that the kernel spends on storage in a process's name, while its threads count as running."""

from __future__ import annotations

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.counters import Counters

# Less than this per second from swap is background noise of the host (a page is 4 KiB).
SWAP_BYTES_PER_S = 256 * 1024
# A process that writes more than this per second to storage saves state; logs are kilobytes.
MIN_WRITTEN_PER_S = 10e6
# Mean bytes per write call from which a process saves state. A file that Python buffers passes on 8 kB at a time and
# arrays are written whole (240 kB and more, measured); SQLite writes pages of 4 kB at most, log lines are shorter.
STATE_BYTES_PER_CALL = 6000
# Major faults per second below which they are start-up noise; a mapped dataset takes 20 with read-ahead, 1,000 without
# (measured).
MIN_FAULTS_PER_S = 10.0


class KernelWork:
    """Tells it from the counters of a recording."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._known: dict[tuple[int, int], tuple[float, str]] = {}

    def at(self, pid: int, time_ns: int) -> tuple[float, str]:
        """The part of a process's CPU time that is the kernel's work on storage, and whose cause it is.

        Mapping pages that a major fault brought in, and copying what is saved into the page cache. (0, "") where
        neither happens at a rate that matters.
        """
        key = (pid, time_ns // NS_PER_S)
        if key not in self._known:
            self._known[key] = self._around(pid, time_ns)
        return self._known[key]

    def saves_state(self, pid: int) -> bool:
        """Whether a process writes in large pieces over the whole recording, as state is written and no log."""
        written, calls = (
            self._counters.growth(f"pid:{pid}", name)
            for name in ("write_call_bytes_total", "write_calls_total")
        )
        return calls > 0 and written / calls >= STATE_BYTES_PER_CALL

    def fault_cause(self, time_ns: int) -> str:
        """What a page fault that needs a device brings in: swapped memory, or a mapped file."""
        swapped = self._grown("host", "swapped_in_bytes_total", time_ns) / 2
        return "io.swap" if swapped > SWAP_BYTES_PER_S else "io.storage_read"

    def _around(self, pid: int, time_ns: int) -> tuple[float, str]:
        subject = f"pid:{pid}"
        system = self._grown(subject, "system_seconds_total", time_ns)
        busy = system + self._grown(subject, "user_seconds_total", time_ns)
        if busy <= 0:
            return 0.0, ""
        if self._grown(subject, "major_faults_total", time_ns) / 2 >= MIN_FAULTS_PER_S:
            return system / busy, self.fault_cause(time_ns)
        stored = self._grown(subject, "storage_write_bytes_total", time_ns) / 2
        if stored >= MIN_WRITTEN_PER_S and self.saves_state(pid):
            return system / busy, "io.checkpoint_write"
        return 0.0, ""

    def _grown(self, subject: str, name: str, time_ns: int) -> float:
        """Growth in the two seconds around an instant."""
        return self._counters.growth(subject, name, time_ns - NS_PER_S, time_ns + NS_PER_S)
