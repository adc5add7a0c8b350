"""Who is on the CPUs while a runnable thread of the job is not."""

from __future__ import annotations

from collections.abc import Callable

from perfdoctor.amounts import Amounts
from perfdoctor.clock import NS_PER_S
from perfdoctor.counters import Counters
from perfdoctor.roles import Roles
from perfdoctor.timelines import Timeline, Timelines

# Cores that seem idle although they are not: perfdoctor's own use, and the coarse clock of other processes' times.
MARGIN = 0.2
_BUCKET_NS = NS_PER_S // 10
_SPAN_NS = 3 * NS_PER_S // 20


class Occupancy:
    """Answers for one recording.

    Args:
        cores: how many the job may use.
        python_threads: the threads of a process that run Python code.
    """

    def __init__(
        self,
        timelines: Timelines,
        roles: Roles,
        counters: Counters,
        cores: float,
        python_threads: Callable[[int], set[int]],
    ) -> None:
        self._timelines, self._roles, self._counters = timelines, roles, counters
        self._cores, self._python_threads = cores, python_threads
        self._quotas = [
            (throttled, periods)
            for group in counters.subjects("throttled_periods_total")
            if (throttled := counters.get(group, "throttled_periods_total"))
            and (periods := counters.get(group, "quota_periods_total"))
        ]
        self._known: dict[int, tuple[float, float, float]] = {}

    def delay_parts(self, time_ns: int) -> dict[str, float]:
        """Why a runnable thread does not run: cause to weight.

        The quota, if it stopped the group; else whoever is on the CPUs instead: those that prepare input, whose work is
        then the cause, or other threads of the job and neighbours. Cores that were idle are nobody's fault but the
        scheduler's: their weight is missing in the sum.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        key = time_ns // _BUCKET_NS
        if key not in self._known:
            self._known[key] = self._occupants(time_ns)
        suppliers, others, idle = self._known[key]
        total = suppliers + others + idle
        return {
            "cpu.throttled": stopped,
            "cpu.input_preprocessing": (1 - stopped) * suppliers / total,
            "cpu.contention": (1 - stopped) * others / total,
        }

    def throttled_fraction(self, time_ns: int) -> float:
        """Fraction of quota periods around an instant in which the job's control group was stopped."""
        span = (time_ns - NS_PER_S / 2, time_ns + NS_PER_S / 2)
        ran = [(throttled.growth(*span), periods.growth(*span)) for throttled, periods in self._quotas]
        return max((stopped / periods for stopped, periods in ran if periods > 0), default=0.0)

    def _occupants(self, time_ns: int) -> tuple[float, float, float]:
        """Cores used by those who prepare input, by everybody else but a trainer itself, and by nobody."""
        used = Amounts[str]()
        for thread in self._timelines.threads.values():
            used[self._kind_of(thread)] += thread.use(time_ns - _SPAN_NS, time_ns + _SPAN_NS)[0]
        unused = max(0.0, self._cores - used.total)
        elsewhere = self._counters.get("host", "neighbours_seconds_total")
        neighbours = unused
        if elsewhere is not None:
            neighbours = min(unused, elsewhere.growth(time_ns - NS_PER_S, time_ns + NS_PER_S) / 2)
        others = used["other"] + neighbours
        if len(self._roles.trainers) > 1:
            # Ranks that crowd each other out are each other's competition.
            others += used["trainer"]
        return used["supplier"], others, max(1e-3, unused - neighbours - MARGIN)

    def _kind_of(self, thread: Timeline) -> str:
        """Whether a thread trains, prepares input (workers, other helpers, a trainer's Python threads), or neither."""
        process = self._roles.processes.get(thread.pid)
        is_main = thread.tid == thread.pid
        if process is not None and process.role == "trainer":
            if is_main:
                return "trainer"
            return "supplier" if thread.tid in self._python_threads(thread.pid) else "other"
        return "supplier" if process is not None and process.trainer_pid and is_main else "other"
