"""Exposed communication: moving data, or waiting for a rank that came late?

One rank's trace does not say who was late. But collectives of one kind and size take the same time whenever all ranks
are there, so the fastest of them show what the transfer takes, and what others take beyond that is waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from perfdoctor.traces.device import DeviceTime
from perfdoctor.traces.kernels import Work
from perfdoctor.traces.model import Int8s, Int64s, Trace

Floats = npt.NDArray[np.float64]

# With fewer of a kind, the fastest may have waited as well.
_ENOUGH = 5
_FASTEST, _MOST = 10, 75  # percentiles
# Where sizes are not told, kernels of one name may carry different ones. Then they count as alike only if most take
# about as long as the fastest.
_ALIKE = 2.0
# DistributedDataParallel's default bucket of 25 MB takes 250 us at 100 GB/s; what is faster carries less, or runs on a
# link that is not the limit.
_SHORT_NS = 250_000
_SMALL_BYTES = 1 << 20
_BYTES = {"float": 4, "int": 4, "double": 8, "long": 8, "half": 2, "bfloat16": 2, "short": 2}


def split_communication(trace: Trace, work: Int8s, time: DeviceTime) -> dict[str, tuple[Int64s, Floats]]:
    """Exposed communication by cause.

    Returns:
        ``communication.*`` to where each collective starts and how many exposed nanoseconds of it go to that cause.
    """
    device = trace.device
    rows = np.flatnonzero((work == Work.COMMUNICATION) & (device.device == time.device))
    alone = time.alone[Work.COMMUNICATION]
    exposed = alone.within(device.start[rows], device.end[rows]).astype(np.float64)
    # Two collectives at once share what is exposed.
    exposed *= alone.total / max(exposed.sum(), 1.0)
    duration = np.maximum(device.end[rows] - device.start[rows], 1).astype(np.float64)
    transfer = _transfer(trace, rows, duration)
    known = ~np.isnan(transfer)
    moving = np.where(known, exposed * np.minimum(1.0, np.where(known, transfer, 0.0) / duration), 0.0)
    short = known & _is_short(trace, rows, transfer)
    start = device.start[rows]
    return {
        "communication.latency": (start, np.where(short, moving, 0.0)),
        "communication.bandwidth": (start, np.where(short, 0.0, moving)),
        "communication.unattributed_wait": (start, exposed - moving),
    }


def _transfer(trace: Trace, rows: Int64s, duration: Floats) -> Floats:
    """What each collective takes if nobody waits; nan where there are too few of its kind."""
    elements = np.array([_elements(trace, int(row)) for row in rows], dtype=np.int64)
    kinds = np.stack([trace.device.name[rows].astype(np.int64), trace.device.blocks[rows], elements], axis=1)
    found = np.full(len(rows), np.nan)
    if not len(rows):
        return found
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    for one in np.unique(kind):
        alike = kind.ravel() == one
        if alike.sum() < _ENOUGH:
            continue
        fastest, most = np.percentile(duration[alike], (_FASTEST, _MOST))
        if elements[alike][0] >= 0 or most <= _ALIKE * fastest:
            found[alike] = fastest
    return found


def _elements(trace: Trace, row: int) -> int:
    message = trace.messages.get(row)
    return -1 if message is None else message.elements


def _is_short(trace: Trace, rows: Int64s, transfer: Floats) -> npt.NDArray[np.bool_]:
    """Collectives that carry little: by their size where it is known, else by how fast they can be."""
    size = np.array([_bytes(trace, int(row)) for row in rows], dtype=np.float64)
    return np.where(np.isnan(size), transfer < _SHORT_NS, size < _SMALL_BYTES)


def _bytes(trace: Trace, row: int) -> float:
    message = trace.messages.get(row)
    if message is None or message.elements < 0:
        return float("nan")
    return message.elements * _dtype_bytes(message.dtype, _BYTES)


def _dtype_bytes(dtype: str, known: Mapping[str, int]) -> int:
    return next((size for name, size in known.items() if name in dtype.lower()), 1)
