"""What the diagnosis itself cost, from the recorder's own readings."""

from __future__ import annotations

from typing import Any

from perfdoctor.clock import NS_PER_S
from perfdoctor.recording import Recording
from perfdoctor.samples import Reading


def own_cost(recording: Recording) -> dict[str, Any]:
    """CPU and memory of perfdoctor while it watched; values are None where the recorder was killed before it could say.

    Returns:
        ``cpu_cores`` (mean cores used, py-spy included), ``memory_bytes`` (peak), ``ticks`` and ``late_ticks``.
    """
    readings = recording.table(Reading)
    own = readings[readings["subject"] == "perfdoctor"]

    def last(name: str) -> float | None:
        values = own.loc[own["name"] == name, "value"].dropna()
        return float(values.iloc[-1]) if len(values) else None

    used = 0.0
    span = 0.0
    for name in ("own_cpu_seconds_total", "helpers_cpu_seconds_total"):
        rows = own[own["name"] == name]
        if len(rows) >= 2:
            used += float(rows["value"].iloc[-1] - rows["value"].iloc[0])
            span = float(rows["time_ns"].iloc[-1] - rows["time_ns"].iloc[0]) / NS_PER_S
    return {
        "cpu_cores": used / span if span > 0 else None,
        "memory_bytes": last("memory_peak_bytes"),
        "ticks": last("ticks_total"),
        "late_ticks": last("late_ticks_total"),
    }
