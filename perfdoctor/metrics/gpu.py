"""Evidence from the GPUs of the job."""

from __future__ import annotations

from perfdoctor.metrics.names import Numbers, put
from perfdoctor.timeline.readings import Readings

# Number, the reading that it is the mean of, and what to divide by for its unit.
_MEANS = (
    ("gpu_busy", "busy_fraction", 1),
    ("gpu_sm", "sm_active_fraction", 1),
    ("gpu_occupancy", "sm_occupancy_fraction", 1),
    ("gpu_tensor", "tensor_active_fraction", 1),
    ("gpu_dram", "dram_bandwidth_fraction", 1),
    ("gpu_fp32", "fp32_active_fraction", 1),
    ("gpu_fp16", "fp16_active_fraction", 1),
    ("gpu_foreign_sm", "foreign_sm_fraction", 1),
    ("gpu_foreign_processes", "foreign_processes", 1),
    ("gpu_limited_by_power", "clocks_limited_by_power", 1),
    ("gpu_limited_by_power_brake", "clocks_limited_by_power_brake", 1),
    ("gpu_limited_by_heat", "clocks_limited_by_heat", 1),
    ("gpu_limited_by_hardware", "clocks_limited_by_hardware", 1),
    ("gpu_power", "power_watts", 1),
    ("gpu_power_limit", "power_limit_watts", 1),
    ("gpu_temperature", "temperature_celsius", 1),
    ("gpu_clock", "sm_clock_hertz", 1e6),
    ("gpu_clock_max", "sm_clock_max_hertz", 1e6),
    ("gpu_memory", "memory_used_bytes", 1e6),
    ("gpu_pcie_received", "pcie_received_bytes_per_second", 1e6),
    ("gpu_pcie_sent", "pcie_sent_bytes_per_second", 1e6),
    ("gpu_nvlink_received", "nvlink_received_bytes_per_second", 1e6),
)


def measure_gpus(readings: Readings) -> Numbers:
    """Means over the GPUs that the job uses; empty if it uses none."""
    numbers: Numbers = {}
    gpus = job_gpus(readings)
    if not gpus:
        return numbers
    put(numbers, "gpus", float(len(gpus)))
    for name, reading, unit in _MEANS:
        value = readings.mean_over(gpus, reading)
        put(numbers, name, None if value is None else value / unit)
    used, whole = readings.mean_over(gpus, "memory_used_bytes"), readings.mean_over(gpus, "memory_total_bytes")
    if used is not None and whole:
        put(numbers, "gpu_memory_share", used / whole)
    clock, most = readings.mean_over(gpus, "sm_clock_hertz"), readings.mean_over(gpus, "sm_clock_max_hertz")
    if clock is not None and most:
        put(numbers, "gpu_clock_deficit", max(0.0, 1 - clock / most))
    return numbers


def job_gpus(readings: Readings) -> list[str]:
    """GPUs with a context of the job; all of them where process ids cannot be matched."""
    gpus = [gpu for gpu in readings.subjects("gpu:") if "/" not in gpu]
    counts = {gpu: readings.maximum(gpu, "job_processes") for gpu in gpus}
    known = {gpu: count for gpu, count in counts.items() if count is not None}
    return [gpu for gpu, count in known.items() if count > 0] if known else gpus
