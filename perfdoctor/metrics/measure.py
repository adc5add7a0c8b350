"""Numbers measured from a recording: all of them, and those of the system probes: cores, memory, storage, network.

``docs/evidence.md`` lists every name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfdoctor.metrics.gpu import measure_gpus
from perfdoctor.metrics.names import Measured, Numbers, Trainers, put
from perfdoctor.metrics.readings import Readings, total
from perfdoctor.metrics.threads import measure_threads

if TYPE_CHECKING:
    from perfdoctor.recording.reader import Recording
    from perfdoctor.timeline.threads import Threads

_MB = 1e6

# Number, subject, counter that it is the rate of, and what to divide by for its unit.
_RATES = (
    ("job_cores", "job", "cpu_seconds_total", 1),
    ("neighbour_cores", "host", "neighbours_seconds_total", 1),
    ("host_cores_busy", "host", "busy_seconds_total", 1),
    ("stolen_cores", "host", "steal_seconds_total", 1),
    ("own_cores", "perfdoctor", "cpu_seconds_total", 1),
    ("cpu_pressure", "host", "cpu_pressure_some_seconds_total", 1),
    ("memory_pressure", "host", "memory_pressure_full_seconds_total", 1),
    ("swap_in", "host", "swapped_in_bytes_total", _MB),
    ("swap_out", "host", "swapped_out_bytes_total", _MB),
    ("refaults", "host", "refaults_total", 1),
    ("read_by_calls", "job", "read_call_bytes_total", _MB),
    ("read_calls", "job", "read_calls_total", 1),
    ("read_from_storage", "job", "storage_read_bytes_total", _MB),
    ("written_by_calls", "job", "write_call_bytes_total", _MB),
    ("write_calls", "job", "write_calls_total", 1),
    ("written_to_storage", "job", "storage_write_bytes_total", _MB),
)


def measure(recording: Recording, threads: Threads, trainers: Trainers) -> Measured:
    """Measures everything that rules may rest on, except for what comes from the account and from steps.

    Args:
        recording: what was seen.
        threads: its threads.
        trainers: its trainers and their workers.

    Returns:
        What could be measured.
    """
    readings = Readings(recording)
    found = measure_threads(recording, threads, trainers)
    found.job.update(measure_system(readings, [pid for pid, _ in trainers]))
    found.job.update(measure_gpus(readings))
    return found


def measure_system(readings: Readings, trainer_pids: Sequence[int]) -> Numbers:
    """Numbers from the readings of the cpu, memory, io and network probes (docs/readings.md)."""
    numbers: Numbers = {}
    for name, subject, counter, unit in _RATES:
        put(numbers, name, _divided(readings.rate(subject, counter), unit))
    _measure_quota(numbers, readings)
    _measure_memory(numbers, readings, trainer_pids)
    _measure_calls(numbers, readings)
    _measure_devices(numbers, readings)
    _measure_network(numbers, readings)
    return numbers


def _measure_quota(numbers: Numbers, readings: Readings) -> None:
    """Of the control groups that hold the job, the one that is stopped most."""
    shares = [
        (share, group)
        for group in readings.subjects("cgroup:")
        if (share := readings.ratio(group, "throttled_periods_total", "quota_periods_total")) is not None
    ]
    if shares:
        share, group = max(shares)
        put(numbers, "throttled_periods", share)
        put(numbers, "throttled_cores", readings.rate(group, "throttled_seconds_total"))


def _measure_memory(numbers: Numbers, readings: Readings, trainer_pids: Sequence[int]) -> None:
    processes = readings.subjects("pid:")
    put(numbers, "major_faults", total(readings.rate(process, "major_faults_total") for process in processes))
    swapped = total(readings.maximum(process, "swap_bytes") for process in processes)
    resident = total(readings.maximum(f"pid:{pid}", "rss_bytes") for pid in trainer_pids)
    put(numbers, "swapped", _divided(swapped, _MB))
    put(numbers, "trainer_rss", _divided(resident, _MB))
    put(numbers, "memory_available", _divided(readings.mean("host", "memory_available_bytes"), _MB))


def _measure_calls(numbers: Numbers, readings: Readings) -> None:
    """How large read calls are, and how many of their bytes the page cache had."""
    put(numbers, "bytes_per_read", readings.ratio("job", "read_call_bytes_total", "read_calls_total"))
    fetched = readings.ratio("job", "storage_read_bytes_total", "read_call_bytes_total")
    # Storage may deliver more than read calls ask for, through memory maps; the quotient then says nothing.
    if fetched is not None and fetched <= 1:
        put(numbers, "page_cache", 1 - fetched)


def _measure_devices(numbers: Numbers, readings: Readings) -> None:
    """The block device that is busiest, and network file systems."""
    shares = [
        (share, device)
        for device in readings.subjects("device:")
        if (share := readings.rate(device, "busy_seconds_total")) is not None
    ]
    if shares:
        share, device = max(shares)
        name = device.partition(":")[2]
        latency = readings.ratio(device, "read_seconds_total", "reads_total")
        put(numbers, "device_busy", min(1.0, share), name)
        put(numbers, "device_read", _divided(readings.rate(device, "read_bytes_total"), _MB), name)
        put(numbers, "device_written", _divided(readings.rate(device, "written_bytes_total"), _MB), name)
        put(numbers, "read_latency", None if latency is None else 1e3 * latency, name)
    server = total(readings.rate(mount, "server_read_bytes_total") for mount in readings.subjects("mount:"))
    put(numbers, "read_from_server", _divided(server, _MB))


def _measure_network(numbers: Numbers, readings: Readings) -> None:
    """All interfaces together. On one host ranks talk through ``lo``, where what is sent is also received."""
    interfaces = readings.subjects("interface:")

    def rate(counter: str) -> float | None:
        return total(readings.rate(interface, counter) for interface in interfaces)

    received, packets = rate("received_bytes_total"), rate("received_packets_total")
    put(numbers, "received", _divided(received, _MB))
    if received:
        here = readings.rate("interface:lo", "received_bytes_total")
        put(numbers, "loopback", None if here is None else here / received)
    put(numbers, "sent", _divided(rate("sent_bytes_total"), _MB))
    put(numbers, "packets", packets)
    if received is not None and packets:
        put(numbers, "bytes_per_packet", received / packets)
    put(numbers, "retransmits", readings.ratio("network", "tcp_retransmits_total", "tcp_segments_sent_total"))


def _divided(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
