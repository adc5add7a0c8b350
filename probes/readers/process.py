"""One process, as it is checked before it is watched: our rights over it, the Python that it runs, and torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.permissions import Rights, rights_over

TORCH_LIBRARIES = (b"/libtorch_cpu.so", b"/libtorch_python.so", b"/libtorch.so")
_VERSION = re.compile(rb"/(?:lib)?python(\d)\.(\d+)")
# Where torch's package lies, in the maps of a process; and what the version is in its version.py.
_TORCH_PACKAGE = re.compile(rb" (/[^\n]*/torch)/lib/libtorch")
_TORCH_VERSION = re.compile(r"^__version__ = ['\"]([^'\"]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Python:
    """A Python interpreter.

    Attributes:
        version: major and minor; None if it does not show.
    """

    version: tuple[int, int] | None

    def __str__(self) -> str:
        return "Python" if self.version is None else "Python {}.{}".format(*self.version)


class Candidate:
    """What probes ask about a process to say what they would see of it; each is looked up when it is first asked for.

    Args:
        pid: the process; None for none: what depends on it then counts as granted.
        root: where /proc and /sys are.
    """

    def __init__(self, pid: int | None, root: Path = Path("/")) -> None:
        self.pid = pid
        self.root = root

    @cached_property
    def rights(self) -> Rights:
        """What we may see of it.

        Raises:
            OSError: it is gone.
        """
        return Rights(True, True) if self.pid is None else rights_over(self.pid, self.root)

    @cached_property
    def python(self) -> Python | None:
        """The Python that it runs, None if it runs none; one of unknown version where we may not look."""
        try:
            return Python(None) if self.pid is None else python_of(self.pid, self.root)
        except OSError:
            return Python(None)

    @cached_property
    def uses_torch(self) -> bool | None:
        """Whether it has torch loaded; None if that cannot be read."""
        return True if self.pid is None else uses_torch(self.pid, self.root)

    def not_python(self) -> Refusal:
        """Why there is nothing to see of an interpreter."""
        return Refusal(f"Process {self.pid} is not a Python process.", "name the process that trains, or its launcher")


def python_of(pid: int, root: Path = Path("/")) -> Python | None:
    """The Python that a process runs, from the names of what is mapped into it; None if it runs none.

    Args:
        pid: the process.
        root: where /proc is.

    Raises:
        OSError: the process is gone, or its maps may not be read.
    """
    maps = (root / f"proc/{pid}/maps").read_bytes()
    found = _VERSION.search(maps)
    if found:
        return Python((int(found[1]), int(found[2])))
    return Python(None) if re.search(rb"/python\d?\n", maps) else None


def uses_torch(pid: int, root: Path = Path("/")) -> bool | None:
    """Whether libtorch is mapped into a process; None if that cannot be read."""
    try:
        maps = (root / f"proc/{pid}/maps").read_bytes()
    except OSError:
        return None
    return any(library in maps for library in TORCH_LIBRARIES)


def has_mapped(pid: int, file: bytes) -> bool:
    """Whether a file whose path ends so is mapped into a process; not where that cannot be read."""
    try:
        return file + b"\n" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def versions_of(pid: int, root: Path = Path("/")) -> dict[str, str]:
    """The versions of what a process runs, ``python`` and ``torch``; without those that do not show."""
    found = {}
    try:
        maps = (root / f"proc/{pid}/maps").read_bytes()
        if python := _VERSION.search(maps):
            found["python"] = ".".join(part.decode() for part in python.groups())
        if package := _TORCH_PACKAGE.search(maps):
            folder = os.fsdecode(package[1])
            below = root / f"proc/{pid}/root{folder}"  # or, of a process in a changed root alone, named as we see it
            file = (below if below.exists() else Path(folder)) / "version.py"
            if torch := _TORCH_VERSION.search(file.read_text(errors="replace")):
                found["torch"] = torch[1]
    except OSError:
        return found  # it is gone, or another user's
    return found


# Files of drivers that a process keeps open as long as it computes on a GPU. CUDA opens its manager of shared memory,
# which NVML alone does not; ROCm the interface for queues; what computes through a graphics driver a render node.
DEVICE_FILES = {"nvidia": "/dev/nvidia-uvm", "kfd": "/dev/kfd", "dri": "/dev/dri/render"}


def device_files(pid: int, root: Path = Path("/")) -> str | None:
    """Through which driver a process computes on a GPU, ``nvidia``, ``kfd`` or ``dri``; None if through none.

    Args:
        pid: the process. A forked one has its parent's files too.
        root: where /proc is.

    Raises:
        OSError: the process is gone, or its descriptors may not be read.
    """
    folder = f"{root}/proc/{pid}/fd"
    found = set()
    for descriptor in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{descriptor}")
        except OSError:  # closed meanwhile
            continue
        found |= {driver for driver, path in DEVICE_FILES.items() if link.startswith(path)}
    return next((driver for driver in DEVICE_FILES if driver in found), None)
