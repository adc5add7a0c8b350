"""py-spy, the program that samples Python stacks: where it is, which Pythons it knows, and what it says."""

import calendar
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import StackMissed

_MODULE = re.compile(rb"python_bindings\W{1,2}v3_(\d+)_0")
# Of Python 3.
_OLDEST_MINOR = 3

# Makes py-spy (env_logger) say which of its samples failed, and when, in UTC with nanoseconds.
ENVIRONMENT = {"RUST_LOG": "py_spy=warn"}
_WARNING = re.compile(
    rb"^\[(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(?P<ns>\d{9})Z WARN +py_spy\] "
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
    # Both clocks tick alike over some seconds, unless somebody sets the time meanwhile.
    zero_ns = time.time_ns() - now_ns()
    for found in _WARNING.finditer(said):
        second = calendar.timegm(time.strptime(found["second"].decode(), "%Y-%m-%dT%H:%M:%S"))
        yield StackMissed(second * NS_PER_S + int(found["ns"]) - zero_ns, int(found["pid"]), int(found["ident"]))


def complaint(said: str) -> str:
    """What py-spy has to say of a failure, without the backtrace that may follow."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith(("error", "thread '"))]
    return [*named, *lines[-1:], "it said nothing"][0]
