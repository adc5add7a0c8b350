"""What was measured over time, for the charts of a report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from perfdoctor.clock import NS_PER_S
from perfdoctor.diagnosis import Series
from perfdoctor.recording import Recording
from perfdoctor.scene.timelines import Floats, Timelines, Times

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


def chart_series(recording: Recording, timelines: Timelines, trainer_pids: Sequence[int]) -> tuple[Series, ...]:
    """All series worth a chart, on a common grid of half seconds."""
    grid = np.arange(recording.start_ns, recording.end_ns, int(_GRID_S * NS_PER_S))
    if len(grid) < 3:
        return ()
    found = _main_threads(timelines, trainer_pids, grid)
    found += _job_cores(recording, grid)
    trainers = {f"pid:{pid}" for pid in trainer_pids}
    for chart, name, label, unit, factor, counter in _CHARTS:
        for (subject, read), (times, values) in recording.series.items():
            if read == name and _belongs(chart, subject, trainers):
                text = label if subject == "job" else f"{label} ({subject})"
                found.append(_series(chart, text, unit, _Line(times, values), grid, factor, counter=counter))
    return tuple(series for series in found if any(value for value in series.values))


def _belongs(chart: str, subject: str, trainers: Collection[str]) -> bool:
    if chart == "Storage of the job":
        return subject == "job"
    if chart == "Memory":
        return subject in trainers
    return subject.startswith(("interface:", "gpu:")) and "/" not in subject


class _Line(NamedTuple):
    """What was read, and when (ns)."""

    times: Sequence[int] | Times
    values: Sequence[float] | Floats


def _series(
    chart: str, name: str, unit: str, line: _Line, grid: Times, factor: float, *, counter: bool
) -> Series:
    times, values = np.asarray(line.times, dtype=np.float64), np.asarray(line.values, dtype=np.float64)
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


def _main_threads(timelines: Timelines, trainer_pids: Sequence[int], grid: Times) -> list[Series]:
    """How the main thread of each trainer spends each half second: on a CPU, waiting for one, or asleep."""
    found = []
    for pid in trainer_pids:
        main = timelines.main(pid)
        if main is None:
            continue
        chart = f"Main thread of the trainer (process {pid})"
        for used, label in ((main.run_ns, "on a CPU"), (main.delay_ns, "waiting for a CPU")):
            line = _Line(main.counted_ns, used)
            found.append(_series(chart, label, "fraction", line, grid, 1 / NS_PER_S, counter=True))
    return found


def _job_cores(recording: Recording, grid: Times) -> list[Series]:
    found = []
    for subject, name, label in (
        ("job", "cpu_seconds_total", "the job"),
        ("host", "neighbours_seconds_total", "other processes"),
        ("perfdoctor", "cpu_seconds_total", "perfdoctor"),
    ):
        line = _Line(*recording.series.get((subject, name), ((), ())))
        found.append(_series("Cores in use", label, "cores", line, grid, 1.0, counter=True))
    return found
