"""Which Python a process runs, and which Pythons the installed py-spy knows."""

import re
from dataclasses import dataclass
from pathlib import Path

_VERSION = re.compile(rb"/(?:lib)?python(\d)\.(\d+)")
_SPY_MODULE = re.compile(rb"python_bindings\W{1,2}v3_(\d+)_0")


@dataclass(frozen=True, slots=True)
class Python:
    """A Python interpreter.

    Attributes:
        version: major and minor; None if it does not show.
    """

    version: tuple[int, int] | None

    def __str__(self) -> str:
        return "Python" if self.version is None else "Python {}.{}".format(*self.version)


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


def newest_of_py_spy(py_spy: str) -> int | None:
    """The newest minor version of Python 3 that a py-spy knows; None if it does not show.

    py-spy does not tell, but its program names a module per version, as in ``python_bindings::v3_13_0``.

    Args:
        py_spy: path of the program.
    """
    try:
        minors = _SPY_MODULE.findall(Path(py_spy).read_bytes())
    except OSError:
        return None
    return max(map(int, minors), default=None)
