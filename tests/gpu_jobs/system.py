"""What the probes of CPU, memory, files and network would have read beside a simulated job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfdoctor.recording.schema import Fact, Reading, Sample
from tests.gpu_jobs.events import S
from tests.gpu_jobs.host import Process
from tests.gpu_jobs.simulate import Run
from tests.gpu_jobs.tracks import START, Track

_MOUNTS = (
    ("/", "ext4", "/dev/nvme0n1p2", "no", "nvme0n1"),
    ("/dev/shm", "tmpfs", "tmpfs", "no", ""),
    ("/data", "nfs4", "filer:/export/data", "yes", ""),
    ("/checkpoints", "ext4", "/dev/nvme1n1", "no", "nvme1n1"),
    ("/local", "ext4", "/dev/nvme2n1", "no", "nvme2n1"),
)


@dataclass(frozen=True)
class _Watched:
    run: Run
    tracks: Mapping[int, Track]


def system_samples(run: Run, tracks: Mapping[int, Track]) -> Iterator[Sample]:
    """Facts and readings.

    Args:
        run: what happened.
        tracks: what each thread did.
    """
    watching = _Watched(run, tracks)
    yield from _facts(watching)
    for tick in range(0, watching.run.end_ns, S // 2):
        yield from _cpu(watching, tick)
        yield from _io(watching, tick)
    for tick in range(0, watching.run.end_ns, 2 * S):
        yield from _memory(watching, tick)
        yield from _network(watching, tick)
    for tick in range(0, watching.run.end_ns, S):
        yield Reading(START + tick, "recorder", "perfdoctor", "own_cpu_seconds_total", 1.0 + tick / S * 0.02)
        yield Reading(START + tick, "recorder", "perfdoctor", "helpers_cpu_seconds_total", 0.2 + tick / S * 0.01)


def _facts(watching: _Watched) -> Iterator[Sample]:
    host = watching.run.job.host
    yield Fact(START, "cpu", "host", "cpu_model", "Intel(R) Xeon(R) Platinum 8480C")
    yield Fact(START, "cpu", "host", "logical_cores", str(host.cores))
    yield Fact(START, "cpu", "job", "cpu_quota", str(_quota_cores(watching) or "unlimited"))
    for process in watching.run.processes:
        yield Fact(START, "cpu", f"pid:{process.pid}", "affinity", f"0-{host.cores - 1}")
    for point, kind, source, network, device in _MOUNTS:
        yield Fact(START, "io", f"mount:{point}", "filesystem", kind)
        yield Fact(START, "io", f"mount:{point}", "source", source)
        yield Fact(START, "io", f"mount:{point}", "network", network)
        if device:
            yield Fact(START, "io", f"mount:{point}", "device", device)


def _times(watching: _Watched, process: Process, tick: int) -> tuple[float, float]:
    """CPU seconds in user mode and in the kernel so far."""
    run = system = 0.0
    for thread in process.threads:
        track = watching.tracks[thread.tid]
        run += track.counters(tick)[0] / S
        system += track.system_ns(tick) / S
    return run - system, system


def _cpu(watching: _Watched, tick: int) -> Iterator[Sample]:
    at, host = START + tick, watching.run.job.host
    total = 0.0
    runnable = 1.0
    for process in watching.run.processes:
        user, system = _times(watching, process, tick)
        first = sum(_times(watching, process, 0))
        total += user + system - first
        subject = f"pid:{process.pid}"
        for name, value in (
            ("user_seconds_total", round(user, 2)),
            ("system_seconds_total", round(system, 2)),
            ("waited_children_seconds_total", 0.0),
            ("threads", float(len(process.threads))),
        ):
            yield Reading(at, "cpu", subject, name, value)
        for thread in process.threads:
            track = watching.tracks[thread.tid]
            runnable += track.doing[track.index(tick)].state == "R"
    yield Reading(at, "cpu", "job", "cpu_seconds_total", round(total, 2))
    own = tick / S * 0.03
    used = total / (tick / S) if tick else 0.0
    load = tick / S * max(0.0, min(host.load, host.cores - used))
    yield Reading(at, "cpu", "perfdoctor", "cpu_seconds_total", own)
    busy = total + own + load
    yield Reading(at, "cpu", "host", "busy_seconds_total", 5000 + busy)
    yield Reading(at, "cpu", "host", "idle_seconds_total", 90_000 + max(0.0, host.cores * tick / S - busy))
    yield Reading(at, "cpu", "host", "iowait_seconds_total", 10.0)
    yield Reading(at, "cpu", "host", "steal_seconds_total", 0.0)
    yield Reading(at, "cpu", "host", "neighbours_seconds_total", load)
    yield Reading(at, "cpu", "host", "runnable_threads", runnable + round(host.load))
    pressure = max(host.wait.delay, host.worker_wait.delay)
    yield Reading(
        at, "cpu", "host", "cpu_pressure_some_seconds_total", 3 + tick / S * (0.002 + min(1.0, pressure * 1.2))
    )
    quota = _quota_cores(watching)
    if quota is not None:
        yield from _quota(watching, tick, at, quota)
    if tick % (5 * S) == 0:
        yield Reading(at, "cpu", "job", "usable_cores", min(float(host.cores), quota or host.cores))
        for process in watching.run.processes:
            yield Reading(at, "cpu", f"pid:{process.pid}", "allowed_cores", float(host.cores))


def _quota_cores(watching: _Watched) -> float | None:
    """The quota that the job has used up: what it used."""
    if not watching.run.job.host.quota:
        return None
    threads = [thread for process in watching.run.processes for thread in process.threads]
    used = sum(
        watching.tracks[thread.tid].run_ns(watching.run.end_ns) - watching.tracks[thread.tid].run_ns(0)
        for thread in threads
    )
    return max(0.1, round(used / watching.run.end_ns, 1))


def _quota(watching: _Watched, tick: int, at: int, cores: float) -> Iterator[Sample]:
    host = watching.run.job.host
    group = "cgroup:/job"
    periods = (tick + 10 * S) // host.wait.period_ns
    stopped = host.wait.stopped
    yield Reading(at, "cpu", group, "quota_cores", cores)
    yield Reading(at, "cpu", group, "quota_periods_total", float(periods))
    yield Reading(at, "cpu", group, "throttled_periods_total", float(round(periods * (0.97 if stopped else 0.0))))
    yield Reading(at, "cpu", group, "throttled_seconds_total", (tick / S + 10) * stopped * 3)


def _io(watching: _Watched, tick: int) -> Iterator[Sample]:
    at = START + tick
    local = any(step.input.folder.startswith("/local") for step in watching.run.job.steps)
    total_read = total_written = 0
    for process in watching.run.processes:
        read = sum(size for time, size in process.read if time <= tick)
        received = sum(size for time, size in process.received if time <= tick)
        written = sum(size for time, size in process.written if time <= tick)
        total_read += read + received
        total_written += written
        for name, value in (
            ("read_call_bytes_total", read + received), ("write_call_bytes_total", written),
            ("storage_read_bytes_total", read * local), ("storage_write_bytes_total", written),
            ("read_calls_total", (read + received) // 131072), ("write_calls_total", written // 131072),
        ):  # fmt: skip
            yield Reading(at, "io", f"pid:{process.pid}", name, float(value))
    files = sum(size for one in watching.run.processes for time, size in one.read if time <= tick)
    for name, value in (
        ("read_call_bytes_total", total_read), ("write_call_bytes_total", total_written),
        ("storage_read_bytes_total", files * local), ("storage_write_bytes_total", total_written),
        ("read_calls_total", total_read // 131072), ("write_calls_total", total_written // 131072),
    ):  # fmt: skip
        yield Reading(at, "io", "job", name, float(value))
    yield from _device("nvme1n1", at, 0, total_written)
    yield from _device("nvme2n1", at, files * local, 0)
    if tick % S == 0:
        yield Reading(at, "io", "mount:/data", "server_read_bytes_total", float(files * (not local)))
        yield Reading(at, "io", "mount:/data", "server_write_bytes_total", 0.0)
        yield Reading(at, "io", "mount:/data", "server_read_seconds_total", files * (not local) / 50e6)


def _device(name: str, at: int, read: int, written: int) -> Iterator[Sample]:
    """A disk of 1 GB/s."""
    for what, value in (
        ("read_bytes_total", read), ("written_bytes_total", written),
        ("reads_total", read // 131072), ("writes_total", written // 131072),
        ("read_seconds_total", read / 2e8), ("write_seconds_total", written / 2e8),
        ("busy_seconds_total", (read + written) / 1e9), ("queue_seconds_total", (read + written) / 2e8),
    ):  # fmt: skip
        yield Reading(at, "io", f"device:{name}", what, float(value))


def _memory(watching: _Watched, tick: int) -> Iterator[Sample]:
    at = START + tick
    for process in watching.run.processes:
        yield Reading(at, "memory", f"pid:{process.pid}", "rss_bytes", 6e9 if process.rank is not None else 8e8)
        yield Reading(at, "memory", f"pid:{process.pid}", "swap_bytes", 0.0)
        yield Reading(at, "memory", f"pid:{process.pid}", "major_faults_total", 20.0)
        yield Reading(at, "memory", f"pid:{process.pid}", "minor_faults_total", 200_000.0)
    for name, value in (
        ("memory_total_bytes", 1e12), ("memory_available_bytes", 8e11), ("page_cache_bytes", 3e11),
        ("dirty_bytes", 1e7),
        ("swap_total_bytes", 0.0), ("swap_free_bytes", 0.0), ("swapped_in_bytes_total", 0.0),
        ("swapped_out_bytes_total", 0.0), ("major_faults_total", 1000.0), ("refaults_total", 0.0),
        ("memory_pressure_some_seconds_total", 0.0), ("memory_pressure_full_seconds_total", 0.0),
    ):  # fmt: skip
        yield Reading(at, "memory", "host", name, value)


def _network(watching: _Watched, tick: int) -> Iterator[Sample]:
    at = START + tick
    received = sum(size for one in watching.run.processes for time, size in one.received if time <= tick)
    files = sum(size for one in watching.run.processes for time, size in one.read if time <= tick)
    got = received + files + tick / S * 2e4
    exchange = watching.run.job.exchange
    if exchange is not None and exchange.link == "network":
        steps = sum(end <= tick for end in watching.run.ends_ns[0])
        got += steps * exchange.buckets * exchange.bucket_bytes
    yield Reading(at, "network", "interface:eth0", "received_bytes_total", 1e9 + got)
    yield Reading(at, "network", "interface:eth0", "sent_bytes_total", 1e8 + got / 50)
    yield Reading(at, "network", "interface:eth0", "received_packets_total", float(int(1e6 + got / 1400)))
    yield Reading(at, "network", "interface:eth0", "sent_packets_total", float(int(1e5 + got / 3000)))
