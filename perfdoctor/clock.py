"""The one clock: CLOCK_MONOTONIC in nanoseconds. Other clocks are converted here, at the border."""

import time

NS_PER_S = 1_000_000_000

now_ns = time.monotonic_ns


def seconds(duration_ns: float) -> float:
    """A duration in nanoseconds, in seconds."""
    return duration_ns / NS_PER_S
