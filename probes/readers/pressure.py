"""Pressure stall information of host and control groups (Documentation/accounting/psi.rst)."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from perfdoctor.probes.readers.cgroup import UNIFIED, Governing
from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.schema import Reading, Unavailable


def parse_pressure(psi: bytes) -> dict[str, float]:
    """Total stalled seconds by line (``some``, ``full``) of a pressure file."""
    totals: dict[str, float] = {}
    for line in psi.decode(errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdigit():
            totals[kind] = int(total) / 1e6
    return totals


class Pressure:
    """Reads how long tasks waited for one resource.

    Args:
        resource: ``cpu``, ``memory`` or ``io``; also the name of the probe that reads.
        root: where /proc and /sys are.
        files: the probe's files.
    """

    def __init__(self, resource: str, root: Path, files: KeptFiles) -> None:
        self._resource = resource
        self._files = files
        self._governing = Governing(UNIFIED, root)

    def unavailable(self) -> Iterator[Unavailable]:
        """Says so where the kernel does not keep pressure."""
        try:
            self._files.read(f"/proc/pressure/{self._resource}")
        except OSError as error:
            reason = f"Pressure of {self._resource} cannot be read ({error.strerror})."
            yield Unavailable(self._resource, reason, "boot Linux 4.20 or newer with psi=1")

    def sample(self, time_ns: int, pids: Iterable[int]) -> Iterator[Reading]:
        """Stalled time so far, of the host and of the job's own groups."""
        self._governing.update(pids)
        yield from self._read(time_ns, "host", f"/proc/pressure/{self._resource}")
        for group in self._governing.own.values():
            yield from self._read(time_ns, group.subject, f"{group.directory}/{self._resource}.pressure")

    def _read(self, time_ns: int, subject: str, path: str) -> Iterator[Reading]:
        try:
            totals = parse_pressure(self._files.read(path))
        except OSError:
            return
        for kind, total_s in totals.items():
            # Not every thread of a host can wait for a CPU at once: the kernel prints zeros there.
            if (subject, self._resource, kind) != ("host", "cpu", "full"):
                name = f"{self._resource}_pressure_{kind}_seconds_total"
                yield Reading(time_ns, self._resource, subject, name, total_s)
