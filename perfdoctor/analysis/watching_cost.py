"""What the watching cost: perfdoctor itself, and what being traced cost the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfdoctor.recording.clock import seconds
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import TraceCost


def own_cost(recording: Recording) -> dict[str, Any]:
    """CPU and memory of perfdoctor while it watched; values are None where the recorder was killed before it could say.

    Returns:
        ``cpu_cores`` (mean cores used; py-spy, a live view and an exporter included), ``memory_bytes`` (peak),
        ``ticks`` and ``late_ticks``; and what ``_cost_of_traces`` returns.
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
    used += sum(last(f"{beside}_cpu_seconds_total") or 0.0 for beside in ("view", "exporter"))
    return {
        "cpu_cores": used / span if span > 0 else None,
        "memory_bytes": last("memory_peak_bytes"),
        "ticks": last("ticks_total"),
        "late_ticks": last("late_ticks_total"),
        **_cost_of_traces(recording.rows(TraceCost)),
    }


def _cost_of_traces(costs: Sequence[TraceCost]) -> dict[str, Any]:
    """What it cost the job to be traced: the largest of the ranks; empty if it was not.

    Returns:
        ``trace_way``; ``trace_s`` (how long was traced); ``trace_stopped_s`` and ``trace_held_s`` (for how long the
        training stood still so that it could be entered from outside, and waited for the profiler).
    """
    if not costs:
        return {}
    stopped = max(cost.stopped_ns for cost in costs)
    return {
        "trace_way": ", ".join(sorted({cost.way for cost in costs})),
        "trace_s": seconds(max(cost.traced_ns for cost in costs)),
        **({"trace_stopped_s": seconds(stopped)} if stopped else {}),
        "trace_held_s": seconds(max(cost.held_ns or 0 for cost in costs)),
    }
