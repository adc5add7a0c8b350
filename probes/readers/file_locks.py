"""Who holds the lock of a file that a process waits for (flock(2), fcntl(2)): read from /proc/locks (proc_locks(5))."""

from __future__ import annotations

from pathlib import Path

_WAITS = b"->"
_PID = 4  # column of a line; one later in that of a waiter


def lock_holders(pid: int, root: Path = Path("/")) -> list[int] | None:
    """The processes that hold the lock for which this one waits.

    Args:
        pid: who waits.
        root: where /proc is.

    Returns:
        Their ids, without those that the kernel does not name (locks of open files have no owner); None if the process
        waits for no lock, or the kernel does not say.
    """
    try:
        lines = [line.split() for line in (root / "proc/locks").read_bytes().splitlines()]
    except OSError:
        return None
    # A waiter is listed below the lock that it waits for, under the same number.
    waiters = (line for line in lines if line[1:2] == [_WAITS] and line[_PID + 1 : _PID + 2] == [b"%d" % pid])
    waits = next((line[0] for line in waiters), None)
    if waits is None:
        return None
    held = [int(line[_PID]) for line in lines if line[0] == waits and line[1] != _WAITS]
    return [holder for holder in held if holder > 0]
