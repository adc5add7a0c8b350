"""What the diagnosis itself cost, from the recorder's own readings."""

from __future__ import annotations

from typing import Any

from perfdoctor.recording.clock import seconds
from perfdoctor.recording.reader import Recording


def own_cost(recording: Recording) -> dict[str, Any]:
    """CPU and memory of perfdoctor while it watched; values are None where the recorder was killed before it could say.

    Returns:
        ``cpu_cores`` (mean cores used, py-spy included), ``memory_bytes`` (peak), ``ticks`` and ``late_ticks``.
    """
    def read(name: str) -> tuple[list[int], list[float]]:
        return recording.series.get(("perfdoctor", name), ([], []))

    def last(name: str) -> float | None:
        values = read(name)[1]
        return values[-1] if values else None

    used = 0.0
    span = 0.0
    for name in ("own_cpu_seconds_total", "helpers_cpu_seconds_total"):
        times, values = read(name)
        if len(values) >= 2:
            used += values[-1] - values[0]
            span = seconds(times[-1] - times[0])
    return {
        "cpu_cores": used / span if span > 0 else None,
        "memory_bytes": last("memory_peak_bytes"),
        "ticks": last("ticks_total"),
        "late_ticks": last("late_ticks_total"),
    }
