"""Who is on the CPUs while a runnable thread of the job is not."""

from __future__ import annotations

import numpy as np

from perfdoctor.causes import BANDWIDTH, CONTENTION, GIL_CONTENTION, INPUT_PREPROCESSING, THROTTLED
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.counters import Counters
from perfdoctor.timeline.processes import ProcessRoles
from perfdoctor.timeline.thread_kinds import ThreadKinds
from perfdoctor.timeline.threads import Threads

# Who has the cores that a runnable thread lacks, and what that makes the cause.
_CAUSES = {
    "supplier": INPUT_PREPROCESSING,
    "GIL holder": GIL_CONTENTION,
    "collective": BANDWIDTH,
    "other": CONTENTION,
}
_BUCKET_NS = NS_PER_S // 10
_SPAN_NS = 3 * NS_PER_S // 20


class CpuContention:
    """Answers for one recording.

    Args:
        cores: how many the job may use.
        reachable: how many perfdoctor could use; 0 if unknown. A container confines both, the job's own mask not.
        kinds: what each thread is to the trainer.
    """

    def __init__(
        self,
        threads: Threads,
        processes: ProcessRoles,
        kinds: ThreadKinds,
        counters: Counters,
        cores: float,
        reachable: float = 0.0,
    ) -> None:
        self._threads, self._processes, self._kinds, self._counters = threads, processes, kinds, counters
        self._cores = cores
        self._quotas = [
            (throttled, periods)
            for group in counters.subjects("throttled_periods_total")
            if (throttled := counters.get(group, "throttled_periods_total"))
            and (periods := counters.get(group, "quota_periods_total"))
        ]
        masks = [counters.get(f"pid:{trainer.pid}", "allowed_cores") for trainer in processes.trainers]
        widest = max((float(np.median(mask.values)) for mask in masks if mask is not None), default=reachable)
        self._by_mask = cores == widest < reachable  # and no quota is stricter
        self._known: dict[int, Amounts[str]] = {}

    def delay_parts(self, time_ns: int) -> dict[str, float]:
        """Why a runnable thread does not run: cause to weight.

        The quota, if it stopped the group; else whoever is on the CPUs instead: those that prepare input, whose work is
        then the cause; a Python thread of the trainer that serves nobody, which takes the GIL as well;
        threads of a collective, which run beside the backward pass; or other threads of the job and neighbours. Cores
        that were idle are nobody's fault but the scheduler's: their weight is missing in the sum. Where the job's mask
        leaves out cores of the host that are idle, not the work of suppliers is the cause, but that they must share
        these few.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        key = time_ns // _BUCKET_NS
        if key not in self._known:
            self._known[key] = self._occupants(time_ns)
        occupants = self._known[key].fractions()
        causes = {cause: (1 - stopped) * occupants.get(kind, 0.0) for kind, cause in _CAUSES.items()}
        return {THROTTLED: stopped, **causes}

    def throttled_fraction(self, time_ns: int) -> float:
        """Fraction of quota periods around an instant in which the job's control group was stopped."""
        span = (time_ns - NS_PER_S / 2, time_ns + NS_PER_S / 2)
        ran = [(throttled.growth(*span), periods.growth(*span)) for throttled, periods in self._quotas]
        return max((stopped / periods for stopped, periods in ran if periods > 0), default=0.0)

    def _occupants(self, time_ns: int) -> Amounts[str]:
        """Cores used by suppliers, lock holders and collectives, by everybody else but a trainer itself, by nobody."""
        used, wanted = Amounts[str](), Amounts[str]()
        for thread in self._threads.by_tid.values():
            running, delayed = thread.use(time_ns - _SPAN_NS, time_ns + _SPAN_NS)
            kind = self._kinds.of(thread)
            used[kind] += running
            wanted[kind] += running + delayed
        unused = max(0.0, self._cores - used.total)
        elsewhere = self._counters.get("host", "neighbours_seconds_total")
        neighbours = unused
        if elsewhere is not None:
            neighbours = min(unused, elsewhere.growth(time_ns - NS_PER_S, time_ns + NS_PER_S) / 2)
        # A pool that fits on the cores together with its main thread does not crowd it out; a larger one does.
        demand = wanted["trainer"] + wanted["pool"]
        crowd = max(0.0, 1 - self._cores / demand) if demand else 0.0
        others = used["other"] + neighbours + used["pool"] * crowd
        if (ranks := len(self._processes.trainers)) > 1:
            # Ranks crowd each other out where there are more of them than cores, or where their pools fill these.
            others += used["trainer"] * (1.0 if ranks > self._cores else crowd)
        if self._idle_outside(time_ns, max(0.0, unused - neighbours)) >= thresholds.IDLE_CORES_LEFT_OUT:
            others += used.pop("supplier", 0.0)
        kept = {kind: used[kind] for kind in ("supplier", "GIL holder", "collective")}
        idle = max(1e-3, unused - neighbours - thresholds.SEEMINGLY_IDLE_CORES)
        return Amounts({**kept, "other": others, "nobody": idle})

    def _idle_outside(self, time_ns: int, idle_inside: float) -> float:
        """Idle cores of the host that the job's mask leaves out."""
        idle = self._counters.get("host", "idle_seconds_total")
        if idle is None or not self._by_mask:
            return 0.0
        return idle.growth(time_ns - NS_PER_S, time_ns + NS_PER_S) / 2 - idle_inside
