"""What was measured over time, for the charts of a report."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from perfdoctor.diagnosis import Series
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.readings import Counter, Counters
from perfdoctor.timeline.threads import Floats, Times

_GRID_S = 0.5  # the slower probes' readings are this far apart, or farther


class ChartedReading(NamedTuple):
    """A reading that is drawn.

    Attributes:
        chart: title of the chart.
        subjects: whose readings: how they begin, or ``trainer`` for those of the trainers' processes.
        reading: its name; of a counter (``_total``) the growth per second is drawn.
        label: name of the line.
        factor: from the reading's unit to this one.
    """

    chart: str
    subjects: str
    reading: str
    label: str
    unit: str
    factor: float = 1.0


_TRAINER = "trainer"
_DRAWN = (
    ChartedReading("Storage of the job", "job", "storage_read_bytes_total", "read", "MB/s", 1e-6),
    ChartedReading("Storage of the job", "job", "storage_write_bytes_total", "written", "MB/s", 1e-6),
    ChartedReading("Storage devices", "device:", "busy_seconds_total", "busy", "fraction"),
    ChartedReading("Memory", _TRAINER, "rss_bytes", "resident", "GB", 1e-9),
    ChartedReading("Swap of the host", "host", "swapped_in_bytes_total", "read back", "MB/s", 1e-6),
    ChartedReading("Swap of the host", "host", "swapped_out_bytes_total", "written", "MB/s", 1e-6),
    ChartedReading("Network", "interface:", "received_bytes_total", "received", "MB/s", 1e-6),
    ChartedReading("Network", "interface:", "sent_bytes_total", "sent", "MB/s", 1e-6),
    ChartedReading("Network", "fabric:", "received_bytes_total", "received", "MB/s", 1e-6),
    ChartedReading("GPU", "gpu:", "busy_fraction", "busy", "fraction"),
    ChartedReading("GPU", "gpu:", "sm_active_fraction", "SM active", "fraction"),
    ChartedReading("GPU", "gpu:", "tensor_active_fraction", "tensor cores", "fraction"),
    ChartedReading("GPU", "gpu:", "dram_bandwidth_fraction", "memory bandwidth", "fraction"),
    ChartedReading("GPU memory", "gpu:", "memory_used_bytes", "used", "GB", 1e-9),
    ChartedReading("GPU links", "gpu:", "pcie_received_bytes_per_second", "PCIe received", "MB/s", 1e-6),
    ChartedReading("GPU links", "gpu:", "pcie_sent_bytes_per_second", "PCIe sent", "MB/s", 1e-6),
    ChartedReading("GPU links", "gpu:", "nvlink_received_bytes_per_second", "NVLink received", "MB/s", 1e-6),
    ChartedReading("GPU clock", "gpu:", "sm_clock_hertz", "SM clock", "MHz", 1e-6),
    ChartedReading("GPU power", "gpu:", "power_watts", "power", "W"),
)


def chart_series(job: JobTimeline) -> tuple[Series, ...]:
    """All series worth a chart, on a common grid of half seconds."""
    grid = np.arange(job.recording.start_ns, job.recording.end_ns, int(_GRID_S * NS_PER_S))
    if len(grid) < 3:
        return ()
    found = [*_main_threads(job, grid), *_worker_threads(job, grid), *_job_cores(job.counters, grid)]
    trainers = {f"pid:{trainer.pid}" for trainer in job.processes.trainers}
    for drawn in _DRAWN:
        for subject in job.counters.subjects(drawn.reading):
            counter = job.counters.get(subject, drawn.reading)
            if counter is not None and _belongs(drawn.subjects, subject, trainers):
                text = drawn.label if subject in ("job", "host") else f"{drawn.label} ({subject})"
                counts = drawn.reading.endswith("_total")
                found.append(_series(drawn.chart, text, drawn.unit, counter, grid, drawn.factor, counts=counts))
    return tuple(series for series in found if any(value for value in series.values))


def _belongs(wanted: str, subject: str, trainers: Collection[str]) -> bool:
    if wanted == _TRAINER:
        return subject in trainers
    # What one process uses of a GPU has a subject below the GPU's.
    return subject.startswith(wanted) and not (wanted == "gpu:" and "/" in subject)


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
    """What part of each half second the trainers' main threads are on a CPU, and waiting for one."""
    trainers = [(trainer, job.threads.main(trainer.pid)) for trainer in job.processes.trainers]
    for used, label in (("run_ns", "on a CPU"), ("delay_ns", "waiting for a CPU")):
        for trainer, main in trainers:
            if main is None:
                continue
            several = len(trainers) > 1
            chart = f"Trainers {label}" if several else "Main thread of the trainer"
            name = f"rank {trainer.rank or 0}" if several else label
            counter = Counter(main.counted_ns, getattr(main, used))
            yield _series(chart, name, "fraction", counter, grid, 1 / NS_PER_S, counts=True)


def _worker_threads(job: JobTimeline, grid: Times) -> Iterator[Series]:
    """How many cores the main threads of all loader workers have together, and how many wait for one."""
    pids = [worker.pid for trainer in job.processes.trainers for worker in job.processes.workers_of(trainer.pid)]
    mains = [main for pid in pids if (main := job.threads.main(pid)) is not None and len(main.counted_ns) >= 2]
    if not mains:
        return
    times_ns = grid.astype(np.float64)
    for name, label in (("run_ns", "on a CPU"), ("delay_ns", "waiting for a CPU")):
        used = sum(_grown(main.counted_ns, getattr(main, name), grid) for main in mains)
        counter = Counter(times_ns, np.asarray(used))
        yield _series("Loader workers", label, "cores", counter, grid, 1 / NS_PER_S, counts=True)


def _grown(times_ns: Floats, counter: Floats, grid: Times) -> Floats:
    """By how much a counter has grown since it was first read; before and after its thread lived it stands still."""
    return np.asarray(np.interp(grid, times_ns, counter) - counter[0])


def _job_cores(counters: Counters, grid: Times) -> Iterator[Series]:
    for subject, name, label in (
        ("job", "cpu_seconds_total", "the job"),
        ("host", "neighbours_seconds_total", "other processes"),
        ("perfdoctor", "cpu_seconds_total", "perfdoctor"),
    ):
        counter = counters.get(subject, name)
        if counter is not None:
            yield _series("Cores in use", label, "cores", counter, grid, 1.0, counts=True)
