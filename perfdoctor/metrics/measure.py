"""Numbers measured from a recording: all of them, and those of the system probes: cores, memory, storage, network.

``docs/evidence.md`` lists every name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.calls import AWAITED_WORK, AWAITS_WORK
from perfdoctor.metrics.gpu import measure_gpus
from perfdoctor.metrics.health import measure_health
from perfdoctor.metrics.names import MB, Measured, Numbers, Trainers, of_process, put
from perfdoctor.metrics.neighbours import neighbour_cores
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.readings import Readings, total
from perfdoctor.timeline.threads import Floats, JobThreads, ThreadSeries, Times

# How often a worker polls its queue (torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL).
_POLL_S = 5.0


def measure_threads(recording: Recording, threads: JobThreads, trainers: Trainers) -> Measured:
    """Numbers from the samples of threads and the comings and goings of processes."""
    numbers: Numbers = {}
    by_trainer: dict[int, Numbers] = {pid: {} for pid, _ in trainers}
    _measure_trainers(numbers, threads, [pid for pid, _ in trainers])
    _measure_workers(numbers, by_trainer, threads, trainers)
    _measure_starts(numbers, recording, trainers)
    put(numbers, "runnable_threads", _grown(threads.by_tid.values(), with_delay=True))
    return Measured(numbers, by_trainer)


def _measure_trainers(numbers: Numbers, threads: JobThreads, pids: Sequence[int]) -> None:
    mains = [main for pid in pids if (main := threads.main(pid)) is not None]
    put(numbers, "trainer_running", _mean_rate((main, main.run_ns / NS_PER_S) for main in mains))
    put(numbers, "trainer_run_delay", _mean_rate((main, main.delay_ns / NS_PER_S) for main in mains))
    put(numbers, "trainer_switches", _mean_rate((main, main.voluntary) for main in mains))
    put(numbers, "trainer_major_faults", _mean_rate((main, main.major_faults) for main in mains))
    cores = _grown(thread for pid in pids for thread in threads.of(pid))
    put(numbers, "trainer_cores", None if cores is None else cores / len(pids))


def _measure_workers(numbers: Numbers, by_trainer: dict[int, Numbers], threads: JobThreads, trainers: Trainers) -> None:
    shares, busy = [], []
    for pid, workers in trainers:
        mains = [main for worker in workers if (main := threads.main(worker)) is not None]
        samples = [_samples(main) for main in mains]
        idle = np.concatenate([idle for _, idle in samples]) if samples else np.array([])
        if len(idle) < thresholds.WORKER_SAMPLES:
            continue
        shares.append(1 - float(idle.mean()))
        alive = _mean_alive([times for times, _ in samples if len(times)])
        if alive is not None:
            busy.append(shares[-1] * alive)
            put(by_trainer[pid], "workers_busy", busy[-1], of_process(pid))
        at_work = [idle for main, (_, idle) in zip(mains, samples, strict=True) if _comes_for_work(main)]
        _measure_balance(by_trainer[pid], pid, at_work)
    put(numbers, "worker_busy", _mean(shares))
    put(numbers, "workers_busy", _mean(busy))
    pids = [worker for _, workers in trainers for worker in workers]
    if pids:
        mains = [main for worker in pids if (main := threads.main(worker)) is not None]
        put(numbers, "worker_cores", _grown(thread for pid in pids for thread in threads.of(pid)))
        put(numbers, "worker_run_delay", _mean_rate((main, main.delay_ns / NS_PER_S) for main in mains))


def _measure_balance(numbers: Numbers, pid: int, idle: Sequence[Floats]) -> None:
    """How busy the busiest worker is and the next one."""
    shares = sorted((1 - float(one.mean()) for one in idle if len(one) >= thresholds.WORKER_SAMPLES), reverse=True)
    if len(shares) > 1:
        put(numbers, "busiest_worker", shares[0], of_process(pid))
        put(numbers, "next_busiest_worker", shares[1], of_process(pid))


def _comes_for_work(worker: ThreadSeries) -> bool:
    """Whether it has something to do all along: who waits for work polls its queue once in 5 s."""
    known = ~np.isnan(worker.voluntary)
    if known.sum() < 2:
        return False
    times_ns = worker.counted_ns[known]
    edges = np.linspace(times_ns[0], times_ns[-1], int(thresholds.WORKER_LIFE_PARTS) + 1)
    switches = np.diff(np.interp(edges, times_ns, worker.voluntary[known]))
    polls = seconds(float(edges[1] - edges[0])) / _POLL_S
    return bool((switches > thresholds.WORKER_SWITCHES + polls).all())


def _samples(worker: ThreadSeries) -> tuple[Times, Floats]:
    """When the main thread of a worker was seen well enough to know whether it had work, and 1 where it had none."""
    times, idle = [], []
    for time_ns, state, call, target in zip(
        worker.times_ns.tolist(), worker.states, worker.syscalls, worker.targets, strict=True
    ):
        if state not in "XZ" and (state != "S" or call is not None):
            times.append(time_ns)
            idle.append(state == "S" and call in AWAITS_WORK and target in AWAITED_WORK)
    return np.array(times, dtype=np.int64), np.array(idle, dtype=np.float64)


def _mean_alive(times_of_each: Sequence[Times]) -> float | None:
    """Mean number of workers over the time in which there were any: the sum of their lives by its length."""
    whole = max(times[-1] for times in times_of_each) - min(times[0] for times in times_of_each)
    lived = sum(int(times[-1] - times[0]) for times in times_of_each)
    return float(lived / whole) if whole > thresholds.SHORTEST_RATE_S * NS_PER_S else None


def _measure_starts(numbers: Numbers, recording: Recording, trainers: Trainers) -> None:
    """How often workers are started anew. Those found at the first sample were not started while we watched."""
    seen, ended_ns = recording.processes, recording.ended_ns
    known = [seen[worker] for _, workers in trainers for worker in workers if worker in seen]
    watched_s = seconds(recording.end_ns - recording.start_ns)
    if not known or watched_s < thresholds.SHORTEST_RATE_S:
        return
    began = [worker for worker in known if worker.started_ns >= recording.start_ns]
    put(numbers, "worker_starts", 60 * len(began) / watched_s)
    lives = [ended_ns[worker.pid] - worker.started_ns for worker in began if worker.pid in ended_ns]
    if lives:
        put(numbers, "worker_life", seconds(median(lives)))


def _grown(threads: Iterable[ThreadSeries], *, with_delay: bool = False) -> float | None:
    """Cores that some threads kept busy, or with their delay wanted, in the time in which any of them was sampled."""
    seen = [thread for thread in threads if len(thread.counted_ns)]
    if not seen:
        return None
    watched = max(thread.counted_ns[-1] for thread in seen) - min(thread.counted_ns[0] for thread in seen)
    if watched < thresholds.SHORTEST_RATE_S * NS_PER_S:
        return None
    used = sum(thread.run_ns[-1] - thread.run_ns[0] for thread in seen)
    if with_delay:
        used += sum(thread.delay_ns[-1] - thread.delay_ns[0] for thread in seen)
    return float(used / watched)


def _mean_rate(counters: Iterable[tuple[ThreadSeries, Floats]]) -> float | None:
    """Growth of a counter per second, as a mean over threads; None where none was read twice."""
    return _mean([rate for thread, values in counters if (rate := _rate(thread, values)) is not None])


def _rate(thread: ThreadSeries, values: Floats) -> float | None:
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    elapsed = int(thread.counted_ns[last] - thread.counted_ns[first])
    if elapsed < thresholds.SHORTEST_RATE_S * NS_PER_S:
        return None
    return float(values[last] - values[first]) * NS_PER_S / elapsed


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# Number, subject, counter that it is the rate of, and what to divide by for its unit.
_RATES = (
    ("job_cores", "job", "cpu_seconds_total", 1),
    ("host_cores_busy", "host", "busy_seconds_total", 1),
    ("stolen_cores", "host", "steal_seconds_total", 1),
    ("own_cores", "perfdoctor", "cpu_seconds_total", 1),
    ("cpu_pressure", "host", "cpu_pressure_some_seconds_total", 1),
    ("memory_pressure", "host", "memory_pressure_full_seconds_total", 1),
    ("swap_in", "host", "swapped_in_bytes_total", MB),
    ("swap_out", "host", "swapped_out_bytes_total", MB),
    ("refaults", "host", "refaults_total", 1),
    ("read_by_calls", "job", "read_call_bytes_total", MB),
    ("read_calls", "job", "read_calls_total", 1),
    ("read_from_storage", "job", "storage_read_bytes_total", MB),
    ("written_by_calls", "job", "write_call_bytes_total", MB),
    ("write_calls", "job", "write_calls_total", 1),
    ("written_to_storage", "job", "storage_write_bytes_total", MB),
)


def measure(recording: Recording, threads: JobThreads, trainers: Trainers) -> Measured:
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
    put(found.job, "worker_rss", _worker_memory(readings, [pid for _, workers in trainers for pid in workers]))
    found.job.update(measure_gpus(readings))
    found.job.update(measure_health(readings, trainers))
    return found


def _worker_memory(readings: Readings, pids: Sequence[int]) -> float | None:
    """What one loader worker has in memory at most, pages included that it shares with others; the median of them."""
    sizes = [size for pid in pids if (size := readings.maximum(f"pid:{pid}", "rss_bytes")) is not None]
    return median(sizes) / MB if sizes else None


def measure_system(readings: Readings, trainer_pids: Sequence[int]) -> Numbers:
    """Numbers from the readings of the cpu, memory, io and network probes (docs/readings.md)."""
    numbers: Numbers = {}
    for name, subject, counter, unit in _RATES:
        put(numbers, name, _divided(readings.rate(subject, counter), unit))
    put(numbers, "neighbour_cores", neighbour_cores(readings))
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
    put(numbers, "swapped", _divided(swapped, MB))
    put(numbers, "trainer_rss", _divided(resident, MB))
    put(numbers, "shm_free", _divided(readings.mean("mount:/dev/shm", "free_bytes"), MB))
    put(numbers, "memory_available", _divided(readings.mean("host", "memory_available_bytes"), MB))


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
        put(numbers, "device_read", _divided(readings.rate(device, "read_bytes_total"), MB), name)
        put(numbers, "device_written", _divided(readings.rate(device, "written_bytes_total"), MB), name)
        put(numbers, "read_latency", None if latency is None else 1e3 * latency, name)
    _measure_throttles(numbers, readings)
    server = total(readings.rate(mount, "server_read_bytes_total") for mount in readings.subjects("mount:"))
    put(numbers, "read_from_server", _divided(server, MB))


# What a control group lets through, its limit for that, and the number that says how much of it is used.
_THROTTLES = (
    ("read_bytes_total", "read_limit_bytes_per_second", "read_limit_used"),
    ("reads_total", "read_limit_per_second", "reads_limit_used"),
    ("written_bytes_total", "written_limit_bytes_per_second", "written_limit_used"),
    ("writes_total", "write_limit_per_second", "writes_limit_used"),
)


def _measure_throttles(numbers: Numbers, readings: Readings) -> None:
    """How much of what control groups may read and write is used, of each limit where that is most."""
    for passed, limit, name in _THROTTLES:
        used = [
            (rate / most, subject.split(":")[1])
            for subject in readings.subjects("throttle:")
            if (rate := readings.rate(subject, passed)) is not None and (most := readings.mean(subject, limit))
        ]
        if used:
            share, device = max(used)
            put(numbers, name, share, device)


def _measure_network(numbers: Numbers, readings: Readings) -> None:
    """All interfaces and fabric ports together; what goes through a port counts there, not at its interface (IPoIB).

    On one host ranks talk through ``lo``, where what is sent is also received.
    """
    ports = readings.subjects("fabric:")
    known = [one for one in readings.subjects("interface:") if not ports or not readings.fact(one, "over_fabric")]
    interfaces = [*known, *ports]

    def rate(counter: str) -> float | None:
        return total(readings.rate(interface, counter) for interface in interfaces)

    received, packets = rate("received_bytes_total"), rate("received_packets_total")
    put(numbers, "received", _divided(received, MB))
    if received:
        here = readings.rate("interface:lo", "received_bytes_total")
        put(numbers, "loopback", None if here is None else here / received)
    put(numbers, "sent", _divided(rate("sent_bytes_total"), MB))
    put(numbers, "packets", packets)
    if received is not None and packets:
        put(numbers, "bytes_per_packet", received / packets)
    put(numbers, "retransmits", readings.ratio("network", "tcp_retransmits_total", "tcp_segments_sent_total"))


def _divided(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
