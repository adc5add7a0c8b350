"""Looks at Python stacks that came to nothing, read from py-spy's warnings."""

import calendar
import re
import time
from collections.abc import Iterator

from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import StackMissed

# Makes py-spy (env_logger) say which of its looks failed, and when, in UTC with nanoseconds.
ENVIRONMENT = {"RUST_LOG": "py_spy=warn"}
_WARNING = re.compile(
    rb"^\[(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(?P<ns>\d{9})Z WARN +py_spy\] "
    rb"Failed to get stack trace from (?P<pid>\d+): Failed to call get_stack_trace for thread (?P<ident>\d+)",
    re.MULTILINE,
)


def missed_stacks(said: bytes) -> Iterator[StackMissed]:
    """Each look that py-spy says it missed, on the one clock.

    Args:
        said: what py-spy wrote to its standard error.
    """
    # Both clocks tick alike over some seconds, unless somebody sets the time meanwhile.
    zero_ns = time.time_ns() - now_ns()
    for found in _WARNING.finditer(said):
        second = calendar.timegm(time.strptime(found["second"].decode(), "%Y-%m-%dT%H:%M:%S"))
        yield StackMissed(second * NS_PER_S + int(found["ns"]) - zero_ns, int(found["pid"]), int(found["ident"]))
