"""The health of host, GPUs and fabric: what is slower or more faulty than it has to be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import PAGE_BYTES
from perfdoctor.knowledge.hardware import PCIE_GT_PER_S
from perfdoctor.metrics.gpu import job_gpus
from perfdoctor.metrics.names import MB, Numbers, Trainers, put
from perfdoctor.timeline.readings import Readings, total

_WAITS_FOR_REPAIR = ("row_remapping_pending", "row_remapping_failed", "page_retirement_pending")
_NVLINK_ERRORS = ("nvlink_replays_total", "nvlink_crc_errors_total")
_FABRIC_ERRORS = ("symbol_errors_total", "link_downs_total", "link_recoveries_total", "resent_packets_total")
_NEAR = 10  # a node's distance from itself (ACPI's SLIT)


def measure_health(readings: Readings, trainers: Trainers) -> Numbers:
    """Numbers on the health of what the job runs on; each absent where it was not read, or does not apply."""
    numbers: Numbers = {}
    gpus = job_gpus(readings)
    _measure_pcie(numbers, readings, gpus)
    _measure_nvlink(numbers, readings, gpus)
    _measure_faults(numbers, readings, gpus)
    _measure_fabric(numbers, readings)
    _measure_nodes(numbers, readings, [pid for pid, _ in trainers], gpus)
    _measure_cores(numbers, readings)
    _measure_memory(numbers, readings)
    return numbers


def _measure_pcie(numbers: Numbers, readings: Readings, gpus: Iterable[str]) -> None:
    """The GPU whose link is narrowest; a link that is idle slows down to save power, so only GPUs at work count."""
    links = [(link, gpu) for gpu in gpus if (link := _pcie_link(readings, gpu)) is not None]
    if links:
        put(numbers, "pcie_link", *min(links))
    put(numbers, "pcie_replays", total(readings.rate(gpu, "pcie_replays_total") for gpu in gpus))


def _pcie_link(readings: Readings, gpu: str) -> float | None:
    """The bandwidth that a GPU's link had at work, as a fraction of the most it can have; None if not seen at work."""
    most_width, most_generation = (readings.maximum(gpu, f"pcie_{what}_max") for what in ("width", "generation"))
    busy_ns, busy = readings.over_time(gpu, "busy_fraction")
    times_ns, widths = readings.over_time(gpu, "pcie_width")
    generations_ns, generations = readings.over_time(gpu, "pcie_generation")
    if not most_width or most_generation is None or not len(busy_ns) or not len(generations_ns):
        return None
    at_work = np.interp(times_ns, busy_ns, busy) > 0
    speeds = [PCIE_GT_PER_S.get(int(one), 0.0) for one in np.interp(times_ns, generations_ns, generations)]
    found = [width * speed for width, speed, works in zip(widths, speeds, at_work, strict=True) if works and speed]
    most = most_width * PCIE_GT_PER_S.get(int(most_generation), 0.0)
    return min(1.0, max(found) / most) if found and most else None


def _measure_nvlink(numbers: Numbers, readings: Readings, gpus: Iterable[str]) -> None:
    """Links that other GPUs of the job have up, and errors of those that are."""
    up = [links for gpu in gpus if (links := readings.mean(gpu, "nvlinks_active")) is not None]
    if len(up) > 1 and max(up):
        put(numbers, "nvlinks_down", 1 - min(up) / max(up))
    put(numbers, "nvlink_errors", total(readings.rate(gpu, name) for gpu in gpus for name in _NVLINK_ERRORS))


def _measure_faults(numbers: Numbers, readings: Readings, gpus: Iterable[str]) -> None:
    """Memory that waits for repair, and Xid errors, with their numbers."""
    waiting = [readings.maximum(gpu, name) for gpu in gpus for name in _WAITS_FOR_REPAIR]
    put(numbers, "gpu_repairs_pending", total(waiting))
    kinds = sorted({int(xid) for gpu in gpus for xid in readings.over_time(gpu, "xid")[1]})
    about = f" ({', '.join(map(str, kinds))})" if kinds else ""
    put(numbers, "xid_errors", total(readings.maximum(gpu, "xid_errors_total") for gpu in gpus), about)


def _measure_fabric(numbers: Numbers, readings: Readings) -> None:
    ports = readings.subjects("fabric:")
    received = total(readings.rate(port, "received_bytes_total") for port in ports)
    put(numbers, "fabric_received", None if received is None else received / MB)
    links = [(link, port) for port in ports if (link := _fabric_link(readings, port, ports)) is not None]
    if links:
        put(numbers, "fabric_link", *min(links))
    put(numbers, "fabric_errors", total(readings.rate(port, name) for port in ports for name in _FABRIC_ERRORS))


def _fabric_link(readings: Readings, port: str, ports: Iterable[str]) -> float | None:
    """The speed of a port that carries something, as a fraction of the fastest one on adapters of the same make.

    None where nothing goes over it, or no other one shows what it could have: most adapters negotiate a lower speed.
    """
    kind = [readings.fact(port, name) for name in ("board", "link_layer")]
    alike = [one for one in ports if kind[0] and [readings.fact(one, name) for name in ("board", "link_layer")] == kind]
    speeds = [float(speed) for one in alike if (speed := readings.fact(one, "link_bits_per_second")) is not None]
    own = readings.fact(port, "link_bits_per_second")
    carried = sum(readings.rate(port, f"{way}_bytes_total") or 0.0 for way in ("received", "sent"))
    return float(own) / max(speeds) if own and carried and len(speeds) > 1 else None


def _measure_nodes(numbers: Numbers, readings: Readings, pids: Iterable[int], gpus: Iterable[str]) -> None:
    """How long trainers' main threads run on another NUMA node than their GPU's, and how far that is."""
    away, distances = [], []
    for pid in pids:
        home = _node_of_gpus(readings, pid, gpus)
        ran_on = readings.over_time(f"pid:{pid}", "numa_node")[1]
        if home is None or not len(ran_on):
            continue
        elsewhere = [int(node) for node in ran_on if int(node) != home]
        away.append(len(elsewhere) / len(ran_on))
        distances += [far / _NEAR for node in set(elsewhere) if (far := _distance(readings, home, node)) is not None]
    put(numbers, "far_from_gpu", sum(away) / len(away) if away else None)
    put(numbers, "gpu_distance", max(distances, default=None))


def _node_of_gpus(readings: Readings, pid: int, gpus: Iterable[str]) -> int | None:
    """The node of a process's GPUs, or else of the job's; None where it is unknown or not a single one."""
    own = [gpu for gpu in gpus if readings.over_time(f"{gpu}/pid:{pid}", "memory_bytes")[1]]
    nodes = {readings.fact(gpu, "numa_node") for gpu in own or gpus}
    node = nodes.pop() if len(nodes) == 1 else None
    return None if node is None else int(node)


def _distance(readings: Readings, node: int, other: int) -> float | None:
    """As the kernel lists it: one number for each node, in their order."""
    nodes = sorted(int(subject.removeprefix("node:")) for subject in readings.subjects("node:"))
    listed = (readings.fact(f"node:{node}", "distances") or "").split()
    return float(listed[nodes.index(other)]) if other in nodes and len(listed) == len(nodes) else None


def _measure_cores(numbers: Numbers, readings: Readings) -> None:
    """Clocks below what the cores guarantee, heat, and what a hypervisor takes away."""
    clock, nominal = readings.mean("host", "core_clock_hertz"), readings.fact("host", "core_clock_nominal_hertz")
    if clock is not None and nominal is not None:
        put(numbers, "core_clock_deficit", max(0.0, 1 - clock / float(nominal)))
    hot = [readings.rate(core, "heat_limited_seconds_total") for core in readings.subjects("core:")]
    put(numbers, "heat_limited_cores", max((one for one in hot if one is not None), default=None))
    stolen, busy = (readings.rate("host", f"{what}_seconds_total") for what in ("steal", "busy"))
    if stolen is not None and busy is not None and stolen + busy > 0:
        put(numbers, "stolen_share", stolen / (stolen + busy))


def _measure_memory(numbers: Numbers, readings: Readings) -> None:
    """Of the job's control groups the innermost says what it waits for, the others hold other jobs too."""
    groups = [group for group in readings.subjects("cgroup:") if group != "cgroup:/"]
    inner = max(groups, key=len, default="")
    put(numbers, "memory_stalled", readings.rate(inner, "memory_pressure_some_seconds_total"))
    put(numbers, "limit_hits", total(readings.rate(group, "limit_hits_total") for group in groups))
    reclaimed = readings.rate(inner, "reclaimed_bytes_total")
    put(numbers, "reclaimed", None if reclaimed is None else reclaimed / MB)
    again, fetched = readings.rate(inner, "refaults_total"), readings.rate("job", "storage_read_bytes_total")
    # Where the group reads more again than the job reads at all, others are in it too, and whose it is is not known.
    part = again * PAGE_BYTES / fetched if again is not None and fetched else None
    if part is not None and part <= 1 + thresholds.COUNTED_APART:
        put(numbers, "read_again", min(1.0, part))
    put(numbers, "compaction_stalls", readings.rate("host", "compaction_stalls_total"))
