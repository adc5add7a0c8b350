"""Block devices and file servers: what they moved, and how long that took."""

from collections.abc import Iterator
from pathlib import Path

from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.schema import Reading

SECTOR_BYTES = 512  # whatever the device's own sectors are (Documentation/admin-guide/iostats.rst)


def device_readings(time_ns: int, line: str) -> Iterator[Reading]:
    """One line of /proc/diskstats, fields as in Documentation/admin-guide/iostats.rst; times are in ms."""
    _, _, name, *fields = line.split()
    numbers = [int(field) for field in fields[:11]]
    reads, _, sectors_read, reading_ms, writes, _, sectors_written, writing_ms, _, busy_ms, queue_ms = numbers
    values = {
        "read_bytes_total": sectors_read * SECTOR_BYTES,
        "written_bytes_total": sectors_written * SECTOR_BYTES,
        "reads_total": reads,
        "writes_total": writes,
        "read_seconds_total": reading_ms / 1e3,
        "write_seconds_total": writing_ms / 1e3,
        "busy_seconds_total": busy_ms / 1e3,
        "queue_seconds_total": queue_ms / 1e3,
    }
    for key, value in values.items():
        yield Reading(time_ns, "io", f"device:{name}", key, value)


def server_readings(time_ns: int, mountstats: str) -> Iterator[Reading]:
    """What NFS mounts exchanged with their servers, from /proc/PID/mountstats (net/sunrpc/stats.c)."""
    subject = ""
    for line in mountstats.splitlines():
        words = line.split()
        if line.startswith("device ") and " mounted on " in line:
            point = line.split(" mounted on ", 1)[1].split(" with fstype ")[0]
            subject = f"mount:{point}" if " with fstype nfs" in line else ""
        elif subject and words[:1] == ["bytes:"]:
            # Bytes by: read(), write(), O_DIRECT read and write, then read from and written to the server.
            yield Reading(time_ns, "io", subject, "server_read_bytes_total", int(words[5]))
            yield Reading(time_ns, "io", subject, "server_write_bytes_total", int(words[6]))
        elif subject and words[:1] == ["READ:"]:
            # Operations, transmissions, timeouts, bytes sent and received; ms queued, on the way, in all.
            yield Reading(time_ns, "io", subject, "server_read_seconds_total", int(words[8]) / 1e3)


class Disks:
    """Reads the whole block devices that have ever been used.

    Args:
        root: where /proc and /sys are.
        files: the probe's files.
        wanted: devices that are read even where they are loop devices.
    """

    def __init__(self, root: Path, files: KeptFiles, wanted: frozenset[str] = frozenset()) -> None:
        self._files = files
        self._wanted = wanted
        try:
            self._whole = frozenset(path.name for path in (root / "sys/block").iterdir())
        except OSError:
            self._whole = frozenset()

    def sample(self, time_ns: int) -> Iterator[Reading]:
        """Samples all of them."""
        try:
            lines = self._files.read("/proc/diskstats").decode().splitlines()
        except OSError:
            return
        for line in lines:
            name = line.split(maxsplit=3)[2]
            if self._whole and name not in self._whole:
                continue  # A partition: what it moves is counted for its device.
            if name.startswith(("loop", "ram")) and name not in self._wanted:
                continue
            if line.split()[3:11] != ["0"] * 8:
                yield from device_readings(time_ns, line)
