"""Reading /proc and /sys cheaply: files kept open and read again, parsers that several probes share, and sums over
processes that come and go.
"""

import errno
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHUNK = 1 << 16  # most files of /proc are smaller: one read, and not two
# States of a process that runs no more (proc(5)): a zombie, and one that is just being removed.
ENDED = (b"Z", b"X")


class KeptFiles:
    """Files that are read again and again, by path below a root.

    Reading an open file of /proc again costs half of opening it anew, and an open file of a process that has
    ended can never be mistaken for that of a later process with the same id.

    Args:
        root: where /proc and /sys are.
        limit: how many files are kept open at most; those beyond are opened for each read.
    """

    def __init__(self, root: Path, limit: int = 256) -> None:
        self._root = str(root).rstrip("/")
        self._limit = limit
        self._open: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """The whole of a small file, e.g. ``/proc/1/stat``.

        Raises:
            OSError: it cannot be read, or its process has ended.
        """
        descriptor = self._open.get(path)
        if descriptor is None:
            self._open[path] = descriptor = self._open_file(self._root + path)
        try:
            return _read_all(descriptor)
        except OSError:
            self.forget(path)
            raise
        finally:
            if len(self._open) > self._limit:
                self.forget(path)

    def _open_file(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.close()
            self._limit = 0
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, path: str) -> None:
        """Closes one file, if it is open."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Closes all of them."""
        while self._open:
            os.close(self._open.popitem()[1])


class Births:
    """Whether processes or threads may have been started anywhere.

    The kernel reports which id it gave out last (the last field of /proc/loadavg, see proc(5)): one small read instead
    of one for each process and thread that could have children.

    Args:
        root: where /proc is.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = KeptFiles(root)
        self._before: tuple[bytes, bytes] = (b"", b"")

    def any(self) -> bool:
        """Whether ids were given out since the last call but one (an id is given out shortly before its owner is
        listed); true where the kernel does not say.
        """
        try:
            newest = self._files.read("/proc/loadavg").split()[-1]
        except (OSError, IndexError):
            return True
        quiet = self._before == (newest, newest) and newest != b"0"  # gVisor says 0
        self._before = (newest, self._before[0])
        return not quiet

    def close(self) -> None:
        """Closes the file."""
        self._files.close()


def _read_all(descriptor: int) -> bytes:
    data = os.pread(descriptor, _CHUNK, 0)
    last = data
    while len(last) == _CHUNK:
        last = os.pread(descriptor, _CHUNK, len(data))
        data += last
    return data


def uptime_ticks(files: KeptFiles) -> float:
    """Clock ticks since boot, to compare with field 22 of /proc/PID/stat; infinite if /proc does not say."""
    try:
        return float(round(float(files.read("/proc/uptime").split()[0]) * CLOCK_TICKS_PER_S))
    except OSError:
        return float("inf")


def stat_fields(stat: bytes) -> list[bytes]:
    """Fields of /proc/PID/stat from the third (state) on; field ``n`` of proc(5) is at index ``n - 3``."""
    return stat[stat.rfind(b")") + 2 :].split()


def ancestors_of(pid: int) -> Iterator[int]:
    """Its parent, that one's parent, and so on, as far as they still live."""
    while pid > 1:
        try:
            pid = int(stat_fields(Path(f"/proc/{pid}/stat").read_bytes())[1])
        except OSError:
            return
        yield pid


def name_of(pid: int, root: Path = Path("/")) -> str:
    """What a process calls itself; "" where it has ended."""
    try:
        return (root / f"proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def arguments_of(pid: int, root: Path = Path("/")) -> list[str]:
    """The command line of a process, word by word; none where it cannot be read."""
    try:
        raw = (root / f"proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0")


def is_running(pid: int) -> bool:
    """The process exists, and is no zombie that its parent has not asked for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat_fields(stat.read())[0] not in ENDED
    except OSError:
        return False


def status_fields(status: bytes) -> dict[str, str]:
    """``Key: value`` lines, as in /proc/PID/status, as text."""
    pairs = (line.split(":", 1) for line in status.decode(errors="replace").splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def kibibytes(status: bytes, key: bytes) -> int | None:
    """Bytes meant by the line ``key:  123 kB`` of /proc/PID/status and its like; None without one."""
    start = status.find(key + b":")
    # The key must begin its line: "Cached" is not "SwapCached".
    while start > 0 and status[start - 1] != 10:
        start = status.find(key + b":", start + 1)
    if start < 0:
        return None
    return int(status[start + len(key) + 1 : status.index(b"k", start + len(key))]) * 1024


def counters(lines: bytes) -> dict[str, int]:
    """``name number`` lines, as in cpu.stat, memory.stat or vmstat; lines of another shape are left out."""
    pairs = (line.split() for line in lines.decode(errors="replace").splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()}


def descendants_of_self(root: Path, but: Container[int]) -> Iterator[int]:
    """Our own process id and those of our children, theirs included; nothing where the kernel lists none.

    Args:
        root: where /proc is.
        but: processes that are left out, with all below them.
    """
    try:
        waiting = [int(os.readlink(root / "proc/self"))]
    except OSError:
        return
    while waiting:
        pid = waiting.pop()
        if pid in but:
            continue
        yield pid
        tasks = f"{root}/proc/{pid}/task"
        try:
            for thread in os.listdir(tasks):
                with open(f"{tasks}/{thread}/children", "rb") as file:
                    waiting += map(int, file.read().split())
        except OSError:
            continue


class Tally:
    """The sum of one counter over a changing set of processes, each second of it counted once.

    When a process ends and is waited for, the kernel moves its counters to its parent (``cutime`` of the
    CPU, the I/O counters). So while the members' counters include what they inherited, growth of the
    survivors is real only as far as it exceeds what the members that went had been seen with.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._last: dict[int, float] = {}

    def update(self, values: Mapping[int, float], newborn: Iterable[int] = ()) -> float:
        """Takes one sample of all living members.

        Args:
            values: counter by process id, inherited amounts included.
            newborn: those of them that were started since the last sample; their whole counter is growth.

        Returns:
            The total since the first sample.
        """
        for pid in newborn:
            self._last.setdefault(pid, 0.0)
        grown = sum(value - self._last[pid] for pid, value in values.items() if pid in self._last)
        gone = sum(value for pid, value in self._last.items() if pid not in values)
        # Less growth than went: the parent is outside the job or does not wait, and nothing was inherited.
        self.total += max(grown - gone if grown >= gone else grown, 0.0)
        self._last = dict(values)
        return self.total
