"""Readings that tell of slow changes, by the names under which the history of a job keeps them."""

from __future__ import annotations

from typing import NamedTuple

from perfdoctor.results.history import JOB_MEMORY

MEMORY_LEFT = "memory_available_bytes"


class Signal(NamedTuple):
    """A number about the job or its host that may drift over hours.

    Attributes:
        probe: that reads it, and ``reading`` its name there (``docs/readings.md``).
        subjects: what it is read of, by the word before the colon; of processes, GPUs and control groups each one.
        how: ``sum``, ``least`` or ``most`` over the subjects, or ``rate``: by how much it grows in a second.
        shared: another reading of the same subjects of which each has the whole: the most of it comes on top.
    """

    probe: str
    subjects: tuple[str, ...]
    reading: str
    how: str
    shared: str = ""


SIGNALS = {
    # Pages of files are the page cache's: it gives them back, and each process that maps one counts it.
    JOB_MEMORY: Signal("memory", ("pid",), "anonymous_bytes", "sum", shared="shared_memory_bytes"),
    "swapped_bytes": Signal("memory", ("pid",), "swap_bytes", "sum"),
    MEMORY_LEFT: Signal("memory", ("host", "cgroup"), MEMORY_LEFT, "least"),
    "page_cache_bytes": Signal("memory", ("host",), "page_cache_bytes", "sum"),
    "job_cores": Signal("cpu", ("job",), "cpu_seconds_total", "rate"),
    "neighbour_cores": Signal("cpu", ("host",), "neighbours_seconds_total", "rate"),
    "core_clock_hertz": Signal("cpu", ("host",), "core_clock_hertz", "least"),
    "gpu_temperature_celsius": Signal("gpu", ("gpu",), "temperature_celsius", "most"),
    "gpu_clock_hertz": Signal("gpu", ("gpu",), "sm_clock_hertz", "least"),
    "gpu_memory_bytes": Signal("gpu", ("gpu",), "memory_used_bytes", "most"),
}
