"""Evidence from the system probes: cores, quota, memory, storage and network."""

from __future__ import annotations

from perfdoctor.evidence_readings import Numbers, Readings, put, total

MB = 1e6


def measure_system(readings: Readings, trainer_pids: list[int]) -> Numbers:
    """Numbers from the readings of the cpu, memory, io and network probes (docs/readings.md)."""
    numbers: Numbers = {}
    _measure_cores(numbers, readings)
    _measure_quota(numbers, readings)
    _measure_memory(numbers, readings, trainer_pids)
    _measure_calls(numbers, readings)
    _measure_devices(numbers, readings)
    _measure_network(numbers, readings)
    return numbers


def _measure_cores(numbers: Numbers, readings: Readings) -> None:
    def cores(name: str, subject: str, counter: str, words: str) -> None:
        put(numbers, name, readings.rate(subject, counter), words, "cores", "cpu")

    cores("job_cores", "job", "cpu_seconds_total", "kept busy by the job")
    cores("neighbour_cores", "host", "neighbours_seconds_total", "kept busy by processes outside the job")
    cores("host_cores_busy", "host", "busy_seconds_total", "busy on the host")
    cores("stolen_cores", "host", "steal_seconds_total", "taken away by the hypervisor")
    cores("own_cores", "perfdoctor", "cpu_seconds_total", "kept busy by perfdoctor itself")
    pressure = readings.rate("host", "cpu_pressure_some_seconds_total")
    put(numbers, "cpu_pressure", pressure, "some task on the host waited for a core", "of the time", "cpu")


def _measure_quota(numbers: Numbers, readings: Readings) -> None:
    """Of the control groups that hold the job, the one that is stopped most."""
    best: tuple[float, str] | None = None
    for group in readings.subjects("cgroup:"):
        share = readings.ratio(group, "throttled_periods_total", "quota_periods_total")
        if share is not None and (best is None or share > best[0]):
            best = share, group
    if best is None:
        return
    put(
        numbers,
        "throttled_periods",
        best[0],
        "quota periods in which the control group was stopped",
        "of periods",
        "cpu",
    )
    stopped = readings.rate(best[1], "throttled_seconds_total")
    put(numbers, "throttled_cores", stopped, "stopped by the quota at a time", "cores", "cpu")


def _measure_memory(numbers: Numbers, readings: Readings, trainer_pids: list[int]) -> None:
    def rate(name: str, counter: str, words: str, unit: str, scale: float) -> None:
        value = readings.rate("host", counter)
        put(numbers, name, None if value is None else value / scale, words, unit, "memory")

    rate("swap_in", "swapped_in_bytes_total", "read back from swap", "MB/s", MB)
    rate("swap_out", "swapped_out_bytes_total", "written to swap", "MB/s", MB)
    rate("refaults", "refaults_total", "pages read again soon after the page cache dropped them", "/s", 1)
    faults = total(readings.rate(pid, "major_faults_total") for pid in readings.subjects("pid:"))
    put(numbers, "major_faults", faults, "major page faults of the job", "/s", "memory")
    pressure = readings.rate("host", "memory_pressure_full_seconds_total")
    put(numbers, "memory_pressure", pressure, "all tasks stalled for memory", "of the time", "memory")
    resident = total(readings.maximum(f"pid:{pid}", "rss_bytes") for pid in trainer_pids)
    put(
        numbers,
        "trainer_rss",
        None if resident is None else resident / MB,
        "resident memory of the trainers",
        "MB",
        "memory",
    )
    swapped = total(readings.maximum(pid, "swap_bytes") for pid in readings.subjects("pid:"))
    put(
        numbers,
        "swapped",
        None if swapped is None else swapped / MB,
        "memory of the job that is swapped out",
        "MB",
        "memory",
    )
    available = readings.mean("host", "memory_available_bytes")
    put(
        numbers,
        "memory_available",
        None if available is None else available / MB,
        "available memory",
        "MB",
        "memory",
    )


def _measure_calls(numbers: Numbers, readings: Readings) -> None:
    """What the job asks for by read and write calls, and what of it reaches storage."""

    def rate(name: str, counter: str, words: str, unit: str, scale: float) -> float | None:
        value = readings.rate("job", counter)
        put(numbers, name, None if value is None else value / scale, words, unit, "io")
        return value

    asked = rate("read_by_calls", "read_call_bytes_total", "asked for by read calls", "MB/s", MB)
    calls = rate("read_calls", "read_calls_total", "read calls", "/s", 1)
    fetched = rate("read_from_storage", "storage_read_bytes_total", "read from storage", "MB/s", MB)
    rate("written_by_calls", "write_call_bytes_total", "handed to write calls", "MB/s", MB)
    rate("written_to_storage", "storage_write_bytes_total", "written to storage", "MB/s", MB)
    rate("write_calls", "write_calls_total", "write calls", "/s", 1)
    if asked is not None and calls:
        put(numbers, "bytes_per_read", asked / calls, "asked for by one read call", "bytes", "io")
    if asked and fetched is not None:
        # Memory-mapped reads and read-ahead fetch more than read calls ask for.
        cached = max(0.0, 1 - fetched / asked)
        put(
            numbers,
            "page_cache",
            cached,
            "of what read calls asked for came from the page cache",
            "of bytes",
            "io",
        )


def _measure_devices(numbers: Numbers, readings: Readings) -> None:
    """The block device that is busiest."""
    shares = [
        (share, device)
        for device in readings.subjects("device:")
        if (share := readings.rate(device, "busy_seconds_total")) is not None
    ]
    if shares:
        share, device = max(shares)
        name = device.partition(":")[2]
        put(
            numbers,
            "device_busy",
            min(1.0, share),
            f"device {name} had requests under way",
            "of the time",
            "io",
        )
        for key, counter, verb in (
            ("device_read", "read_bytes_total", "delivered"),
            ("device_written", "written_bytes_total", "stored"),
        ):
            value = readings.rate(device, counter)
            put(numbers, key, None if value is None else value / MB, f"device {name} {verb}", "MB/s", "io")
        latency = readings.ratio(device, "read_seconds_total", "reads_total")
        put(
            numbers,
            "read_latency",
            None if latency is None else 1e3 * latency,
            f"one read of device {name} took",
            "ms",
            "io",
        )
    server = total(readings.rate(mount, "server_read_bytes_total") for mount in readings.subjects("mount:"))
    put(
        numbers,
        "read_from_server",
        None if server is None else server / MB,
        "read from network file systems",
        "MB/s",
        "io",
    )


def _measure_network(numbers: Numbers, readings: Readings) -> None:
    """All interfaces together. On one host ranks talk through ``lo``, where what is sent is also received."""
    interfaces = readings.subjects("interface:")

    def rate(name: str, counter: str, words: str, unit: str, scale: float) -> float | None:
        value = total(readings.rate(interface, counter) for interface in interfaces)
        put(numbers, name, None if value is None else value / scale, words, unit, "network")
        return value

    received = rate("received", "received_bytes_total", "received from the network", "MB/s", MB)
    rate("sent", "sent_bytes_total", "sent to the network", "MB/s", MB)
    packets = rate("packets", "received_packets_total", "packets received", "/s", 1)
    if received is not None and packets:
        put(numbers, "bytes_per_packet", received / packets, "in a packet", "bytes", "network")
    resent = readings.ratio("network", "tcp_retransmits_total", "tcp_segments_sent_total")
    put(numbers, "retransmits", resent, "TCP segments sent again", "of segments", "network")
