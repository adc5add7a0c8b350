"""The machine's side of a live view: cores, memory, devices, links and GPUs, by their newest readings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.reader import Recording
from perfdoctor.results.view import DeviceView, GpuView, HostView, LinkView
from perfdoctor.timeline.readings import Readings, total

# Rates are over so much time, or between two readings where these are farther apart.
_RATE_NS = 9 * NS_PER_S // 5


class Rates:
    """Newest levels, and how fast counters grow, at the end of a recording.

    Args:
        recording: its last seconds.
    """

    def __init__(self, recording: Recording) -> None:
        self._readings = Readings(recording)
        self._read = {subject for subject, _ in recording.series}

    def level(self, subject: str, name: str) -> float | None:
        """The newest reading of a level; None if it was not read."""
        _, values = self._readings.over_time(subject, name)
        return values[-1] if values else None

    def rate(self, subject: str, name: str) -> float | None:
        """A counter's growth per second; None if it was not read twice."""
        times, values = self._readings.over_time(subject, name)
        if len(times) < 2:
            return None
        since = max((i for i in range(len(times) - 1) if times[i] <= times[-1] - _RATE_NS), default=0)
        span_s = seconds(times[-1] - times[since])
        return max(0.0, values[-1] - values[since]) / span_s if span_s > 0 else None

    def sum(self, subject: str, *names: str) -> float | None:
        """The growth of several counters together."""
        return total(self.rate(subject, name) for name in names)

    def ratio(self, subject: str, part: str, whole: str) -> float | None:
        """Growth of one counter by growth of another; None where the latter stands still."""
        over, under = self.rate(subject, part), self.rate(subject, whole)
        return over / under if over is not None and under else None

    def subjects(self, *prefixes: str) -> list[str]:
        """Those of which anything was read, sorted."""
        return sorted(subject for subject in self._read if subject.startswith(prefixes))

    def fact(self, subject: str, name: str) -> str:
        """A text fact, "" where there is none."""
        return self._readings.fact(subject, name) or ""


def host(rates: Rates, memory: Iterable[float | None], delayed: float) -> HostView:
    """The machine.

    Args:
        rates: its readings.
        memory: resident, of each process of the job.
        delayed: threads of the job that wait for a core at a time.
    """
    groups = rates.subjects("cgroup:")
    throttled = [rates.ratio(group, "throttled_periods_total", "quota_periods_total") for group in groups]
    limits = [limit for group in groups if (limit := rates.level(group, "limit_bytes")) is not None]
    swap, free = rates.level("host", "swap_total_bytes"), rates.level("host", "swap_free_bytes")
    return HostView(
        usable=rates.level("job", "usable_cores"),
        job=rates.rate("job", "cpu_seconds_total"),
        neighbours=rates.rate("host", "neighbours_seconds_total"),
        perfdoctor=rates.rate("perfdoctor", "cpu_seconds_total"),
        delayed=delayed,
        throttled=max((part for part in throttled if part is not None), default=None),
        cpu_pressure=rates.rate("host", "cpu_pressure_some_seconds_total"),
        memory_pressure=rates.rate("host", "memory_pressure_some_seconds_total"),
        io_pressure=rates.rate("host", "io_pressure_some_seconds_total"),
        job_memory=total(memory),
        memory_limit=min(limits, default=None),
        memory_total=rates.level("host", "memory_total_bytes"),
        memory_available=rates.level("host", "memory_available_bytes"),
        page_cache=rates.level("host", "page_cache_bytes"),
        swap_used=None if swap is None or free is None else swap - free,
        swapped=rates.sum("host", "swapped_in_bytes_total", "swapped_out_bytes_total"),
    )


def devices(rates: Rates) -> Iterator[DeviceView]:
    """Block devices, and file systems on servers, that anything was read from or written to."""
    for device in rates.subjects("device:"):
        yield DeviceView(
            name=device.partition(":")[2],
            read=rates.rate(device, "read_bytes_total"),
            write=rates.rate(device, "written_bytes_total"),
            operations=rates.sum(device, "reads_total", "writes_total"),
            latency_s=rates.ratio(device, "read_seconds_total", "reads_total"),
            busy=rates.rate(device, "busy_seconds_total"),
        )
    for mount in rates.subjects("mount:"):
        if (read := rates.rate(mount, "server_read_bytes_total")) is not None:
            write = rates.rate(mount, "server_write_bytes_total")
            yield DeviceView(mount.partition(":")[2], read, write, None, None, None)


def links(rates: Rates) -> Iterator[LinkView]:
    """Network interfaces and ports of fabrics."""
    for link in rates.subjects("interface:", "fabric:"):
        speed = rates.fact(link, "link_bits_per_second")
        received, sent = (rates.rate(link, f"{what}_bytes_total") for what in ("received", "sent"))
        yield LinkView(link.partition(":")[2], received, sent, _number(speed))


def gpus(rates: Rates) -> Iterator[GpuView]:
    """GPUs, and the instances of those that are partitioned."""
    for gpu in rates.subjects("gpu:"):
        if "/" in gpu:
            continue
        yield GpuView(
            name=gpu,
            busy=rates.level(gpu, "busy_fraction"),
            sm=rates.level(gpu, "sm_active_fraction"),
            tensor=rates.level(gpu, "tensor_active_fraction"),
            bandwidth=rates.level(gpu, "dram_bandwidth_fraction"),
            memory_used=rates.level(gpu, "memory_used_bytes"),
            memory_total=rates.level(gpu, "memory_total_bytes"),
            power=rates.level(gpu, "power_watts"),
            power_limit=rates.level(gpu, "power_limit_watts"),
            temperature=rates.level(gpu, "temperature_celsius"),
            clock=rates.level(gpu, "sm_clock_hertz"),
            clock_max=rates.level(gpu, "sm_clock_max_hertz"),
            pcie_received=rates.level(gpu, "pcie_received_bytes_per_second"),
            pcie_sent=rates.level(gpu, "pcie_sent_bytes_per_second"),
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
