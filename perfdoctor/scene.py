"""The whole job at any instant: threads, stacks, interpreters and the CPU, put together from one recording."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfdoctor.amounts import Amounts
from perfdoctor.clock import NS_PER_S
from perfdoctor.phases import TRAINING_PHASES, UNKNOWN, Place, holds_lock_frame
from perfdoctor.recording import Recording
from perfdoctor.roles import Process, Roles, assign_roles
from perfdoctor.samples import InterpreterSample, PythonThread, Reading
from perfdoctor.stacks import Stacks, Track
from perfdoctor.timelines import GONE, Moment, Timeline, Timelines

# A stack belongs to an instant if it was seen within this time of it: several samples of py-spy at its slowest rate.
STACK_REACH_NS = 400_000_000
SLEEPS = frozenset(("nanosleep", "clock_nanosleep"))
LOCK_CALLS = frozenset(("flock", "fcntl", "semtimedop"))
LOCK_WINDOW_NS = 250_000_000
# Mean number of workers that queue for a lock below which the lock is not to blame.
MIN_QUEUE = 0.15
IDLE_USE = 0.02
# Less than this per second from swap is background noise of the host (a page is 4 KiB).
SWAP_BYTES_PER_S = 256 * 1024
# A process that writes more than this per second to storage saves state; logs are kilobytes.
MIN_WRITTEN_PER_S = 10e6
# Major faults per second below which they are start-up noise (notes: a mapped dataset takes 20 with read-ahead, 1,000
# without).
MIN_FAULTS_PER_S = 10.0
# Cores that seem idle although they are not: perfdoctor's own use, and the coarse clock of other processes' times.
MARGIN = 0.2
# py-spy's mean time between two samples of a process that trains (it draws each anew, exponentially distributed).
STACK_PERIOD_NS = 50_000_000
# A wake-up that costs less than this fraction of the wanted CPU time is the scheduler's everyday business.
MIN_DELAY = 0.02
# Calls in which a thread waits for somebody to send or signal something.
WAITING_CALLS = frozenset((
    "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "read", "recvfrom", "recvmsg",
    "accept", "accept4", "wait4", "waitid", "futex",
))  # fmt: skip


@dataclass
class Counter:
    """A counter over time."""

    times_ns: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]

    def growth(self, from_ns: float, to_ns: float) -> float:
        """How much it grew in a span."""
        return float(np.diff(np.interp([from_ns, to_ns], self.times_ns, self.values))[0])


@dataclass
class Scene:
    """Everything that following a wait needs to know about an instant."""

    recording: Recording
    stacks: Stacks
    timelines: Timelines
    roles: Roles
    cores: float
    _tracks: dict[int, Track | None] = field(default_factory=dict)
    _locked: dict[tuple[int, int], float] = field(default_factory=dict)
    _kernel_work: dict[tuple[int, int], tuple[float, str]] = field(default_factory=dict)
    _counters: dict[tuple[str, str], Counter] = field(default_factory=dict)
    _python: dict[int, set[int]] = field(default_factory=dict)
    _quotas: list[tuple[Counter, Counter]] = field(default_factory=list)
    _swapped_in: Counter | None = None
    _neighbours: Counter | None = None
    _occupants: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, recording: Recording) -> Scene:
        """Reads a recording."""
        stacks = Stacks.read(recording)
        timelines = Timelines(recording)
        roles = assign_roles(recording, stacks, timelines)
        readings = recording.table(Reading)
        usable = readings[(readings["name"] == "usable_cores") & readings["value"].notna()]
        cores = float(usable["value"].median()) if len(usable) else float(recording.meta.get("cores", "1"))
        scene = cls(recording, stacks, timelines, roles, cores)
        groups = readings[readings["name"] == "throttled_periods_total"]["subject"].unique()
        for group in groups:
            scene._quotas.append(
                (
                    scene._counter(group, "throttled_periods_total"),
                    scene._counter(group, "quota_periods_total"),
                )
            )
        if (readings["name"] == "neighbours_seconds_total").any():
            scene._neighbours = scene._counter("host", "neighbours_seconds_total")
        if (readings["name"] == "swapped_in_bytes_total").any():
            scene._swapped_in = scene._counter("host", "swapped_in_bytes_total")
        return scene

    def _counter(self, subject: str, name: str) -> Counter:
        if (subject, name) not in self._counters:
            readings = self.recording.table(Reading)
            rows = readings[(readings["subject"] == subject) & (readings["name"] == name)].dropna(
                subset=["value"]
            )
            times, values = rows["time_ns"].to_numpy(np.float64), rows["value"].to_numpy(np.float64)
            self._counters[subject, name] = (
                Counter(times, values) if len(rows) else Counter(np.zeros(1), np.zeros(1))
            )
        return self._counters[subject, name]

    def main_at(self, pid: int, time_ns: int) -> Moment:
        """The main thread of a process at an instant."""
        timeline = self.timelines.main(pid)
        return timeline.at(time_ns) if timeline is not None else GONE

    def place_at(self, pid: int, time_ns: int, moment: Moment) -> Place:
        """Where in the code a process's main thread is.

        Stacks and states are sampled by different programs, so the nearest stack that *fits* the state is taken: a
        thread
        that sleeps in a read cannot be where the stack shows arithmetic, and one that runs is in no blocking call.
        """
        number = self.stack_at(pid, time_ns, moment)
        return UNKNOWN if number is None else self.stacks.places[number]

    def stack_at(self, pid: int, time_ns: int, moment: Moment) -> int | None:
        """Number of the stack that goes with a moment; None if there is none near."""
        if pid not in self._tracks:
            self._tracks[pid] = self.stacks.main_track(pid)
        track = self._tracks[pid]
        if track is None:
            return None
        nearest: int | None = None
        for index in _nearest_first(track.times_ns, time_ns):
            number = int(track.stacks[index])
            if number < 0:
                continue
            nearest = number if nearest is None else nearest
            if _fits(self.stacks.places[number], moment, self.roles.world_size > 1):
                return number
        return nearest

    def stack_changes_per_s(self, pid: int) -> float:
        """How often per second a process's main thread was seen in another stack than before."""
        track = self.stacks.main_track(pid)
        if track is None or len(track.times_ns) < 2:
            return 0.0
        return (len(track.times_ns) - 1) * NS_PER_S / float(track.times_ns[-1] - track.times_ns[0])

    def queues_for_lock(self, pid: int, time_ns: int, moment: Moment) -> bool:
        """Whether a main thread waits for a lock of the job's own inside its work: multiprocessing's, or a file's."""
        if moment.syscall not in ("futex", *LOCK_CALLS):
            return False
        number = self.stack_at(pid, time_ns, moment)
        if number is None:
            return moment.syscall in LOCK_CALLS
        if self.stacks.places[number].detail in ("worker idle", "hand over", "worker start"):
            return False
        return moment.syscall in LOCK_CALLS or holds_lock_frame(self.stacks.frames[number])

    def lock_part(self, trainer_pid: int, time_ns: int) -> float:
        """How much of the workers' pace a lock takes at an instant: 1 minus how many of them run over how many could.

        Queues for short locks form and vanish within a sample, so the mean over some ticks is taken.
        """
        key = (trainer_pid, time_ns // LOCK_WINDOW_NS)
        if key not in self._locked:
            self._locked[key] = self._lock_part_at(trainer_pid, time_ns)
        return self._locked[key]

    def _lock_part_at(self, trainer_pid: int, time_ns: int) -> float:
        queueing = running = active = 0.0
        for worker in self.roles.workers_of(trainer_pid):
            timeline = self.timelines.main(worker.pid)
            if timeline is None or not worker.alive_at(time_ns):
                continue
            first, last = np.searchsorted(
                timeline.times_ns, [time_ns - LOCK_WINDOW_NS, time_ns + LOCK_WINDOW_NS]
            )
            moments = [(int(time), timeline.at(int(time))) for time in timeline.times_ns[first:last]]
            waits = [self.queues_for_lock(worker.pid, time, moment) for time, moment in moments]
            queueing += sum(waits) / max(1, len(waits))
            used = timeline.use(time_ns - LOCK_WINDOW_NS, time_ns + LOCK_WINDOW_NS)[0]
            running += used
            active += used > IDLE_USE or any(waits)
        trainer = self.timelines.main(trainer_pid)
        taken = (
            trainer.use(time_ns - LOCK_WINDOW_NS, time_ns + LOCK_WINDOW_NS)[0] if trainer is not None else 0.0
        )
        could = min(active, max(1.0, self.cores - taken))
        return max(0.0, 1 - running / could) if queueing > MIN_QUEUE and could > 0 else 0.0

    def pool_threads(self, pid: int) -> list[Timeline]:
        """Native threads that share a process's arithmetic (OpenMP and the like): they wait in futexes only."""
        python = self._python_threads(pid)
        return [
            thread
            for thread in self.timelines.of(pid)
            if thread.tid != pid
            and thread.tid not in python
            and not thread.name.startswith(("pt_", "cuda", "gloo", "nccl"))
            and _waits_in_futex_only(thread)
        ]

    def _python_threads(self, pid: int) -> set[int]:
        """Threads that run Python code: py-spy named them, or they were seen to hold the interpreter lock."""
        if pid not in self._python:
            named = self.recording.table(PythonThread)
            seen = self.recording.table(InterpreterSample)
            tids = [
                *named.loc[named["pid"] == pid, "tid"],
                *seen.loc[seen["pid"] == pid, "gil_tid"].dropna().unique(),
            ]
            self._python[pid] = {int(tid) for tid in tids}
        return self._python[pid]

    def throttled_fraction(self, time_ns: int) -> float:
        """Fraction of quota periods around an instant in which the job's control group was stopped."""
        span = (time_ns - 500e6, time_ns + 500e6)
        worst = 0.0
        for throttled, periods in self._quotas:
            ran = periods.growth(*span)
            worst = max(worst, throttled.growth(*span) / ran if ran > 0 else 0.0)
        return worst

    def swap_in_rate(self, time_ns: int) -> float:
        """Bytes per second that the host pages in from swap around an instant; 0 where it was not read."""
        return (
            self._swapped_in.growth(time_ns - 1e9, time_ns + 1e9) / 2 if self._swapped_in is not None else 0.0
        )

    def kernel_work(self, pid: int, time_ns: int) -> tuple[float, str]:
        """The part of a process's running time that is the kernel's work on storage, and whose cause it is.

        Mapping pages that a major fault brought in and copying what is saved into the page cache cost CPU time, in
        which the thread counts as running. (0, "") where neither happens at a rate that matters.
        """
        key = (pid, time_ns // NS_PER_S)
        if key not in self._kernel_work:
            span = (time_ns - NS_PER_S, time_ns + NS_PER_S)

            def grown(name: str) -> float:
                return self._counter(f"pid:{pid}", name).growth(*span)

            busy = grown("user_seconds_total") + grown("system_seconds_total")
            cause = ""
            if grown("major_faults_total") / 2 >= MIN_FAULTS_PER_S:
                cause = "io.swap" if self.swap_in_rate(time_ns) > SWAP_BYTES_PER_S else "io.storage_read"
            elif grown("storage_write_bytes_total") / 2 >= MIN_WRITTEN_PER_S:
                cause = "io.checkpoint_write"
            part = grown("system_seconds_total") / busy if cause and busy > 0 else 0.0
            self._kernel_work[key] = part, cause
        return self._kernel_work[key]

    def delay_parts(self, time_ns: int) -> dict[str, float]:
        """Why a runnable thread does not run: cause to weight.

        The quota, if it stopped the group; else whoever is on the CPUs instead: input workers, whose work is then the
        cause, or other threads of the job and neighbours. Cores that were idle are nobody's fault but the scheduler's:
        their weight is missing in the sum.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        key = time_ns // 100_000_000
        if key not in self._occupants:
            self._occupants[key] = self._occupants_at(time_ns)
        workers, others, idle = self._occupants[key]
        total = workers + others + idle
        return {
            "cpu.throttled": stopped,
            "cpu.input_preprocessing": (1 - stopped) * workers / total,
            "cpu.contention": (1 - stopped) * others / total,
        }

    def _occupants_at(self, time_ns: int) -> tuple[float, float, float]:
        """Cores used by those who prepare input, by everybody else but a trainer itself, and by nobody."""
        span = (time_ns - 150_000_000, time_ns + 150_000_000)
        used = Amounts[str]()
        for thread in self.timelines.threads.values():
            used[self._kind_of(thread)] += thread.use(*span)[0]
        unused = max(0.0, self.cores - used.total)
        neighbours = unused
        if self._neighbours is not None:
            neighbours = min(unused, self._neighbours.growth(time_ns - NS_PER_S, time_ns + NS_PER_S) / 2)
        others = used["other"] + neighbours
        if len(self.roles.trainers) > 1:
            # Ranks that crowd each other out are each other's competition.
            others += used["trainer"]
        return used["supplier"], others, max(1e-3, unused - neighbours - MARGIN)

    def _kind_of(self, thread: Timeline) -> str:
        """Whether a thread trains, prepares input (workers, other helpers, a trainer's Python threads), or neither."""
        process = self.roles.processes.get(thread.pid)
        if process is None or process.trainer_pid == process.pid:
            return "other"
        if process.role == "trainer":
            if thread.tid == thread.pid:
                return "trainer"
            return "supplier" if thread.tid in self._python_threads(thread.pid) else "other"
        return "supplier" if thread.tid == thread.pid and process.trainer_pid else "other"

    def trainer_of(self, rank: int) -> Process | None:
        """The trainer with a rank."""
        return next((trainer for trainer in self.roles.trainers if trainer.rank == rank), None)


def _nearest_first(times_ns: npt.NDArray[np.int64], time_ns: int) -> list[int]:
    """Entries of a track near an instant, nearest first.

    An entry lasts until the next one, so it is never farther away than the usual time between two samples.
    """
    at = int(np.searchsorted(times_ns, time_ns, side="right")) - 1
    distances = {}
    for index in range(max(0, at - 3), min(len(times_ns), at + 5)):
        if index > at:
            distance = int(times_ns[index]) - time_ns
        elif index == at:
            distance = min(time_ns - int(times_ns[at]), STACK_PERIOD_NS)
        else:
            distance = time_ns - int(times_ns[index + 1]) + STACK_PERIOD_NS // 2
        if distance <= STACK_REACH_NS:
            distances[index] = distance
    return sorted(distances, key=lambda index: distances[index])


def _fits(place: Place, moment: Moment, distributed: bool) -> bool:
    if moment.state == "R":
        return not place.only_waits
    if (
        moment.syscall in WAITING_CALLS
        and moment.syscall != "futex"
        and moment.target.startswith(("pipe", "socket", "anon"))
    ):
        return place.waits
    if moment.syscall == "futex":
        # Queues and locks wait in frames of their own, collectives in whatever started them.
        return place.waits or (distributed and place.phase in TRAINING_PHASES)
    if moment.syscall in SLEEPS:
        return place.phase not in TRAINING_PHASES
    return not (moment.is_blocked and place.only_waits)


def _waits_in_futex_only(thread: Timeline) -> bool:
    return set(thread.syscalls) <= {None, "futex", "sched_yield", "madvise", "munmap", "mmap", "fault"}
