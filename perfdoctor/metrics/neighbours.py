"""Who else keeps the job's cores busy: how many of them, and which processes most."""

from __future__ import annotations

from typing import NamedTuple

from perfdoctor.recording.schema import core_list
from perfdoctor.timeline.readings import Readings

_SHOWN = 3  # as evidence; whoever uses less is seldom the culprit


class Neighbour(NamedTuple):
    """A process outside the job.

    Attributes:
        command: its name, and of Python what it runs.
        cores: that it kept busy while it was seen to use any.
    """

    pid: int
    command: str
    cores: float


def neighbour_cores(readings: Readings) -> float | None:
    """Cores that processes outside the job keep busy, of those that the job may use; None where that is not known."""
    allowed, host = _allowed(readings), readings.fact("host", "logical_cores")
    if not allowed or host is None or len(allowed) >= int(host):
        return readings.rate("host", "neighbours_seconds_total")
    busy = [readings.rate(f"core:{core}", "busy_seconds_total") for core in sorted(allowed)]
    used = readings.rate("job", "cpu_seconds_total")
    if used is None or any(one is None for one in busy):
        return readings.rate("host", "neighbours_seconds_total")
    own = readings.rate("perfdoctor", "cpu_seconds_total") or 0.0  # wherever it ran: it is little
    return max(0.0, sum(one for one in busy if one is not None) - used - own)


def find_neighbours(readings: Readings) -> tuple[Neighbour, ...]:
    """Those that keep most of the cores busy, the busiest first."""
    found = [
        Neighbour(int(subject.partition(":")[2]), readings.fact(subject, "command") or "", cores)
        for subject in readings.subjects("neighbour:")
        if (cores := readings.rate(subject, "cpu_seconds_total")) is not None
    ]
    return tuple(sorted(found, key=lambda one: -one.cores)[:_SHOWN])


def _allowed(readings: Readings) -> frozenset[int]:
    """The cores that any process of the job may use."""
    masks = (readings.fact(subject, "affinity") for subject in readings.subjects("pid:"))
    return frozenset().union(*(core_list(mask) for mask in masks if mask))
