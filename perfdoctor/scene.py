"""The whole job at any instant: threads, stacks, interpreters and the CPU, put together from one recording."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfdoctor.phases import UNKNOWN, Place, holds_lock_frame
from perfdoctor.recording import Recording
from perfdoctor.roles import Process, Roles, assign_roles
from perfdoctor.samples import InterpreterSample, PythonThread, Reading
from perfdoctor.stacks import Stacks, Track
from perfdoctor.timelines import GONE, Moment, Timeline, Timelines

# A stack belongs to an instant if it was seen within this time of it: several samples of py-spy at its slowest rate.
STACK_REACH_NS = 400_000_000
# py-spy's mean time between two samples of a process that trains (it draws each anew, exponentially distributed).
STACK_PERIOD_NS = 40_000_000
# A wake-up that costs less than this fraction of the wanted CPU time is the scheduler's everyday business.
MIN_DELAY = 0.02
# Calls in which a thread waits for somebody to send or signal something.
WAITING_CALLS = frozenset(
    "poll ppoll select pselect6 epoll_wait epoll_pwait read recvfrom recvmsg accept accept4 wait4 waitid futex".split()
)


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
    _python: dict[int, set[int]] = field(default_factory=dict)
    _quotas: list[tuple[Counter, Counter]] = field(default_factory=list)
    _swapped_in: Counter | None = None
    _occupants: dict[int, tuple[float, float]] = field(default_factory=dict)

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
            scene._quotas.append((scene._counter(group, "throttled_periods_total"), scene._counter(group, "quota_periods_total")))
        if len(readings[readings["name"] == "swapped_in_bytes_total"]):
            scene._swapped_in = scene._counter("host", "swapped_in_bytes_total")
        return scene

    def _counter(self, subject: str, name: str) -> Counter:
        readings = self.recording.table(Reading)
        rows = readings[(readings["subject"] == subject) & (readings["name"] == name)].dropna(subset=["value"])
        if not len(rows):
            return Counter(np.array([0.0]), np.array([0.0]))
        return Counter(rows["time_ns"].to_numpy(np.float64), rows["value"].to_numpy(np.float64))

    def main_at(self, pid: int, time_ns: int) -> Moment:
        """The main thread of a process at an instant."""
        timeline = self.timelines.main(pid)
        return timeline.at(time_ns) if timeline is not None else GONE

    def place_at(self, pid: int, time_ns: int, moment: Moment) -> Place:
        """Where in the code a process's main thread is.

        Stacks and states are sampled by different programs, so the nearest stack that *fits* the state is taken: a thread
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
            if _fits(self.stacks.places[number], moment):
                return number
        return nearest

    def stack_distance(self, pid: int, time_ns: int) -> int:
        """Nanoseconds to the nearest stack sample; 0 inside a stack that lasted for several of them."""
        track = self._tracks.get(pid)
        if track is None or not len(track.times_ns):
            return STACK_REACH_NS
        after = int(np.searchsorted(track.times_ns, time_ns, side="right"))
        since = time_ns - int(track.times_ns[after - 1]) if after else STACK_REACH_NS
        until = int(track.times_ns[after]) - time_ns if after < len(track.times_ns) else STACK_REACH_NS
        # The stack was last seen about one period before it was seen changed.
        lasted = since + until > 3 * STACK_PERIOD_NS and until > 2 * STACK_PERIOD_NS
        return 0 if lasted else min(since, until)

    def queues_for_lock(self, pid: int, time_ns: int, moment: Moment) -> bool:
        """Whether the innermost frame is that of a multiprocessing lock."""
        number = self.stack_at(pid, time_ns, moment)
        return number is not None and holds_lock_frame(self.stacks.frames[number])

    def pool_threads(self, pid: int) -> list[Timeline]:
        """Native threads that share a process's arithmetic (OpenMP and the like): they wait in futexes only."""
        python = self._python_threads(pid)
        return [
            thread
            for thread in self.timelines.of(pid)
            if thread.tid != pid and thread.tid not in python and not thread.name.startswith(("pt_", "cuda", "gloo", "nccl")) and _waits_in_futex_only(thread)
        ]

    def _python_threads(self, pid: int) -> set[int]:
        """Threads that run Python code: py-spy named them, or they were seen to hold the interpreter lock."""
        if pid not in self._python:
            named = self.recording.table(PythonThread)
            seen = self.recording.table(InterpreterSample)
            tids = [*named.loc[named["pid"] == pid, "tid"], *seen.loc[seen["pid"] == pid, "gil_tid"].dropna().unique()]
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
        return self._swapped_in.growth(time_ns - 1e9, time_ns + 1e9) / 2 if self._swapped_in is not None else 0.0

    def delay_parts(self, time_ns: int) -> dict[str, float]:
        """Why a runnable thread does not run: cause to weight, summing to 1.

        The quota, if it stopped the group; else whoever is on the CPUs instead: input workers, whose work is then the
        cause, or other threads of the job and neighbours.
        """
        stopped = min(1.0, 2 * self.throttled_fraction(time_ns))
        key = time_ns // 100_000_000
        if key not in self._occupants:
            self._occupants[key] = self._occupants_at(time_ns)
        workers, others = self._occupants[key]
        input_part = workers / (workers + others) if workers + others > 0 else 0.0
        return {
            "cpu.throttled": stopped,
            "cpu.input_preprocessing": (1 - stopped) * input_part,
            "cpu.contention": (1 - stopped) * (1 - input_part),
        }

    def _occupants_at(self, time_ns: int) -> tuple[float, float]:
        """Cores used by the main threads of loader workers, and by everybody else but the trainers' main threads."""
        span = (time_ns - 150_000_000, time_ns + 150_000_000)
        workers = trainers = others = 0.0
        for thread in self.timelines.threads.values():
            used = thread.use(*span)[0]
            process = self.roles.processes.get(thread.pid)
            role = process.role if process is not None and thread.tid == thread.pid else "other"
            if role == "worker":
                workers += used
            elif role == "trainer":
                trainers += used
            else:
                others += used
        neighbours = max(0.0, self.cores - workers - trainers - others)
        if len(self.roles.trainers) > 1:
            # Ranks that crowd each other out are each other's competition.
            others += trainers
        return workers, others + neighbours

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


def _fits(place: Place, moment: Moment) -> bool:
    if moment.state == "R":
        return not place.only_waits
    if moment.syscall in WAITING_CALLS and moment.syscall != "futex" and moment.target.startswith(("pipe", "socket", "anon")):
        return place.waits
    return not (moment.is_blocked and place.only_waits)


def _waits_in_futex_only(thread: Timeline) -> bool:
    return set(thread.syscalls) <= {None, "futex", "sched_yield", "madvise", "munmap", "mmap", "fault"}
