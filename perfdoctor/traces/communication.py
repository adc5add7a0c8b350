"""Exposed communication: moving data, or waiting for a rank that came late?

One rank's trace does not say who was late. But collectives of one kind and size take the same time whenever all ranks
are there, so the fastest of them show what the transfer takes, and what others take beyond that is waiting. Where the
other ranks' traces are at hand, ``stragglers`` replaces this estimate by what they show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.causes import BANDWIDTH, LATENCY, UNOBSERVED_RANK
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.knowledge.profiler import Work
from perfdoctor.timeline.quantiles import quantiles
from perfdoctor.traces.device import DeviceTime
from perfdoctor.traces.host import Host
from perfdoctor.traces.intervals import Floats, Intervals
from perfdoctor.traces.model import Bools, Int8s, Int64s, Trace, distinct

# What exposed communication is split into.
SPLIT = (BANDWIDTH, LATENCY, UNOBSERVED_RANK)


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Collectives of one device, or of a job on the CPU.

    Attributes:
        rows: which events of the trace they are: on the device, or ranges on the host.
        on_host: which of the two.
        alone: the times in which nothing but communication goes on.
        size: bytes; nan where the trace does not say.
        amounts: ``communication.*`` to the exposed nanoseconds of each that go to it.
    """

    rows: Int64s
    on_host: bool
    start: Int64s
    end: Int64s
    alone: Intervals
    size: Floats
    amounts: Mapping[str, Floats]


def time_collectives(trace: Trace, work: Int8s, time: DeviceTime) -> CollectiveTimes:
    """Exposed communication of a device by cause."""
    device = trace.device
    rows = np.flatnonzero((work == Work.COMMUNICATION) & (device.device == time.device))
    alone = time.alone[Work.COMMUNICATION]
    exposed = exposed_times(alone, device.start[rows], device.end[rows])
    duration = np.maximum(device.end[rows] - device.start[rows], 1).astype(np.float64)
    transfer = _transfer(trace, rows, duration)
    known = ~np.isnan(transfer)
    moving = np.where(known, exposed * np.minimum(1.0, np.where(known, transfer, 0.0) / duration), 0.0)
    size = np.array([_bytes(trace, int(row)) for row in rows], dtype=np.float64)
    short = known & is_short(size, transfer)
    amounts = {
        LATENCY: np.where(short, moving, 0.0),
        BANDWIDTH: np.where(short, 0.0, moving),
        UNOBSERVED_RANK: exposed - moving,
    }
    return CollectiveTimes(rows, False, device.start[rows], device.end[rows], alone, size, amounts)


def time_host_collectives(host: Host, alone: Intervals) -> CollectiveTimes:
    """The collectives of a job on the CPU; as long as one rank is all that is seen, all of it counts as waiting.

    Args:
        host: the threads.
        alone: the times in which the job is in nothing but collectives.
    """
    rows = np.flatnonzero(host.collectives)
    start, end = host.trace.host.start[rows], host.trace.host.end[rows]
    nothing = np.zeros(len(rows))
    amounts = {LATENCY: nothing, BANDWIDTH: nothing, UNOBSERVED_RANK: exposed_times(alone, start, end)}
    return CollectiveTimes(rows, True, start, end, alone, np.full(len(rows), np.nan), amounts)


def exposed_times(alone: Intervals, start: Int64s, end: Int64s) -> Floats:
    """How much of each collective is exposed, in nanoseconds; several at once share what is."""
    if not len(start):
        return np.zeros(0)
    edges = distinct(np.concatenate((start, end)))
    depth = np.zeros(len(edges))
    np.add.at(depth, np.searchsorted(edges, start), 1.0)
    np.add.at(depth, np.searchsorted(edges, end), -1.0)
    shared = alone.within(edges[:-1], edges[1:]) / np.maximum(np.cumsum(depth)[:-1], 1.0)
    summed = np.concatenate(([0.0], np.cumsum(shared)))
    return np.asarray(summed[np.searchsorted(edges, end)] - summed[np.searchsorted(edges, start)])


def _transfer(trace: Trace, rows: Int64s, duration: Floats) -> Floats:
    """What each collective takes if nobody waits; nan where there are too few of its kind."""
    elements = np.array([_elements(trace, int(row)) for row in rows], dtype=np.int64)
    kinds = np.stack([trace.device.name[rows].astype(np.int64), trace.device.blocks[rows], elements], axis=1)
    found = np.full(len(rows), np.nan)
    if not len(rows):
        return found
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    for one in distinct(kind):
        alike = kind.ravel() == one
        if alike.sum() < thresholds.ALIKE_COLLECTIVES:
            continue
        fastest, most = quantiles(duration[alike], (thresholds.FASTEST_COLLECTIVES, thresholds.MOST_COLLECTIVES))
        if elements[alike][0] >= 0 or most <= thresholds.ONE_COLLECTIVE_SIZE * fastest:
            found[alike] = fastest
    return found


def _elements(trace: Trace, row: int) -> int:
    message = trace.messages.get(row)
    return -1 if message is None else message.elements


def is_short(size: Floats, transfer: Floats) -> Bools:
    """Collectives that carry little: by their bytes where they are known, else by how fast they can be (ns)."""
    return np.where(np.isnan(size), transfer < thresholds.SHORT_COLLECTIVE_NS, size < thresholds.SMALL_COLLECTIVE_BYTES)


def _bytes(trace: Trace, row: int) -> float:
    message = trace.messages.get(row)
    if message is None or message.elements < 0:
        return float("nan")
    return message.elements * _dtype_bytes(message.dtype)


def _dtype_bytes(dtype: str) -> int:
    return next((size for name, size in profiler.MESSAGE_BYTES.items() if name in dtype.lower()), 1)
