"""Who keeps the job's cores busy beside its training: processes outside of it, and of its own."""

from __future__ import annotations

from typing import NamedTuple

from perfdoctor.recording.schema import core_list
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
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


class BusyHelper(NamedTuple):
    """A process of the job's own beside its training.

    Attributes:
        pid: its id.
        command: its program, and the script that this runs.
        cores: that it kept busy.
        line: of the job's own code, where it was most of the time; "" if that was not seen.
    """

    pid: int
    command: str
    cores: float
    line: str


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


def find_busy_helper(job: JobTimeline, readings: Readings) -> BusyHelper | None:
    """The busiest process that trainers have started, and that is no loader worker of theirs; None if there is none."""
    helpers = {one.pid for trainer in job.processes.trainers for one in job.processes.helpers_of(trainer.pid)}
    busy = {pid: cores for pid in helpers if (cores := _cores_of(readings, pid)) is not None}
    if not busy:
        return None
    pid = max(busy, key=busy.__getitem__)
    lines = Amounts[str]()
    for number, amount_ns in job.stacks.spent_ns([pid]).items():
        lines[job.stacks.locations[number].line] += amount_ns
    line = max(lines, key=lines.__getitem__, default="")
    return BusyHelper(pid, _shortened(job.recording.processes[pid].command), busy[pid], line)


def _shortened(command: str) -> str:
    """The program of a command line, and the script that it runs; of what Python starts itself there is none."""
    program, *rest = (word.rpartition("/")[2] for word in command.split() or [""])
    return " ".join([program, *(word for word in rest[:1] if not word.startswith("-"))])


def _cores_of(readings: Readings, pid: int) -> float | None:
    """Cores that a process keeps busy; None where that is not known."""
    used = [readings.rate(f"pid:{pid}", name) for name in ("user_seconds_total", "system_seconds_total")]
    known = [one for one in used if one is not None]
    return sum(known) if known else None


def _allowed(readings: Readings) -> frozenset[int]:
    """The cores that any process of the job may use."""
    masks = (readings.fact(subject, "affinity") for subject in readings.subjects("pid:"))
    return frozenset().union(*(core_list(mask) for mask in masks if mask))
