"""Who is at the other end of a pipe, a named pipe, a Unix socket or a TCP connection within this host.

A descriptor's link in /proc/PID/fd names what it is open on (proc_pid_fd(5)): both ends of a pipe have the same link, a
socket's other end another inode, which the kernel reports through sock_diag(7), or by addresses in /proc/PID/net/tcp.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from perfdoctor.probes.readers.syscalls import NAMES, Descriptors

PIPE, UNIX, TCP = "pipe", "unix", "tcp"
_DIAG, _BY_FAMILY, _ERROR = 4, 20, 2  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLMSG_ERROR
_REQUEST, _SHOW_PEER, _PEER = 1, 4, 2  # NLM_F_REQUEST, UDIAG_SHOW_PEER, UNIX_DIAG_PEER
_HEADER, _UNIX_REQUEST, _UNIX_REPLY = struct.Struct("=IHHII"), struct.Struct("=BBHIIIII"), struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HHI")
_ANY = 0xFFFFFFFF
_MOST_DESCRIPTORS = 1024  # of one process are looked at
_LOCAL, _REMOTE, _QUEUES, _INODE = 1, 2, 4, 9  # columns of /proc/PID/net/tcp


class End(NamedTuple):
    """The other end of a channel.

    Attributes:
        kind: ``PIPE``, ``UNIX`` or ``TCP``.
        link: what its descriptor's link says.
    """

    kind: str
    link: str


def awaited_ends(pid: int) -> Iterator[End]:
    """The other ends of what a process's main thread waits to read from; none where that cannot be read."""
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            words = file.read().split()
        call = NAMES.get(int(words[0]), "")
    except (OSError, ValueError, IndexError):
        return
    descriptors = Descriptors(pid)
    try:
        waited = descriptors.awaited(call, [int(word, 16) for word in words[1:7]])
        named = [(descriptors.name_of(number), number) for number in waited]
    finally:
        descriptors.close()
    for name, number in named:
        if end := _other_end(pid, number, name):
            yield end


def other_end(pid: int, descriptor: int) -> End | None:
    """The other end of one of a process's descriptors; None if that is no channel within this host, or not known."""
    descriptors = Descriptors(pid)
    try:
        return _other_end(pid, descriptor, descriptors.name_of(descriptor))
    finally:
        descriptors.close()


def serves(end: End, pid: int, *, reads: bool = False) -> bool:
    """Whether a process has this end open, of a pipe for writing.

    Args:
        end: the end.
        pid: the process.
        reads: of a pipe for reading instead.
    """
    folder = f"/proc/{pid}"
    unfit = os.O_WRONLY if reads else os.O_RDONLY
    try:
        for number in os.listdir(f"{folder}/fd")[:_MOST_DESCRIPTORS]:
            is_end = os.readlink(f"{folder}/fd/{number}") == end.link
            if is_end and (end.kind != PIPE or _access(f"{folder}/fdinfo/{number}") != unfit):
                return True
    except OSError:
        return False  # it has ended, or is another user's
    return False


def _access(fdinfo: str) -> int:
    """For what a descriptor is open: ``O_RDONLY``, ``O_WRONLY`` or ``O_RDWR``."""
    with open(fdinfo, "rb") as file:
        flags = next(line for line in file if line.startswith(b"flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE


def _other_end(pid: int, number: int, name: str) -> End | None:
    try:
        link = os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return None
    if name.startswith("pipe"):
        return End(PIPE, link)
    inode = _socket_of(link)
    if name == "socket:unix":
        peer, kind = _unix_peer(inode), UNIX
    elif name == "socket:tcp":
        peer, kind = _tcp_peer(pid, inode), TCP
    else:
        return None
    return End(kind, f"socket:[{peer}]") if peer else None


def unsent_bytes(pid: int, descriptor: int) -> int | None:
    """How much of what a process has written into a TCP connection has not reached the other host yet.

    Args:
        pid: the process.
        descriptor: of its connection.

    Returns:
        None where that is no such connection, or it cannot be told.
    """
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None
    if not (inode := _socket_of(link)):  # as connections have none that nobody holds any more
        return None
    rows = (row for table in _tcp_tables(pid) for row in table if int(row[_INODE]) == inode)
    return next((int(row[_QUEUES].partition(b":")[0], 16) for row in rows), None)


def _socket_of(link: str) -> int:
    """The inode of the socket that a descriptor's link names; 0 if it names none."""
    return int(link[8:-1]) if link.startswith("socket:[") else 0


def _tcp_tables(pid: int) -> Iterator[list[list[bytes]]]:
    """The rows of the connections in a process's network, by version of IP."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", "rb") as file:
                yield [line.split() for line in file][1:]
        except OSError:
            continue


def _unix_peer(inode: int) -> int:
    """The inode of the socket that a Unix socket is connected to; 0 if it is to none, or cannot be asked for."""
    body = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, _ANY, inode, _SHOW_PEER, _ANY, _ANY)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAG) as diag:
            diag.settimeout(0.1)
            diag.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
            reply = diag.recv(4096)
    except OSError:
        return 0
    at = _HEADER.size + _UNIX_REPLY.size
    if len(reply) < at or _HEADER.unpack_from(reply)[1] == _ERROR:
        return 0
    while at + _ATTRIBUTE.size <= len(reply):
        length, kind, value = _ATTRIBUTE.unpack_from(reply, at)
        if kind == _PEER:
            return int(value)
        at += max(4, (length + 3) & ~3)
    return 0


def _tcp_peer(pid: int, inode: int) -> int:
    """The inode of the other end of a TCP connection whose both ends are in the process's network; 0 if none is."""
    for rows in _tcp_tables(pid):
        own = next(((row[_REMOTE], row[_LOCAL]) for row in rows if int(row[_INODE]) == inode), None)
        if own is not None:
            return next((int(row[_INODE]) for row in rows if (row[_LOCAL], row[_REMOTE]) == own), 0)
    return 0
