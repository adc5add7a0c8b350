"""How the examples make a machine slow: slow disks, CPU quotas, little memory, noisy neighbours.

All of it is undone when the job ends.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PREFIX = "perfdoctor-example-"


def needs_root() -> str | None:
    """Why control groups cannot be used here, or None if they can."""
    if os.geteuid() != 0:
        return "needs root, to place itself in a control group"
    if not (GROUPS / "blkio").is_dir():
        return "needs control groups of version 1 (/sys/fs/cgroup/blkio and its siblings)"
    return None


@contextmanager
def control_group(controller: str, limits: Mapping[str, str]) -> Iterator[None]:
    """This process, and those it starts, live in a control group of their own with these limits."""
    reason = needs_root()
    if reason:
        sys.exit(f"{Path(sys.argv[0]).parent.name}: {reason}; run `fixed`, or another example")
    parent = GROUPS / controller
    for left_over in parent.glob(PREFIX + "*"):
        if not (left_over / "cgroup.procs").read_text().strip():
            left_over.rmdir()
    group = parent / f"{PREFIX}{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            try:
                (parent / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue  # it has ended meanwhile
        group.rmdir()


def disk_of(path: Path) -> str:
    """Device number, ``major:minor``, of the whole disk that a path lies on."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    block = Path("/sys/dev/block", number).resolve()
    if (block / "partition").exists():
        return (block.parent / "dev").read_text().strip()
    return number


def slow_disk(path: Path, enabled: bool = True, **limits: int):  # type: ignore[no-untyped-def]
    """For this process, the disk under ``path`` is slow.

    Args:
        path: a file or folder on the disk.
        enabled: False leaves the disk as it is.
        limits: any of ``read_bps``, ``write_bps`` (bytes per second), ``read_iops``, ``write_iops``.
    """
    if not enabled:
        return nullcontext()
    disk = disk_of(path)
    return control_group(
        "blkio", {f"blkio.throttle.{name}_device": f"{disk} {limit}" for name, limit in limits.items()}
    )


@contextmanager
def little_memory(limit: int, swap: int) -> Iterator[None]:
    """This process may from now on hold ``limit`` bytes in memory; more goes to ``swap`` bytes on disk."""
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        left_over = Path(line.split()[0])
        if _owner_is_gone(left_over):
            subprocess.run(["swapoff", left_over], check=True)
            left_over.unlink()
    with control_group("memory", {"memory.limit_in_bytes": str(limit)}):
        file = Path("/var/tmp", f"{PREFIX}{os.getpid()}")
        with file.open("wb") as handle:
            os.fchmod(handle.fileno(), 0o600)
            os.posix_fallocate(handle.fileno(), 0, swap)
        try:
            subprocess.run(["mkswap", file], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["swapon", file], check=True)
            yield
        finally:
            # What is swapped out comes back now, and must find room.
            (GROUPS / "memory" / file.name / "memory.limit_in_bytes").write_text("-1")
            subprocess.run(["swapoff", file], check=False)
            file.unlink()


def folder():  # type: ignore[no-untyped-def]
    """A temporary folder on a disk (``/tmp`` may live in memory; ``/var/tmp`` does not)."""
    for left_over in Path("/var/tmp").glob(f"{PREFIX}*-*"):
        if _owner_is_gone(left_over):
            shutil.rmtree(left_over)
    return tempfile.TemporaryDirectory(dir="/var/tmp", prefix=f"{PREFIX}{os.getpid()}-")


def _owner_is_gone(path: Path) -> bool:
    """It is an example's, as its name says, and the process in its name has ended."""
    if not path.name.startswith(PREFIX):
        return False
    return not Path("/proc", path.name.removeprefix(PREFIX).partition("-")[0]).exists()


def forget(fd: int) -> None:
    """Drops an open file from the page cache, as if the data set were larger than memory."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def write_through(path: Path, data: bytes) -> None:
    """Writes a file to the disk and drops it from the page cache."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        forget(fd)
    finally:
        os.close(fd)


_SPIN = """
import os, sys, time
host, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
os.close(0), os.close(1), os.close(2)
while time.monotonic() < until and os.path.exists(f"/proc/{host}"):
    for _ in range(200000): pass
"""


@contextmanager
def neighbours(count: int, seconds: float) -> Iterator[None]:
    """So many processes that belong to nobody compute beside the job.

    They end with this context, or by themselves when the job is gone or long overdue.
    """
    command = [sys.executable, "-c", _SPIN, str(os.getpid()), str(seconds + 300)]
    pids = [int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(count)]
    try:
        yield
    finally:
        for pid in pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
