"""Which call launched what a device did."""

from __future__ import annotations

import numpy as np

from perfdoctor.traces.model import UNKNOWN, Int64s, Trace


def find_launches(trace: Trace) -> Int64s:
    """For each device event, the row of the call that launched it; ``UNKNOWN`` where it is not in the trace."""
    device, calls = trace.device, trace.calls
    if not len(calls):
        return np.full(len(device), UNKNOWN, dtype=np.int64)
    order = np.argsort(calls.correlation, kind="stable")
    sorted_ = calls.correlation[order]
    place = np.minimum(np.searchsorted(sorted_, device.correlation), len(order) - 1)
    found = (sorted_[place] == device.correlation) & (device.correlation > 0)
    return np.where(found, order[place], UNKNOWN)
