"""The one clock: CLOCK_MONOTONIC in nanoseconds. Other clocks are converted here, at the border; and CPU time used."""

import time
from collections.abc import Mapping
from datetime import datetime

NS_PER_S = 1_000_000_000  # nanoseconds in a second
NS_PER_US = 1_000

now_ns = time.monotonic_ns


def seconds(duration_ns: float) -> float:
    """A duration in nanoseconds, in seconds."""
    return duration_ns / NS_PER_S


def helpers_s() -> float:
    """CPU seconds of the processes that this one has started and waited for."""
    import resource  # for Unix alone, and for whoever watches: recordings are read elsewhere, too

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def epoch_on_the_clock() -> tuple[int, int]:
    """What the time since 1970 is when the one clock stands at zero.

    Returns:
        Nanoseconds, and how far that may be off: the two clocks cannot be read at once. Steps of the system's time are
        not noticed.
    """
    readings = []
    for _ in range(5):
        before = now_ns()
        epoch = time.time_ns()
        after = now_ns()
        readings.append((after - before, epoch - (before + after) // 2))
    width, offset = min(readings)
    return offset, (width + 1) // 2


def epoch_of(meta: Mapping[str, str]) -> int:
    """What the time since 1970 was, in nanoseconds, when the one clock of a recording stood at zero.

    Older recordings say it to the second: then it is up to one early.

    Raises:
        KeyError, ValueError: the recording does not say it.
    """
    if "epoch_ns" in meta:
        return int(meta["epoch_ns"])
    started = datetime.strptime(meta["started"], "%Y-%m-%dT%H:%M:%S%z")
    return int(started.timestamp()) * NS_PER_S - int(meta["start_ns"])
