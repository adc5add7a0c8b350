"""Files that a job waits for, and copies of them in memory that a run of it sees in their place.

What is waited for was seen from outside: the files of reads that a thread sleeps in, and where page faults are waited
for, the files that are mapped. A run sees the copies by mounts of its own, so any library finds them by any path.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import FILE_LOCKS, WRITES
from perfdoctor.knowledge.environment import IN_MEMORY
from perfdoctor.messages import Text, say
from perfdoctor.probes.readers.process_memory import mappings
from perfdoctor.probes.readers.storage import read_mounts
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import ThreadSample

# A file system in memory that every Linux has, and to which every user may write.
MEMORY = Path("/dev/shm")
_FILE = "file:"
_AT_ONCE = 16 * 2**20  # bytes of a file that are copied between two looks at the clock
# Linux, sched.h and mount.h. All that a container's own mounts may insist on is asked for: the copies are data.
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE, _REMOUNT = 0x1000, 0x4000, 0x40000, 0x20
_READ_ONLY = 0x1 | 0x2 | 0x4 | 0x8  # with nosuid, nodev and noexec
# Removes a folder when its input ends: also when perfdoctor is killed.
_REMOVER = 'read -r _; rm -rf -- "$0"'


def waited_files(recording: Recording, top: int) -> Counter[str]:
    """Files that threads of a job were seen to wait for, and how often.

    Args:
        recording: of the job.
        top: its first process, which lives still: what it maps is read now.
    """
    _, states, calls, targets = recording.columns(ThreadSample, "time_ns", "state", "syscall", "target")
    not_reading = WRITES | FILE_LOCKS
    waits: Counter[str] = Counter()
    faults = 0
    for state, call, target in zip(states, calls, targets, strict=True):
        if state not in ("D", "S"):
            continue
        if call == "fault":
            faults += 1
        elif target.startswith(_FILE) and call not in not_reading:
            waits[target.removeprefix(_FILE)] += 1
    if faults and (mapped := _mapped_files(top)):
        waits.update(dict.fromkeys(mapped, max(1, faults // len(mapped))))
    found: Counter[str] = Counter()
    for file, count in waits.items():
        if _is_data(file):
            found[os.path.realpath(file)] += count
    return found


def _mapped_files(top: int) -> set[str]:
    """Files that the processes of a job have mapped to share them, as data is; not what is mapped to be run."""
    found: set[str] = set()
    with suppress(psutil.Error):
        for process in (psutil.Process(top), *psutil.Process(top).children(recursive=True)):
            with suppress(OSError):
                found |= {one.path for one in mappings(Path(f"/proc/{process.pid}")) if one.shared and one.is_file}
    return found


def _is_data(file: str) -> bool:
    """Whether it is a regular file with something in it; those of /proc and the like have no size."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return False
    return os.path.isabs(file) and stat.S_ISREG(found.st_mode) and found.st_size > 0


def pieces(waits: Mapping[str, int]) -> tuple[str, ...]:
    """The smallest files and folders that are worth a copy: each has a part of the waits, and together most of them.

    Args:
        waits: files, and how often each was waited for.
    """
    return tuple(_pieces("", waits, thresholds.STAGED_PIECE * sum(waits.values())))


def _pieces(place: str, waits: Mapping[str, int], least: float) -> Iterator[str]:
    if place in waits:
        yield place
        return
    inside: dict[str, dict[str, int]] = {}
    for file, count in waits.items():
        name = file[len(place) + 1 :].partition("/")[0]
        inside.setdefault(f"{place}/{name}", {})[file] = count
    large = {one: files for one, files in inside.items() if sum(files.values()) >= least}
    if sum(sum(files.values()) for files in large.values()) < thresholds.STAGED_TOGETHER * sum(waits.values()):
        yield place or "/"
        return
    for one, files in sorted(large.items()):
        yield from _pieces(one, files, least)


class Staging:
    """Copies in memory.

    Attributes:
        copies: of which files and folders, and where they are.
    """

    def __init__(self) -> None:
        self.copies: dict[str, str] = {}
        self._remover: subprocess.Popen[bytes] | None = None

    def make(self, places: Sequence[str], room: float, until: float) -> Text:
        """Copies files and folders, or nothing.

        Args:
            places: which.
            room: bytes that they may take together, beside what the file system has.
            until: by ``time.monotonic``, when it has to be done.

        Returns:
            Why nothing was copied; "" if all was.
        """
        wanted = [place for place in places if os.path.exists(place) and not _is_in_memory(place)]
        if not wanted:
            return say("treat.nothing_to_stage")
        try:
            free = os.statvfs(MEMORY)
            room = min(room, thresholds.STAGED_PART * free.f_bavail * free.f_frsize)
            size = _size(wanted, room, until)
            if size > room:
                return say("treat.no_room_to_stage", size=size, room=max(0.0, room))
            folder = tempfile.mkdtemp(prefix="perfdoctor-treat-", dir=MEMORY)
            self._remover = _remover(folder)
            for number, place in enumerate(wanted):
                copy = os.path.join(folder, str(number))
                _copy(Path(place), Path(copy), until)
                self.copies[place] = copy
            _require_mounts(self.copies)
        except TimeoutError:
            self.remove()
            return say("treat.too_slow_to_stage")
        except (OSError, subprocess.SubprocessError) as error:
            self.remove()
            why = error.strerror or str(error) if isinstance(error, OSError) else ""
            return say("treat.not_staged", why=why)
        return ""

    def remove(self) -> None:
        """Takes the copies away again."""
        self.copies.clear()
        if self._remover is not None and self._remover.stdin is not None:
            self._remover.stdin.close()
            self._remover.wait()
        self._remover = None


def see(copies: Mapping[str, str]) -> None:
    """Lets this process, and those that it starts, see copies in place of files and folders, and only read them.

    Args:
        copies: what is seen where.

    Raises:
        OSError: it may not have mounts of its own: it takes root, or namespaces of users.
    """
    users = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEW_MOUNTS)
    except PermissionError:
        _call("unshare", _NEW_MOUNTS | _NEW_USERS)
        with suppress(FileNotFoundError):
            Path("/proc/self/setgroups").write_text("deny")
        for kind, number in zip(("uid", "gid"), users, strict=True):
            Path(f"/proc/self/{kind}_map").write_text(f"{number} {number} 1")
    _mount(b"none", b"/", _RECURSIVE | _PRIVATE)
    for place, copy in copies.items():
        _mount(os.fsencode(copy), os.fsencode(place), _BIND)
        _mount(b"none", os.fsencode(place), _REMOUNT | _BIND | _READ_ONLY)


def _mount(source: bytes, target: bytes, flags: int) -> None:
    _call("mount", source, target, None, ctypes.c_ulong(flags), None)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _require_mounts(copies: Mapping[str, str]) -> None:
    """Makes sure that a process may see the copies.

    Raises:
        subprocess.SubprocessError: it may not.
    """
    subprocess.run(["true"], preexec_fn=lambda: see(copies), check=True)


def _is_in_memory(place: str) -> bool:
    """Whether a path is on a file system in memory: nothing is faster."""
    real = os.path.realpath(place)
    above = [mount for mount in read_mounts() if os.path.commonpath([real, mount.point]) == mount.point]
    return bool(above) and max(above, key=lambda mount: len(mount.point)).filesystem in IN_MEMORY


def _remover(folder: str) -> subprocess.Popen[bytes]:
    """Starts what removes a folder when this process ends, however it does."""
    return subprocess.Popen(["sh", "-c", _REMOVER, folder], stdin=subprocess.PIPE, start_new_session=True)


def _size(places: Iterable[str], enough: float, until: float) -> float:
    """Bytes of files and of all below folders; of too much, only that it is."""
    size = 0.0
    for place in places:
        for file in _files(Path(place), until):
            size += file.stat().st_size
            if size > enough:
                return size
    return size


def _files(place: Path, until: float) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    for folder, _, names in os.walk(place):
        _require_time(until)
        yield from (one for name in names if (one := Path(folder, name)).is_file() and not one.is_symlink())


def _copy(source: Path, target: Path, until: float) -> None:
    """Copies a file, or a folder with all files and links in it; nothing else belongs to data."""
    _require_time(until)
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir()
        for entry in source.iterdir():
            _copy(entry, target / entry.name, until)
        _keep_times(source, target)
    elif source.is_file():
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as written:
            while data := read.read(_AT_ONCE):
                written.write(data)
                _require_time(until)
        _keep_times(source, target)


def _keep_times(source: Path, target: Path) -> None:
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _require_time(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError
