"""What every thread of the job is doing: state, system call and its target, time on a CPU, time waiting for one,
faults.

Threads are sampled as often as they matter:

* those that train, in every tick: the main thread of a torch process that is nobody's worker, torch's autograd threads
  in it, and one more that computes most of the time, if there is one;
* main threads of workers, evenly: of very many, some in each tick;
* others that are awake, in every tick, unless there are too many;
* those that have slept for long, in turn, a few in each tick: while a thread sleeps, the kernel's counters of it stand
  still, so one small read shows that nothing has changed.

So a tick is bounded, however many threads there are, and the recorder lowers the bounds (``share``) where perfdoctor
takes too much. How often the others were sampled then is an event of the recording.
A sample costs about 20 µs of CPU, such a check 4 µs, with the caches full of the job's data (Linux 6.18, x86-64).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.kept_files import Room
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import Births
from perfdoctor.probes.readers.syscalls import Descriptors
from perfdoctor.probes.readers.task import AUTOGRAD, Task
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.schema import (
    CHILDREN_FAULTS,
    THINNED,
    Event,
    ProcessGone,
    Reading,
    Sample,
    ThreadSample,
    ThreadSeen,
    Unavailable,
)

RATE_HZ = 50  # 750 samples in 15 s determine a share of a half to 4 % (two standard errors)
# At most so many of each kind are looked at in one tick, and so many new threads are taken up.
MOST_WORKERS, MOST_AWAKE, MOST_ASLEEP, MOST_NEW = 32, 100, 60, 60
_FEWEST_NEW = 20  # however little may be looked at: what is not met is not seen at all
_ASLEEP_NS = NS_PER_S // 4  # a thread that slept for so long will mostly sleep on
_TURNS = 5  # and is asked in every fifth tick
_LIST_THREADS_NS = NS_PER_S // 5
# Processes whose threads are listed in one tick; and with more threads than this, they are listed more rarely.
_LISTED, _THREADS_LISTED = 8, 200
# Of the time since its last sample, how much a thread computes that may be the one that trains; and no longer is.
_COMPUTES, _RESTS = 0.5, 0.1
# Those that were sampled in fewer of the ticks in which they would be in a small job are reported, and sleepers that
# were asked less often than this.
_SELDOM, _RARELY_S = 0.9, 1.0


class _ProcessThreads:
    def __init__(self, pid: int, root: Path) -> None:
        self.pid = pid
        self.tasks = f"{root / 'proc' / str(pid)}/task"
        self.descriptors = Descriptors(pid, root)
        self.threads: dict[int, _Thread] = {}
        self.one_more: _Thread | None = None
        self.trains = self.gone = False

    def close(self) -> None:
        self.gone = True
        for thread in self.threads.values():
            thread.task.close()
        self.threads.clear()
        self.descriptors.close()


class _Thread:
    def __init__(self, process: _ProcessThreads, tid: int, name: str, room: Room) -> None:
        folder = f"{process.tasks}/{tid}"
        self.process, self.tid = process, tid
        self.task = Task(folder, is_main=tid == process.pid, descriptors=process.descriptors, room=room)
        self.is_autograd = name.startswith(AUTOGRAD)
        self.moved_ns = 0
        self.children_faults = -1

    @property
    def trains(self) -> bool:
        return self.process.trains and (self.task.is_main or self.is_autograd or self.process.one_more is self)


class _Turns:
    """Threads of one kind that take turns.

    Args:
        most: how many may have their turn in one tick.
        every: in how many ticks each of them is to have one.
    """

    def __init__(self, most: int, every: int = 1) -> None:
        self.threads: deque[_Thread] = deque()
        self._most, self._every = most, every
        self._served = self._wanted = 0

    def next(self, share: float) -> list[_Thread]:
        """Those whose turn it is. They leave, and whoever looks at them puts them where they belong then.

        Args:
            share: of the most that may have it.
        """
        wanted = -(-len(self.threads) // self._every)
        served = min(wanted, max(1, int(self._most * share)))
        self._wanted += wanted
        self._served += served
        return [self.threads.popleft() for _ in range(served)]

    @property
    def served(self) -> float:
        """Of the turns that were wanted, the fraction that was had."""
        return self._served / self._wanted if self._wanted else 1.0

    def every_s(self, elapsed_s: float) -> float:
        """Mean time between two turns of one thread, in seconds."""
        return elapsed_s * len(self.threads) / self._served if self._served else 0.0


class ThreadsProbe:
    """Samples the threads of every process of the job.

    Args:
        root: where /proc is.
        room: for files that are kept open; None for as many as this process may have.

    Attributes:
        share: of what may be looked at in a tick besides the threads that train.
    """

    name = "threads"

    def __init__(self, root: Path = Path("/"), room: Room | None = None) -> None:
        self.period_s = 1 / RATE_HZ
        self.share = 1.0
        self._root, self._room = root, room
        self._job: Processes | None = None
        self._processes: dict[int, _ProcessThreads] = {}
        self._members: tuple[tuple[int, ...], ...] = ()
        self._training: list[_Thread] = []
        self._workers, self._awake, self._asleep = _Turns(MOST_WORKERS), _Turns(MOST_AWAKE), _Turns(MOST_ASLEEP, _TURNS)
        self._births = Births(root)
        self._to_list: deque[_ProcessThreads] = deque()
        self._new: deque[tuple[_ProcessThreads, int]] = deque()
        self._list_ns = self._began_ns = self._last_ns = 0
        self._syscalls_refused = False

    def check(self, process: Candidate) -> Availability:
        """States are seen of everybody; system calls need the right to trace the process."""
        calls = None if process.rights.trace else _unseen(process.pid, process.rights.why_not)
        return Availability.but_for(self.name, calls)

    def open(self, job: Processes) -> Iterable[Sample]:
        """Starts looking."""
        self._job = job
        return ()

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Samples the threads whose turn it is."""
        assert self._job is not None
        self._began_ns, self._last_ns = self._began_ns or now_ns, now_ns
        self._meet(self._job, now_ns)
        training, self._training = self._training, []
        for thread in training:
            yield from self._take_sample(thread, now_ns)
        for turns in (self._workers, self._awake, self._asleep):
            for thread in turns.next(self.share):
                yield from self._take_sample(thread, now_ns)
        yield from self._take_up(now_ns)

    def close(self) -> Iterator[Sample]:
        """Gives all files back, and says which threads were sampled more rarely than they are in a small job."""
        if thinned := list(self._thinned(seconds(self._last_ns - self._began_ns))):
            yield Event(self._last_ns, self.name + THINNED, f"{', '.join(thinned)}: more would have burdened the job")
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._births.close()

    def _thinned(self, elapsed_s: float) -> Iterator[str]:
        for turns, who in ((self._workers, "main threads of workers"), (self._awake, "other threads that were awake")):
            if turns.served < _SELDOM:
                yield f"{who} were sampled in {turns.served:.0%} of the ticks"
        if (every_s := self._asleep.every_s(elapsed_s)) > _RARELY_S:
            yield f"{len(self._asleep.threads)} sleeping threads were looked at every {every_s:.1f} s"
        if self._new:
            yield f"{len(self._new)} threads were not looked at yet"

    def _meet(self, job: Processes, now_ns: int) -> None:
        """Takes up processes that are new, lets go of those that are gone, and lists the threads of some."""
        members = job.pids(), job.torch_pids(), job.forked_pids()
        if members != self._members:
            self._members = members
            self._take_members(*members)
        if not self._to_list and now_ns >= self._list_ns:
            known = sum(len(process.threads) for process in self._processes.values())
            self._list_ns = now_ns + _LIST_THREADS_NS * max(1, known // _THREADS_LISTED)
            if self._births.any():
                self._to_list.extend(self._processes.values())
        for _ in range(min(_LISTED, len(self._to_list))):
            self._list_threads(self._to_list.popleft())

    def _take_members(self, pids: tuple[int, ...], torch: tuple[int, ...], forked: tuple[int, ...]) -> None:
        training = frozenset(torch) - frozenset(forked)
        for pid in self._processes.keys() - set(pids):
            self._processes.pop(pid).close()
        for pid in pids:
            if pid not in self._processes:
                self._processes[pid] = _ProcessThreads(pid, self._root)
                self._to_list.append(self._processes[pid])
            self._processes[pid].trains = pid in training

    def _list_threads(self, process: _ProcessThreads) -> None:
        if process.gone:
            return
        process.descriptors.forget()
        try:
            listed = set(map(int, os.listdir(process.tasks)))
        except OSError:
            return
        waiting = {tid for other, tid in self._new if other is process}
        found = sorted(listed - process.threads.keys() - waiting)
        self._new.extend((process, tid) for tid in found if tid != process.pid)
        if process.pid in found:
            self._new.appendleft((process, process.pid))

    def _take_up(self, now_ns: int) -> Iterator[Sample]:
        """Meets new threads, some in each tick, main threads first."""
        for _ in range(min(len(self._new), max(_FEWEST_NEW, int(MOST_NEW * self.share)))):
            process, tid = self._new.popleft()
            if process.gone:
                continue
            try:
                with open(f"{process.tasks}/{tid}/comm", errors="replace") as comm:
                    name = comm.read().strip()
            except OSError:
                continue
            self._room = self._room or Room()  # not before: the recorder raises the limit of open files
            thread = process.threads[tid] = _Thread(process, tid, name, self._room)
            yield ThreadSeen(now_ns, tid, process.pid, name)
            yield from self._take_sample(thread, now_ns, new=True)

    def _take_sample(self, thread: _Thread, now_ns: int, *, new: bool = False) -> Iterator[Sample]:
        """Looks at a thread, samples it unless it sleeps on, and puts it among those that it belongs to now."""
        if thread.process.gone:
            return
        task = thread.task
        try:
            if new or task.is_main or thread.trains or task.moved():
                # Taken for each thread: a slow machine may pause the sampler in the middle of a tick.
                sample = task.sample(time.monotonic_ns(), with_faults=thread.trains)
                if not new or sample.state != "S":
                    thread.moved_ns = now_ns
                yield sample
                if thread.trains and task.is_main and thread.children_faults != task.children_faults:
                    thread.children_faults = task.children_faults
                    yield _of_children(thread, sample.time_ns)
        except OSError:
            self._let_go(thread)
            yield ThreadSample(now_ns, thread.tid, "X", None, "", 0, 0, None, None, None, None)
            if task.is_main:  # of workers that follow one another, the job's own search may notice the end much later
                yield ProcessGone(now_ns, thread.process.pid)
            return
        if task.refused and not self._syscalls_refused:
            self._syscalls_refused = True
            yield Unavailable(self.name, *_unseen(thread.process.pid, why_not(thread.process.pid, self._root)))
        self._put(thread, now_ns)

    def _let_go(self, thread: _Thread) -> None:
        thread.task.close()
        del thread.process.threads[thread.tid]
        if thread.process.one_more is thread:
            thread.process.one_more = None

    def _put(self, thread: _Thread, now_ns: int) -> None:
        process = thread.process
        if process.one_more is thread and thread.task.computed < _RESTS:
            process.one_more = None
        elif process.trains and process.one_more is None and not thread.trains and thread.task.computed > _COMPUTES:
            process.one_more = thread
        if thread.trains:
            self._training.append(thread)
        elif thread.task.is_main:
            self._workers.threads.append(thread)
        elif now_ns - thread.moved_ns <= _ASLEEP_NS:
            self._awake.threads.append(thread)
        else:
            thread.task.rest()
            self._asleep.threads.append(thread)


def _of_children(thread: _Thread, time_ns: int) -> Reading:
    """A counter that moves whenever a child has ended and was waited for, however short its life was."""
    return Reading(time_ns, ThreadsProbe.name, f"pid:{thread.process.pid}", CHILDREN_FAULTS, thread.children_faults)


def _unseen(pid: int | None, why: Refusal) -> Refusal:
    return Refusal(f"The system calls of process {pid} stay unseen. {why.reason}", why.enable)
