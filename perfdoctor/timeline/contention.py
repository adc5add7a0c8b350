"""Who is on the CPUs while a thread waits for one."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from perfdoctor.causes import BANDWIDTH, CONTENTION, GIL_CONTENTION, INPUT_PREPROCESSING, THROTTLED
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.affinity import Affinity
from perfdoctor.timeline.processes import ProcessRoles
from perfdoctor.timeline.readings import Counters
from perfdoctor.timeline.thread_kinds import Kind, ThreadKinds
from perfdoctor.timeline.threads import Floats, JobThreads

# Who has the cores that a runnable thread lacks, and what that makes the cause.
_CAUSES = {
    "supplier": INPUT_PREPROCESSING,
    "GIL holder": GIL_CONTENTION,
    "collective": BANDWIDTH,
    "other": CONTENTION,
}
# How busy threads are is asked ten times a second, each time over half as long again; judgement.
_BUCKET_NS = NS_PER_S // 10
_SPAN_NS = 3 * NS_PER_S // 20


class CpuContention:
    """Who is on the CPUs while a runnable thread of the job is not.

    Args:
        span: from when to when the job was watched, in ns.
        cores: how many the job may use.
        reachable: how many perfdoctor could use; 0 if unknown. A container confines both, the job's own mask not.
        kinds: what each thread is to the trainer.
        affinity: on which cores each may run.
    """

    def __init__(
        self,
        threads: JobThreads,
        processes: ProcessRoles,
        kinds: ThreadKinds,
        counters: Counters,
        affinity: Affinity,
        *,
        span: tuple[int, int],
        cores: float,
        reachable: float = 0.0,
    ) -> None:
        self._processes, self._kinds, self._counters, self._affinity = processes, kinds, counters, affinity
        self._cores, self._reachable = cores, reachable
        self._quotas = [
            (throttled, periods)
            for group in counters.subjects("throttled_periods_total")
            if (throttled := counters.get(group, "throttled_periods_total"))
            and (periods := counters.get(group, "quota_periods_total"))
            and counters.growth(group, "throttled_periods_total") > 0
        ]
        quotas = [quota for group in counters.subjects("quota_cores") if (quota := counters.get(group, "quota_cores"))]
        self._quota = min((float(np.median(one.values)) for one in quotas), default=math.inf)
        self._masked = any(counters.get(f"pid:{trainer.pid}", "allowed_cores") for trainer in processes.trainers)
        self._wanting = [thread for thread in threads.by_tid.values() if thread.wanted_cpu]
        self._first_bucket = span[0] // _BUCKET_NS
        buckets = np.arange(self._first_bucket, span[1] // _BUCKET_NS + 1, dtype=np.float64)
        self._buckets_ns = (buckets + 0.5) * _BUCKET_NS
        self._found: dict[frozenset[int], dict[str, Floats]] = {}

    def delay_parts(self, pid: int, time_ns: int) -> dict[str, float]:
        """Why a runnable thread of a process does not run: cause to weight.

        The quota, if it stopped the group; else whoever is on the CPUs instead: those that prepare input, whose work is
        then the cause; a Python thread of the trainer that serves nobody, which takes the GIL as well;
        threads of a collective, which run beside the backward pass; or other threads of the job and neighbours. Cores
        that were idle are nobody's fault but the scheduler's: their weight is missing in the sum. Where the job's mask
        leaves out cores of the host that are idle, not the work of suppliers is the cause, but that they must share
        these few. What perfdoctor takes is nobody's fault either: without it, the thread would have run.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        bucket = min(max(0, time_ns // _BUCKET_NS - self._first_bucket), len(self._buckets_ns) - 1)
        occupants = self._occupants(self._affinity.of_main(pid))
        causes = {cause: (1 - stopped) * float(occupants[kind][bucket]) for kind, cause in _CAUSES.items()}
        return {THROTTLED: stopped, **causes}

    def throttled_fraction(self, time_ns: int) -> float:
        """Fraction of quota periods around an instant in which the job's control group was stopped."""
        span = (time_ns - NS_PER_S / 2, time_ns + NS_PER_S / 2)
        ran = [(throttled.growth(*span), periods.growth(*span)) for throttled, periods in self._quotas]
        return max((stopped / periods for stopped, periods in ran if periods > 0), default=0.0)

    def _occupants(self, mask: frozenset[int]) -> dict[str, Floats]:
        """Fractions of some cores that are used by suppliers, lock holders and collectives, and by everybody else but a
        trainer itself, for each bucket of time; the rest is used by perfdoctor or by nobody.

        Args:
            mask: the cores; where it is empty, those of the job.
        """
        if mask not in self._found:
            self._found[mask] = self._find_occupants(mask)
        return self._found[mask]

    def _find_occupants(self, mask: frozenset[int]) -> dict[str, Floats]:
        cores = min(self._cores, len(mask)) if mask else self._cores
        used, wanted = self._by_kind(mask)
        unused = np.maximum(0.0, cores - sum(used.values()))
        ours = np.minimum(unused, self._cores_of("perfdoctor", "cpu_seconds_total", default=0.0))
        unused = unused - ours
        neighbours = np.minimum(unused, self._cores_of("host", "neighbours_seconds_total", default=math.inf))
        # A pool that fits on the cores together with its main thread does not crowd it out; a larger one does.
        demand = np.maximum(wanted["trainer"] + wanted["pool"], cores)
        crowd = 1 - cores / demand
        others = used["other"] + neighbours + used["pool"] * crowd
        if (ranks := self._ranks_on(mask)) > 1:
            # Ranks crowd each other out where there are more of them than cores, or where their pools fill these.
            others = others + used["trainer"] * (1.0 if ranks > cores else crowd)
        idle_outside = self._idle_outside(cores, np.maximum(0.0, unused - neighbours)) >= thresholds.IDLE_CORES_LEFT_OUT
        others = others + np.where(idle_outside, used["supplier"], 0.0)
        supplying = np.where(idle_outside, 0.0, used["supplier"])
        idle = np.maximum(1e-3, unused - neighbours - thresholds.SEEMINGLY_IDLE_CORES)
        kept = {**used, "supplier": supplying, "other": others}
        found = {kind: kept[kind] for kind in _CAUSES}
        whole = sum(found.values()) + ours + idle
        return {kind: cores / whole for kind, cores in found.items()}

    def _by_kind(self, mask: frozenset[int]) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """What threads of each kind use of some cores, and want of them, for each bucket of time."""
        used, wanted = ({kind: np.zeros(len(self._buckets_ns)) for kind in get_args(Kind)} for _ in range(2))
        for thread in self._wanting:
            if not (part := _part_on(mask, self._affinity.of(thread))):
                continue
            running, delayed = thread.use_around(self._buckets_ns, _SPAN_NS)
            kind = self._kinds.of(thread)
            used[kind] += part * running
            wanted[kind] += part * (running + delayed)
        return used, wanted

    def _ranks_on(self, mask: frozenset[int]) -> float:
        """How many trainers run on some cores."""
        return sum(_part_on(mask, self._affinity.of_main(trainer.pid)) for trainer in self._processes.trainers)

    def _cores_of(self, subject: str, counter: str, *, default: float) -> Floats:
        """Cores that a counter of CPU seconds stands for around each bucket, or a default where it was not read."""
        seconds = self._counters.get(subject, counter)
        if seconds is None:
            return np.full(len(self._buckets_ns), default)
        return seconds.growth_around(self._buckets_ns, NS_PER_S) / 2

    def _idle_outside(self, cores: float, idle_inside: Floats) -> Floats:
        """Idle cores of the host that a mask of so many cores leaves out, for each bucket of time."""
        by_mask = self._masked and cores < min(self._reachable, self._quota)
        if not by_mask or self._counters.get("host", "idle_seconds_total") is None:
            return np.zeros(len(self._buckets_ns))
        return self._cores_of("host", "idle_seconds_total", default=0.0) - idle_inside


def _part_on(mask: frozenset[int], own: frozenset[int]) -> float:
    """Which part of its time a thread is on some cores: it is on each of its own for as long."""
    return len(own & mask) / len(own) if own and mask else 1.0
