"""What was measured over time, for the charts of a report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfdoctor.clock import NS_PER_S
from perfdoctor.diagnosis import Series
from perfdoctor.recording import Recording
from perfdoctor.samples import Reading, ThreadSample

_GRID_S = 0.5
# (chart, reading, label, unit, factor to that unit, whether it is a counter)
_CHARTS = (
    ("Storage of the job", "storage_read_bytes_total", "read", "MB/s", 1e-6, True),
    ("Storage of the job", "storage_write_bytes_total", "written", "MB/s", 1e-6, True),
    ("Memory", "rss_bytes", "resident", "GB", 1e-9, False),
    ("Network", "received_bytes_total", "received", "MB/s", 1e-6, True),
    ("GPU", "busy_fraction", "busy", "fraction", 1.0, False),
    ("GPU", "sm_active_fraction", "SM active", "fraction", 1.0, False),
    ("GPU", "tensor_active_fraction", "tensor cores", "fraction", 1.0, False),
    ("GPU", "dram_bandwidth_fraction", "memory bandwidth", "fraction", 1.0, False),
    ("GPU memory", "memory_used_bytes", "used", "GB", 1e-9, False),
)


def chart_series(recording: Recording, trainer_pids: Sequence[int]) -> tuple[Series, ...]:
    """All series worth a chart, on a common grid of half seconds."""
    grid = np.arange(recording.start_ns, recording.end_ns, int(_GRID_S * NS_PER_S))
    if len(grid) < 3:
        return ()
    found = _main_threads(recording, trainer_pids, grid)
    found += _job_cores(recording, grid)
    readings = recording.table(Reading)
    for chart, name, label, unit, factor, counter in _CHARTS:
        rows = readings[readings["name"] == name]
        wanted = rows["subject"].str.startswith(("pid:", "interface:", "gpu:"))
        if chart == "Storage of the job":
            wanted = rows["subject"] == "job"
        for subject, values in rows[wanted & ~rows["subject"].str.contains("/")].groupby(
            "subject", sort=False
        ):
            if chart == "Memory" and str(subject) not in {f"pid:{pid}" for pid in trainer_pids}:
                continue
            text = label if subject == "job" else f"{label} ({subject})"
            found.append(_series(chart, text, unit, values, grid, factor, counter=counter))
    return tuple(series for series in found if any(value for value in series.values))


def _series(
    chart: str,
    name: str,
    unit: str,
    rows: pd.DataFrame,
    grid: np.ndarray[tuple[int], np.dtype[np.int64]],
    factor: float,
    *,
    counter: bool,
) -> Series:
    rows = rows.dropna(subset=["value"])
    times, values = rows["time_ns"].to_numpy(np.float64), rows["value"].to_numpy(np.float64)
    if len(times) < 2:
        return Series(chart, name, unit, (), ())
    inside = (grid >= times[0]) & (grid <= times[-1])
    level = np.interp(grid, times, values)
    if counter:
        level = np.gradient(level, grid / NS_PER_S)
    shown = tuple(
        float(value) * factor if known else None for value, known in zip(level, inside, strict=True)
    )
    return Series(chart, name, unit, tuple(((grid - grid[0]) / NS_PER_S).tolist()), shown)


def _main_threads(
    recording: Recording, trainer_pids: Sequence[int], grid: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[Series]:
    """How the main thread of each trainer spends each half second: on a CPU, waiting for one, or asleep."""
    samples = recording.table(ThreadSample)
    found = []
    for pid in trainer_pids:
        rows = samples[(samples["tid"] == pid) & (samples["state"] != "X")]
        for column, label in (("run_ns", "on a CPU"), ("delay_ns", "waiting for a CPU")):
            values = rows[["time_ns", column]].rename(columns={column: "value"})
            chart = f"Main thread of the trainer (process {pid})"
            found.append(_series(chart, label, "fraction", values, grid, 1 / NS_PER_S, counter=True))
    return found


def _job_cores(recording: Recording, grid: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Series]:
    readings = recording.table(Reading)
    found = []
    for subject, name, label in (
        ("job", "cpu_seconds_total", "the job"),
        ("host", "neighbours_seconds_total", "other processes"),
        ("perfdoctor", "cpu_seconds_total", "perfdoctor"),
    ):
        rows = readings[(readings["subject"] == subject) & (readings["name"] == name)]
        found.append(_series("Cores in use", label, "cores", rows, grid, 1.0, counter=True))
    return found
