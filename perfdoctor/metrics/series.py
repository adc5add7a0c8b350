"""What was measured over time, for the charts of a report."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from perfdoctor.diagnosis import Series
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.readings import Counter, Counters
from perfdoctor.timeline.threads import Times

_GRID_S = 0.5  # the slower probes' readings are this far apart, or farther
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


def chart_series(job: JobTimeline) -> tuple[Series, ...]:
    """All series worth a chart, on a common grid of half seconds."""
    grid = np.arange(job.recording.start_ns, job.recording.end_ns, int(_GRID_S * NS_PER_S))
    if len(grid) < 3:
        return ()
    found = [*_main_threads(job, grid), *_job_cores(job.counters, grid)]
    trainers = {f"pid:{trainer.pid}" for trainer in job.processes.trainers}
    for chart, name, label, unit, factor, counts in _CHARTS:
        for subject in job.counters.subjects(name):
            counter = job.counters.get(subject, name)
            if counter is not None and _belongs(chart, subject, trainers):
                text = label if subject == "job" else f"{label} ({subject})"
                found.append(_series(chart, text, unit, counter, grid, factor, counts=counts))
    return tuple(series for series in found if any(value for value in series.values))


def _belongs(chart: str, subject: str, trainers: Collection[str]) -> bool:
    if chart == "Storage of the job":
        return subject == "job"
    if chart == "Memory":
        return subject in trainers
    return subject.startswith(("interface:", "fabric:")) or (subject.startswith("gpu:") and "/" not in subject)


def _series(chart: str, name: str, unit: str, read: Counter, grid: Times, factor: float, *, counts: bool) -> Series:
    times, values = read.times_ns, read.values
    if len(times) < 2:
        return Series(chart, name, unit, (), ())
    inside = (grid >= times[0]) & (grid <= times[-1])
    level = np.interp(grid, times, values)
    if counts:
        level = np.gradient(level, grid / NS_PER_S)
    shown = tuple(float(value) * factor if known else None for value, known in zip(level, inside, strict=True))
    return Series(chart, name, unit, tuple(((grid - grid[0]) / NS_PER_S).tolist()), shown)


def _main_threads(job: JobTimeline, grid: Times) -> Iterator[Series]:
    """How the main thread of each trainer spends each half second: on a CPU, waiting for one, or asleep."""
    for trainer in job.processes.trainers:
        main = job.threads.main(trainer.pid)
        if main is None:
            continue
        chart = f"Main thread of the trainer (process {trainer.pid})"
        times_ns = main.counted_ns.astype(np.float64)
        for used, label in ((main.run_ns, "on a CPU"), (main.delay_ns, "waiting for a CPU")):
            yield _series(chart, label, "fraction", Counter(times_ns, used), grid, 1 / NS_PER_S, counts=True)


def _job_cores(counters: Counters, grid: Times) -> Iterator[Series]:
    for subject, name, label in (
        ("job", "cpu_seconds_total", "the job"),
        ("host", "neighbours_seconds_total", "other processes"),
        ("perfdoctor", "cpu_seconds_total", "perfdoctor"),
    ):
        counter = counters.get(subject, name)
        if counter is not None:
            yield _series("Cores in use", label, "cores", counter, grid, 1.0, counts=True)
