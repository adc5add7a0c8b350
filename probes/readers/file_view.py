"""Files as another process sees them: in a container its paths lead elsewhere than ours do.

A path is resolved below the process's own root, symbolic links included, so that none leads out of a container
(openat2(2), RESOLVE_IN_ROOT; Linux 5.6). The handle on that root stays good when the process has ended.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from pathlib import Path

_OPENAT2 = 437  # on all architectures but alpha (kernel.org: scripts/syscall.tbl)
_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_RESOLVE_IN_ROOT = 0x10
# How older kernels, and sandboxes that do not know the call, answer.
_WITHOUT_IT = (errno.ENOSYS, errno.EPERM)
# Without waiting for a writer, should it be a pipe, and without making a terminal ours.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileView:
    """The files that one process sees.

    Args:
        pid: the process, which must be alive.
        proc: where /proc is.

    Raises:
        OSError: it has gone, or may not be looked at.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._folder = os.readlink(proc / f"{pid}/cwd")
        self._root = os.open(proc / f"{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def read(self, path: str, most: int) -> tuple[bytes, int]:
        """A whole regular file.

        Args:
            path: as the process names it; a relative one is taken as of its working folder.
            most: the largest one that is read, in bytes.

        Returns:
            What it holds, and when it was last written, in nanoseconds since 1970.

        Raises:
            OSError: it cannot be read, is no regular file, or is larger.
        """
        file = _open_below(self._root, os.path.join(self._folder, path))
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "It is no regular file")
            if status.st_size > most:
                raise OSError(0, f"It is larger than {most // 1_000_000} MB")
            with open(file, "rb", closefd=False) as opened:
                return opened.read(most), status.st_mtime_ns
        finally:
            os.close(file)

    def close(self) -> None:
        """Lets go of them."""
        os.close(self._root)


def _open_below(root: int, path: str) -> int:
    """Opens a file below a folder, which its symbolic links do not leave.

    Where the kernel has no such call, only below our own root, where no link leads out.
    """
    library = ctypes.CDLL(None, use_errno=True)
    how = _HOW.pack(_FLAGS, 0, _RESOLVE_IN_ROOT)
    file: int = library.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_char_p(how),
        ctypes.c_size_t(_HOW.size),
    )
    if file >= 0:
        return file
    error = ctypes.get_errno()
    if error not in _WITHOUT_IT or not os.path.samestat(os.fstat(root), os.stat("/")):
        raise OSError(error, os.strerror(error))
    return os.open(path, _FLAGS)
