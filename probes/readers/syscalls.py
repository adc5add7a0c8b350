"""System calls that a training job waits in: their names, and what one is about (a file's path, a pipe, which socket).

Numbers are the kernel's ABI: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (arm64).
"""

import ctypes
import os
import platform
import stat
import struct
import time
from pathlib import Path

from perfdoctor.recording.clock import NS_PER_S

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10:
    "mprotect",
    11: "munmap", 12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
    24: "sched_yield", 26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43:
    "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve",
    61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 78:
    "getdents",
    82: "rename", 83: "mkdir", 87: "unlink", 128: "rt_sigtimedwait", 187: "readahead", 202: "futex", 217: "getdents64",
    220: "semtimedop", 221: "fadvise64", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range",
    281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs",
    316: "renameat2", 326: "copy_file_range", 332: "statx", 426: "io_uring_enter", 435: "clone3", 437: "openat2",
    441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_ARM64 = {
    22: "epoll_pwait", 29: "ioctl", 32: "flock", 35: "unlinkat", 43: "statfs", 45: "truncate", 46: "ftruncate",
    47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev",
    67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll",
    79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 137: "rt_sigtimedwait", 192: "semtimedop",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 213: "readahead",
    214: "brk", 215: "munmap", 220: "clone", 221: "execve", 222: "mmap", 226: "mprotect", 227: "msync", 233: "madvise",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 276: "renameat2", 285: "copy_file_range", 291:
    "statx",
    426: "io_uring_enter", 435: "clone3", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

NAMES = {"x86_64": _X86_64, "aarch64": _ARM64, "arm64": _ARM64}.get(platform.machine(), {})

# The first argument is a file descriptor.
ON_DESCRIPTOR = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync",
    "ftruncate", "fallocate", "sync_file_range", "flock", "recvfrom", "recvmsg", "recvmmsg", "sendto",
    "sendmsg", "accept", "accept4", "connect", "getdents", "getdents64", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "ioctl", "fstat", "readahead", "fadvise64", "syncfs", "close",
))  # fmt: skip
# Another argument is one: where the data comes from, the file that is mapped (-1 for none).
DESCRIPTOR_ARGUMENT = {"sendfile": 1, "mmap": 4}
# These wait to hand something over to whoever reads at the other end.
WRITES_TO_OTHERS = frozenset(("write", "writev", "sendto", "sendmsg", "sendfile"))
_OPENS = frozenset(("open", "openat", "openat2"))
_OPENS_PIPE = b"wait_for_partner"  # the kernel's function in which they wait for a named pipe's other end (fs/pipe.c)
_READS = frozenset(("read", "readv", "recvfrom", "recvmsg"))
# The first argument points at an array of struct pollfd, the second is its length.
ON_POLL_SET = frozenset(("poll", "ppoll"))
# This argument points at a path.
PATH_ARGUMENT = {
    "open": 0, "stat": 0, "lstat": 0, "unlink": 0, "rename": 0, "mkdir": 0, "truncate": 0,
    "openat": 1, "openat2": 1, "newfstatat": 1, "statx": 1, "unlinkat": 1, "renameat": 1, "renameat2": 1,
}  # fmt: skip

# glibc 2.28 and musl 1.2.5 have it.
_STATX = getattr(ctypes.CDLL(None), "statx", None)
_AT_FDCWD, _AT_STATX_DONT_SYNC, _STATX_TYPE = -100, 0x4000, 1
_STATX_SIZE, _STATX_MODE = 256, 28  # of struct statx, and where its stx_mode lies
_POLLFD = struct.Struct("ihh")
_TIME = struct.Struct("qq")  # struct timespec, struct timeval
# 146 years: half of what a recording can hold, so that times can be moved to another host's clock.
_FOREVER_NS = 2**62
_TIMER_ABSTIME = 1
_P_PID = 1  # of waitid
_FUTEX_PRIVATE = 128  # FUTEX_PRIVATE_FLAG (include/uapi/linux/futex.h)
# Calls that wait for descriptors, or only for some time: nanoseconds in the smaller unit of that time.
_MAY_SLEEP = {"select": 1_000, "pselect6": 1}
_LONGEST_PATH = 512
_POLLED = 4  # descriptors of one poll that are looked at
_WATCHED = 8  # and of one epoll set
# How the kernel's names of protocols begin (``struct proto``): TCPv6, UDPv6 and UNIX-STREAM are among them.
_PROTOCOLS = {b"TCP": "socket:tcp", b"MPTCP": "socket:tcp", b"UDP": "socket:udp", b"UNIX": "socket:unix"}


def name_of_call(number: int, arguments: list[int]) -> str:
    """The name of a system call; ``select (sleep)`` of one that only waits for a time, as Python 3.10 and older sleep.

    Args:
        number: the call's, on this machine.
        arguments: as the kernel reports them.
    """
    name = NAMES.get(number, f"syscall_{number}")
    return "select (sleep)" if name in _MAY_SLEEP and arguments[0] == 0 else name


def awaited_child(call: str, arguments: list[int]) -> int | None:
    """The child for the end of which a call waits; None of other calls, and of one that waits for any child.

    Args:
        call: the system call's name.
        arguments: as the kernel reports them.
    """
    if call == "waitid":
        return arguments[1] if arguments[0] == _P_PID else None
    pid = ctypes.c_int32(arguments[0]).value if call == "wait4" else 0
    return pid if pid > 0 else None  # any child, or one of a process group


def ends_within(call: str, arguments: list[int]) -> bool:
    """Whether only threads of the same process can end a call's wait: for a futex that other processes do not share.

    Locks and queues of threads are such; those of ``multiprocessing`` are shared.

    Args:
        call: the system call's name.
        arguments: as the kernel reports them.
    """
    return call == "futex" and bool(arguments[1] & _FUTEX_PRIVATE)


class Descriptors:
    """Names the targets of the system calls of one process.

    Reads /proc/PID/fd and, for polls and paths, the process's memory; both need the right to trace it. Targets that
    cannot be read are "".

    Args:
        pid: the process.
        root: where /proc is.
    """

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        self._process = str(root / "proc" / str(pid))
        self._lasting: dict[int, str] = {}
        self._memory: int | None = None
        try:
            self._memory = os.open(f"{self._process}/mem", os.O_RDONLY)
        except OSError:
            self._memory = None

    def close(self) -> None:
        """Gives the files back."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def forget(self) -> None:
        """Lets pipes and sockets be asked for anew; until then they are taken to be what they were, which files are
        not: those are opened and closed all the time.
        """
        self._lasting.clear()

    def target(self, call: str, arguments: list[int], tid: int | None = None) -> str:
        """What a call is about.

        Args:
            call: the system call's name.
            arguments: its arguments as the kernel reports them.
            tid: the thread that is in it; the main one if None.
        """
        if call.startswith("epoll_"):
            return self._watched(arguments[0]) or self.name_of(arguments[0])
        if call in ON_DESCRIPTOR:
            return self.name_of(arguments[0])
        if call in ON_POLL_SET:
            return self._polled(arguments[0], arguments[1])
        if call in DESCRIPTOR_ARGUMENT:
            return self.name_of(arguments[DESCRIPTOR_ARGUMENT[call]])
        if call in PATH_ARGUMENT:
            path = self._path_at(arguments[PATH_ARGUMENT[call]])
            return f"pipe:{path[5:]}" if call in _OPENS and self._awaits_other_end(tid) else path
        return ""

    def awaited(self, call: str, arguments: list[int]) -> list[int]:
        """Descriptors that a call waits to read from; none of one that does not, or where they cannot be read."""
        if call in _READS:
            return [arguments[0]]
        return self._polled_ones(arguments[0], arguments[1]) if call in ON_POLL_SET else []

    def waited_on(self, call: str, arguments: list[int]) -> int | None:
        """The descriptor on which a call waits, of several the first; None if on none, or where that is not known."""
        if call in ON_DESCRIPTOR or call == "fcntl":
            return arguments[0] & 0xFFFFFFFF
        return next(iter(self.awaited(call, arguments)), None)

    def sleeps_until(self, call: str, arguments: list[int], now_ns: int) -> int | None:
        """When a sleep ends by itself, at the latest, on the one clock; None for other calls, or if it cannot be read.

        Args:
            call: the system call's name.
            arguments: as of ``target``.
            now_ns: the time.
        """
        if call in _MAY_SLEEP and arguments[0] == 0:  # no descriptors: Python 3.10 and older sleep in it
            return self._after(arguments[4], _MAY_SLEEP[call], now_ns)
        if call == "nanosleep":
            return self._after(arguments[0], 1, now_ns)
        if call != "clock_nanosleep":
            return None
        clock, flags, request = arguments[:3]
        if not flags & _TIMER_ABSTIME:
            return self._after(request, 1, now_ns)
        return self._after(request, 1, 0) if clock == time.CLOCK_MONOTONIC else None

    def _after(self, address: int, unit_ns: int, from_ns: int) -> int | None:
        """The time that lies as far from another one as a pair of seconds and smaller units in memory says."""
        raw = self._read(address, _TIME.size)
        if len(raw) < _TIME.size:
            return None
        whole, part = _TIME.unpack(raw)
        if whole < 0 or not 0 <= part * unit_ns < NS_PER_S:
            return None  # the kernel takes no such time: the thread has gone on, and its stack holds something else
        return int(min(from_ns + whole * NS_PER_S + part * unit_ns, _FOREVER_NS))

    def name_of(self, descriptor: int) -> str:
        """``file:/path``, ``pipe``, ``pipe:/path`` of one with a name, ``socket:tcp|udp|unix|other``, ``anon:…``."""
        name = self._lasting.get(descriptor)
        if name is None:
            name = _name(f"{self._process}/fd/{descriptor & 0xFFFFFFFF}")
            if name and not name.startswith("file:"):
                self._lasting[descriptor] = name
        return name

    def _polled(self, address: int, count: int) -> str:
        return _foremost(set(map(self.name_of, self._polled_ones(address, count))))

    def _polled_ones(self, address: int, count: int) -> list[int]:
        raw = self._read(address, _POLLFD.size * min(count, _POLLED))
        return [_POLLFD.unpack_from(raw, at)[0] for at in range(0, len(raw), _POLLFD.size)]

    def _watched(self, descriptor: int) -> str:
        """What an epoll set is about: event loops wait for all that they serve in one."""
        try:
            with open(f"{self._process}/fdinfo/{descriptor & 0xFFFFFFFF}", "rb") as file:
                lines = file.read(4096).split(b"\n")[:-1]  # the last is empty, or cut
        except OSError:
            return ""
        members = [int(line.split()[1]) for line in lines if line.startswith(b"tfd:")]
        return _foremost({self.name_of(member) for member in members[:_WATCHED]})

    def _path_at(self, address: int) -> str:
        # Read up to the end of the page at first: the next one may not be mapped.
        raw = self._read(address, min(_LONGEST_PATH, 4096 - address % 4096))
        path = raw.split(b"\0")[0].decode(errors="replace")
        return f"file:{path}" if path else ""

    def _awaits_other_end(self, tid: int | None) -> bool:
        """Whether a thread opens a named pipe that nobody has opened at the other end, by where in the kernel it waits.

        To look the path up here could hang with it: in a folder of a server that does not answer.
        """
        try:
            with open(f"{self._process}/task/{tid}/wchan" if tid else f"{self._process}/wchan", "rb") as file:
                return file.read(len(_OPENS_PIPE) + 1) == _OPENS_PIPE
        except OSError:
            return False

    def _read(self, address: int, size: int) -> bytes:
        if self._memory is None or address <= 0 or size <= 0:
            return b""
        try:
            raw = os.pread(self._memory, size, address)
        except (OSError, OverflowError):
            return b""
        return raw if len(raw) == size else b""


def _foremost(names: set[str]) -> str:
    """A set that contains a network socket is a network wait even if a wake-up pipe is polled beside it."""
    return max(names, key=lambda name: (name.startswith("socket:tcp"), name), default="")


def _name(path: str) -> str:
    try:
        # As bytes: a path need not be valid UTF-8, and what is recorded must be.
        link = os.readlink(path.encode()).decode(errors="replace")
    except OSError:
        return ""
    if link.startswith("/"):
        return f"pipe:{link}" if _is_named_pipe(path) else f"file:{link}"
    kind, _, rest = link.partition(":")
    if kind == "socket":
        return _socket(path)
    return f"anon:{rest.strip('[]')}" if kind == "anon_inode" else kind


def _is_named_pipe(path: str) -> bool:
    """Whether a descriptor's link leads to a named pipe, without asking a server of the file system (statx(2))."""
    if _STATX is None:
        return False
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if _STATX(_AT_FDCWD, path.encode(), _AT_STATX_DONT_SYNC, _STATX_TYPE, found) != 0:
        return False
    return stat.S_ISFIFO(struct.unpack_from("=H", found, _STATX_MODE)[0])


def _socket(path: str) -> str:
    """Which kind a socket is: the kernel names its protocol in an attribute (/proc/net/tcp takes 500 times as long)."""
    try:
        protocol = os.getxattr(path, "system.sockprotoname").rstrip(b"\0")
    except OSError:
        return "socket:other"
    return next((kind for start, kind in _PROTOCOLS.items() if protocol.startswith(start)), "socket:other")
