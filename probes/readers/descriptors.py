"""What a system call of another process is about: a file's path, a pipe, or which kind of socket."""

import os
import struct

from perfdoctor.probes.readers import syscalls

_POLLFD = struct.Struct("ihh")
_LONGEST_PATH = 512
_POLLED = 4  # descriptors of one poll that are looked at
_WATCHED = 8  # and of one epoll set
# How the kernel's names of protocols begin (``struct proto``): TCPv6, UDPv6 and UNIX-STREAM are among them.
_PROTOCOLS = {b"TCP": "socket:tcp", b"MPTCP": "socket:tcp", b"UDP": "socket:udp", b"UNIX": "socket:unix"}


class Descriptors:
    """Names the targets of the system calls of one process.

    Reads /proc/PID/fd and, for polls and paths, the process's memory; both need the right to trace it. Targets that
    cannot be read are "".
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lasting: dict[int, str] = {}
        self._memory: int | None = None
        try:
            self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
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

    def target(self, call: str, arguments: list[int]) -> str:
        """What a call is about.

        Args:
            call: the system call's name.
            arguments: its arguments as the kernel tells them.
        """
        if call.startswith("epoll_"):
            return self._watched(arguments[0]) or self.name_of(arguments[0])
        if call in syscalls.ON_DESCRIPTOR:
            return self.name_of(arguments[0])
        if call in syscalls.ON_POLL_SET:
            return self._polled(arguments[0], arguments[1])
        if call in syscalls.ON_SECOND_DESCRIPTOR:
            return self.name_of(arguments[1])
        if call in syscalls.PATH_ARGUMENT:
            return self._path_at(arguments[syscalls.PATH_ARGUMENT[call]])
        return ""

    def name_of(self, descriptor: int) -> str:
        """``file:/path``, ``pipe``, ``socket:tcp|udp|unix|other``, ``anon:eventpoll`` …"""
        name = self._lasting.get(descriptor)
        if name is None:
            name = _name(f"/proc/{self.pid}/fd/{descriptor & 0xFFFFFFFF}")
            if name and not name.startswith("file:"):
                self._lasting[descriptor] = name
        return name

    def _polled(self, address: int, count: int) -> str:
        raw = self._read(address, _POLLFD.size * min(count, _POLLED))
        return _foremost({self.name_of(_POLLFD.unpack_from(raw, at)[0]) for at in range(0, len(raw), _POLLFD.size)})

    def _watched(self, descriptor: int) -> str:
        """What an epoll set is about: event loops wait for all that they serve in one."""
        try:
            with open(f"/proc/{self.pid}/fdinfo/{descriptor & 0xFFFFFFFF}", "rb") as file:
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
        return f"file:{link}"
    kind, _, rest = link.partition(":")
    if kind == "socket":
        return _socket(path)
    return f"anon:{rest.strip('[]')}" if kind == "anon_inode" else kind


def _socket(path: str) -> str:
    """Which kind a socket is: the kernel tells its protocol as an attribute (/proc/net/tcp takes 500 times as long)."""
    try:
        protocol = os.getxattr(path, "system.sockprotoname").rstrip(b"\0")
    except OSError:
        return "socket:other"
    return next((kind for start, kind in _PROTOCOLS.items() if protocol.startswith(start)), "socket:other")
