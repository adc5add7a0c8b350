"""Where files lie and what that moved: file systems and their mounts, block devices, file servers."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes.readers.procfs import KeptFiles
from perfdoctor.recording.schema import Fact, Reading

_NETWORK = """
nfs nfs4 cifs smb3 smbfs lustre 9p ceph afs beegfs gpfs wekafs glusterfs orangefs pvfs2 ocfs2 gfs2 acfs panfs
fuse.s3fs fuse.sshfs fuse.glusterfs fuse.juicefs fuse.gcsfuse fuse.goofys fuse.geesefs fuse.rclone
fuse.blobfuse fuse.blobfuse2 fuse.ceph fuse.ceph-fuse fuse.mount-s3 fuse.alluxio-fuse fuse.curlftpfs
fuse.davfs fuse.cvmfs2
"""
_LOCAL_FUSE = """
fuseblk fuse.fuse-overlayfs fuse.lxcfs fuse.squashfuse fuse.squashfuse_ll fuse.ntfs-3g fuse.exfat fuse.encfs
fuse.gocryptfs fuse.portal fuse.gvfsd-fuse fuse.archivemount fuse.mergerfs
"""
# File systems inside the kernel: nothing that a job reads from there has to do with storage.
_KERNEL = """
proc sysfs devtmpfs devpts cgroup cgroup2 securityfs debugfs tracefs pstore bpf configfs fusectl mqueue
hugetlbfs autofs binfmt_misc efivarfs rpc_pipefs nsfs selinuxfs fuse.lxcfs
"""
NETWORK_TYPES = frozenset(_NETWORK.split())
LOCAL_FUSE_TYPES = frozenset(_LOCAL_FUSE.split())
KERNEL_TYPES = frozenset(_KERNEL.split())
NETWORK_SOURCES = ("mountpoint-s3", "s3fs", "JuiceFS:", "gcsfuse")

_ESCAPED = re.compile(r"\\([0-7]{3})")
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system.

    Attributes:
        point: where it is mounted.
        root: which folder of it is mounted there.
        number: ``major:minor`` of its device; anonymous for file systems without one.
        filesystem: its type.
        source: what is mounted, credentials masked.
        options: those of the file system itself.
    """

    point: str
    root: str = "/"
    number: str = ""
    filesystem: str = ""
    source: str = ""
    options: str = ""

    @property
    def network(self) -> str:
        """``yes`` or ``no``; ``unknown`` for FUSE file systems and host shares, which could be either."""
        if self.filesystem in NETWORK_TYPES or self.source.startswith(NETWORK_SOURCES):
            return "yes"
        unsure = self.filesystem.startswith("fuse") or self.filesystem == "virtiofs"
        return "unknown" if unsure and self.filesystem not in LOCAL_FUSE_TYPES else "no"


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts of a /proc/PID/mountinfo (proc(5)), in the order in which they were made."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if not dash or len(head) < 5 or len(tail) < 3:
            continue
        source = _CREDENTIALS.sub("***@", _unescaped(tail[1]))
        mounts.append(Mount(_unescaped(head[4]), _unescaped(head[3]), head[2], tail[0], source, tail[2]))
    return mounts


def read_mounts(root: Path = Path("/"), pid: int | str = "self") -> list[Mount]:
    """The mounts that a process sees.

    Raises:
        OSError: the process has ended, or may not be looked at.
    """
    return parse_mountinfo((root / f"proc/{pid}/mountinfo").read_text(errors="replace"))


def block_device_of(mount: Mount, root: Path = Path("/")) -> str | None:
    """Name of the whole block device under a mount (``vda`` for ``/dev/vda1``); None if there is none."""
    links = [root / "sys/dev/block" / mount.number]
    if mount.source.startswith("/dev/"):
        links.append(root / "sys/class/block" / mount.source.rpartition("/")[2])
    for link in links:
        if link.exists():
            parts = link.resolve().parts
            return parts[parts.index("block") + 1] if "block" in parts[:-1] else parts[-1]
    return None


def device_facts(time_ns: int, device: str, root: Path = Path("/")) -> Iterator[Fact]:
    """Model of a block device, and whether it rotates, as far as the kernel reports them."""
    about = root / "sys/class/block" / device
    with suppress(OSError):
        if model := (about / "device/model").read_text(errors="replace").strip():
            yield Fact(time_ns, "io", f"device:{device}", "model", model)
    with suppress(OSError):
        rotates = (about / "queue/rotational").read_text().strip() == "1"
        yield Fact(time_ns, "io", f"device:{device}", "rotates", "yes" if rotates else "no")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


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
