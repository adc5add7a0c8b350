"""The whole job at any instant: threads, stacks, interpreters and the CPU, put together from one recording."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.code_location import TRAINING_PHASES, UNKNOWN, Place, agrees, marked_place
from perfdoctor.timeline.counters import Counters
from perfdoctor.timeline.cpu_contention import Kind, Occupancy
from perfdoctor.timeline.failed_samples import Misses, find_misses
from perfdoctor.timeline.locks import Locks
from perfdoctor.timeline.loop_position import mark_own_loop
from perfdoctor.timeline.marks import Segment, read_marks
from perfdoctor.timeline.processes import assign_roles
from perfdoctor.timeline.python_threads import OwnThreads
from perfdoctor.timeline.stacks import STACK_REACH_NS, Stacks, Track
from perfdoctor.timeline.steps import Steps
from perfdoctor.timeline.storage import KernelWork
from perfdoctor.timeline.threads import GONE, Moment, Timeline, Timelines

SLEEPS = frozenset(("nanosleep", "clock_nanosleep"))
# A wake-up that costs less than this fraction of the wanted CPU time is the scheduler's everyday business.
MIN_DELAY = 0.02
# A trainer that waits for others less than this fraction of the time is not supplied by its threads.
SUPPLIED = 0.02
# Threads that move what ranks exchange, and add it up: gloo's own, and those that torch starts for it.
COLLECTIVE_THREADS = ("gloo", "pt_gloo")
# Calls in which a thread waits for somebody to send or signal something.
WAITING_CALLS = frozenset((
    "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "read", "recvfrom", "recvmsg",
    "accept", "accept4", "wait4", "waitid", "futex",
))  # fmt: skip


class Scene:
    """Everything that following a wait needs to know about an instant.

    Attributes:
        counters: all counters of the recording.
        cores: how many the job may use.
        steps: by process, what it marked from inside; empty for a job that was watched from outside only.
        occupancy: who is on the CPUs while a thread waits for one.
        kernel_work: the kernel's work on storage in the name of running threads.
        locks: queues for locks of the job's own.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.stacks = Stacks.read(recording)
        mark_own_loop(self.stacks)
        self.timelines = Timelines(recording)
        self.steps = {pid: Steps(marks) for pid, marks in read_marks(recording).items()}
        self.roles = assign_roles(recording, self.stacks, self.timelines, frozenset(self.steps))
        self.counters = counters = Counters(recording)
        self.cores = counters.median("usable_cores") or float(recording.meta.get("cores", "1"))
        self.own_threads = OwnThreads(recording, self.timelines)
        reachable = float(recording.meta.get("reachable_cores", "0"))
        self.occupancy = Occupancy(self.timelines, self.roles, counters, self.cores, self._kind_of, reachable)
        self.kernel_work = KernelWork(counters)
        self.locks = Locks(self.stacks, self.timelines, self.roles, self.cores, self.stack_at)
        self._tracks: dict[int, Track | None] = {}
        self._misses: dict[int, Misses | None] = {}
        self._supplied: dict[int, bool] = {}
        self._pools: dict[int, list[Timeline]] = {}
        self._collective: list[Timeline] | None = None

    def main_at(self, pid: int, time_ns: int) -> Moment:
        """The main thread of a process at an instant."""
        timeline = self.timelines.main(pid)
        return timeline.at(time_ns) if timeline is not None else GONE

    def place_at(self, pid: int, time_ns: int, moment: Moment, *, in_c: bool = False) -> Place:
        """Where in the code a process's main thread is.

        Stacks and states are sampled by different programs, so the nearest stack that *fits* the state is taken: a
        thread that sleeps in a read cannot be where the stack shows arithmetic, and one that runs is in no blocking
        call. One that holds the interpreter lock is not in autograd's engine; and where the nearest look was missed,
        Python code ran (``perfdoctor.timeline.failed_samples``), unless it is known that other code did (``in_c``).
        Where the process marked its phases from inside, the phase is that of its mark, and the stack only adds what
        fits that.
        """
        number = self.stack_at(pid, time_ns, moment, in_c=in_c)
        place = UNKNOWN if number is None else self.stacks.places[number]
        segment = self.segment_at(pid, time_ns)
        return place if segment is None else marked_place(segment.phase, segment.detail, place, told=segment.told)

    def has_places(self, pid: int) -> bool:
        """Whether it was seen at all where in its code a process is: by stacks of its main thread, or by marks."""
        return pid in self.steps or self._main_track(pid) is not None

    def segment_at(self, pid: int, time_ns: int) -> Segment | None:
        """The part of a step that a process marked at an instant; None where it marked nothing."""
        steps = self.steps.get(pid)
        return None if steps is None else steps.at(time_ns)

    def collecting_at(self, pid: int, time_ns: int) -> bool:
        """Whether the cyclic collector of a process runs at an instant; False where that is unknown."""
        steps = self.steps.get(pid)
        if steps is not None and steps.at(time_ns) is not None:
            return steps.collecting_at(time_ns)
        return bool(self.timelines.interpreter_at(pid, time_ns)[1])

    def stack_at(self, pid: int, time_ns: int, moment: Moment, *, in_c: bool = False) -> int | None:
        """Number of the stack that goes with a moment; None if there is none near."""
        track = self._main_track(pid)
        if track is None:
            return None
        segment = self.segment_at(pid, time_ns)
        holds_lock = moment.is_runnable and self.timelines.interpreter_at(pid, time_ns)[0] == pid
        nearest: int | None = None
        for number in self._near(track, time_ns, may_be_missed=moment.is_runnable and not in_c):
            place = self.stacks.places[number]
            if segment is not None and not agrees(place, segment.phase, told=segment.told):
                continue
            nearest = number if nearest is None else nearest
            if _fits(place, moment, self.roles.world_size > 1) and not (holds_lock and place.detail == "engine"):
                return number
        return nearest

    def thread_line(self, thread: Timeline, time_ns: int) -> str:
        """Where in the job's own code a running thread (not the main one) was near an instant; "" if not seen."""
        ident = self.own_threads.ident(thread.tid)
        track = next((track for track in self.stacks.others(thread.pid) if track.ident == ident), None)
        if track is None:
            return ""
        for _, number in track.near(time_ns):
            place = self.stacks.places[number]
            if place.line and not place.only_waits:
                return place.line
        return ""

    def _near(self, track: Track, time_ns: int, *, may_be_missed: bool) -> Iterator[int]:
        """Stacks of a main thread near an instant, the likeliest first."""
        near = track.near(time_ns)
        if may_be_missed:
            if track.pid not in self._misses:
                self._misses[track.pid] = find_misses(self.recording, track)
            misses = self._misses[track.pid]
            if misses is not None and misses.is_nearer(time_ns, near[0][0] if near else STACK_REACH_NS):
                yield from (number for _, number in misses.stand_ins.near(time_ns))
        yield from (number for _, number in near)

    def _main_track(self, pid: int) -> Track | None:
        """The main thread's stacks of a process, looked for once."""
        if pid not in self._tracks:
            self._tracks[pid] = self.stacks.main_track(pid)
        return self._tracks[pid]

    def stack_changes_per_s(self, pid: int) -> float:
        """How often per second a process's main thread was seen in another stack than before."""
        track = self._main_track(pid)
        if track is None or len(track.times_ns) < 2:
            return 0.0
        return (len(track.times_ns) - 1) * NS_PER_S / float(track.times_ns[-1] - track.times_ns[0])

    def pool_threads(self, pid: int) -> list[Timeline]:
        """Native threads that share a process's arithmetic (OpenMP and the like): they wait in futexes only."""
        if pid not in self._pools:
            python = self.own_threads.python(pid)
            self._pools[pid] = [
                thread
                for thread in self.timelines.of(pid)
                if thread.tid != pid
                and thread.tid not in python
                and not thread.name.startswith(("pt_", "cuda", "gloo", "nccl"))
                and _waits_in_futex_only(thread)
            ]
        return self._pools[pid]

    def exchanges_at(self, time_ns: int) -> bool:
        """Whether ranks of this host exchange something at an instant: threads of a collective are at work."""
        if self._collective is None:
            threads = (thread for rank in self.roles.trainers for thread in self.timelines.of(rank.pid))
            self._collective = [thread for thread in threads if thread.name.startswith(COLLECTIVE_THREADS)]
        return any(thread.at(time_ns).is_runnable for thread in self._collective)

    def _kind_of(self, thread: Timeline) -> Kind:
        """What a thread is to the trainer that it competes with for cores."""
        process = self.roles.processes.get(thread.pid)
        is_main = thread.tid == thread.pid
        if process is None or process.role != "trainer":
            return "supplier" if process is not None and process.trainer_pid and is_main else "other"
        if is_main:
            return "trainer"
        if thread.name.startswith(COLLECTIVE_THREADS):
            return "collective"
        if thread.tid not in self.own_threads.python(thread.pid):
            return "pool" if thread in self.pool_threads(thread.pid) else "other"
        if self.is_supplied_by_threads(thread.pid):
            return "supplier"
        return "lock holder" if self.own_threads.holds_lock(thread.pid, thread.tid) else "other"

    def is_supplied_by_threads(self, pid: int) -> bool:
        """Whether a trainer was seen waiting for something that threads of its own may hand to it."""
        if pid not in self._supplied:
            times = self.timelines.main_times(pid)
            waits = sum(self._waits_for_others(pid, time) for time in times)
            self._supplied[pid] = waits >= SUPPLIED * len(times)
        return self._supplied[pid]

    def _waits_for_others(self, pid: int, time_ns: int) -> bool:
        moment = self.main_at(pid, time_ns)
        if moment.is_runnable or moment.is_blocked:
            return False
        place = self.place_at(pid, time_ns, moment)
        return place.waits or place.phase == "data"


def _fits(place: Place, moment: Moment, distributed: bool) -> bool:
    if moment.state == "R":
        return not place.only_waits
    if (
        moment.syscall in WAITING_CALLS
        and moment.syscall != "futex"
        and moment.target.startswith(("pipe", "socket", "anon"))
    ):
        # What is logged or saved may go through a pipe or a connection, by a call of its own that waits.
        return place.waits or place.phase in ("logging", "saving")
    if moment.syscall == "futex":
        # Queues and locks wait in frames of their own, collectives in whatever started them.
        return place.waits or (distributed and place.phase in TRAINING_PHASES)
    if moment.syscall in SLEEPS:
        return place.phase not in TRAINING_PHASES
    return not (moment.is_blocked and place.only_waits)


def _waits_in_futex_only(thread: Timeline) -> bool:
    return set(thread.syscalls) <= {None, "futex", "sched_yield", "madvise", "munmap", "mmap", "fault"}
