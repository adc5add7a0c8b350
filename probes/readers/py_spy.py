"""py-spy, the program that samples Python stacks: where it is, which Pythons it knows, and what it says."""

import calendar
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.clock import NS_PER_S, epoch_on_the_clock
from perfdoctor.recording.schema import StackMissed

_MODULE = re.compile(rb"python_bindings\W{1,2}v3_(\d+)_0")
# Of Python 3.
_OLDEST_MINOR = 3

# Makes py-spy (env_logger) say when it had read its arguments, and which samples failed, in UTC with nanoseconds.
ENVIRONMENT = {"RUST_LOG": "py_spy=warn,py_spy::config=info"}
_TIME = rb"^\[(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(?P<ns>\d{9})Z "
_CONFIG = re.compile(_TIME + rb"INFO +py_spy::config\] config Config \{.*?^ {0,4}\}\n?", re.MULTILINE | re.DOTALL)
_WARNING = re.compile(
    _TIME + rb"WARN +py_spy\] "
    rb"Failed to get stack trace from (?P<pid>\d+): Failed to call get_stack_trace for thread (?P<ident>\d+)",
    re.MULTILINE,
)


def find_py_spy() -> str | None:
    """The py-spy program beside this Python, or else on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def knows(py_spy: str, version: tuple[int, int]) -> bool:
    """Whether a py-spy can read the stacks of a Python of this version; true where it does not show."""
    newest = newest_of_py_spy(py_spy)
    return version >= (3, _OLDEST_MINOR) and (newest is None or version <= (3, newest))


def newest_of_py_spy(py_spy: str) -> int | None:
    """The newest minor version of Python 3 that a py-spy knows; None if it does not show.

    py-spy does not say, but its program names a module per version, as in ``python_bindings::v3_13_0``.

    Args:
        py_spy: path of the program.
    """
    try:
        minors = _MODULE.findall(Path(py_spy).read_bytes())
    except OSError:
        return None
    return max(map(int, minors), default=None)


def missed_stacks(said: bytes) -> Iterator[StackMissed]:
    """Each sample that py-spy says has failed, on the one clock.

    Args:
        said: what py-spy wrote to its standard error.
    """
    for found in _WARNING.finditer(said):
        yield StackMissed(_on_the_clock(found), int(found["pid"]), int(found["ident"]))


def began_ns(said: bytes) -> int | None:
    """When py-spy had read its arguments, on the one clock; None if it does not say.

    Its own clock starts then: a process that changes its function every 20 ms showed both within 0.5 ms.

    Args:
        said: what it wrote to its standard error.
    """
    found = _CONFIG.search(said)
    return None if found is None else _on_the_clock(found)


def _on_the_clock(found: re.Match[bytes]) -> int:
    """Both clocks tick alike over some seconds, unless somebody sets the time meanwhile."""
    second = calendar.timegm(time.strptime(found["second"].decode(), "%Y-%m-%dT%H:%M:%S"))
    return second * NS_PER_S + int(found["ns"]) - epoch_on_the_clock()[0]


def complaint(said: bytes) -> str:
    """What py-spy has to say of a failure, without the backtrace that may follow."""
    lines = [line.strip() for line in _CONFIG.sub(b"", said).decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith(("error", "thread '"))]
    return [*named, *lines[-1:], "it said nothing"][0]
