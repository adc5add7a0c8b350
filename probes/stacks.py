"""Python stacks of every process of the job, without stopping anything.

Of a CPython whose frames are known, ``perfdoctor.probes.readers.training_stacks`` reads them, where py-spy agrees with
it. Of others py-spy samples them (``--nonblocking``), to which all below applies.

py-spy writes its trace only when it ends, so it is run in segments of a few seconds. Where perfdoctor is killed, the
kernel interrupts it, and it leaves its trace beside the recording (``perfdoctor.recording.stack_segments``).
Idle threads are included, because a wait says as much as work, and because in py-spy's chrometrace format an idle gap
would otherwise prolong whatever ran before it. Each segment is kept as py-spy wrote it; reading it costs time that the
recorder does not have.

Each process gets a py-spy of its own: ``--subprocesses`` was measured at three times the cost, and samples every
process at the same rate. Processes that may train are sampled as often as the budget allows; of loader workers, which
are alike, a few are sampled now and then.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers import cpython_stacks
from perfdoctor.probes.readers.cpython import LayoutError, Layouts
from perfdoctor.probes.readers.permissions import memory_refusal
from perfdoctor.probes.readers.process import Candidate, python_of
from perfdoctor.probes.readers.procfs import stat_fields
from perfdoctor.probes.readers.py_spy import complaint, find_py_spy, knows, missed_stacks
from perfdoctor.probes.readers.py_spy_run import PySpyRun
from perfdoctor.probes.readers.training_stacks import TrainingStacks
from perfdoctor.recording.clock import NS_PER_S, helpers_s, now_ns
from perfdoctor.recording.schema import Event, PythonThread, Sample, Unavailable

# Cores that py-spy may use for all processes together; the rest of DESIGN's budget is the recorder's.
BUDGET = 0.022
# CPU time of a start and of one sample: for each process, for each Python thread in it (py-spy 0.4.2, 1 to 65
# threads, two cores), and in a sample for each thread (py-spy 0.4.3, 300 of them). It is up to twice as much where the
# job fills the caches, which is learned from each segment.
_START_S, _START_THREAD_S = 0.014, 0.0006
_SAMPLE_S, _SAMPLE_PYTHON_S, _SAMPLE_THREAD_S = 0.0005, 0.00013, 0.000016
_COSTLIEST = 4.0
# A segment that took so many times what was expected, and this on top, is ended.
_OVERRUN, _OVERRUN_S = 3.0, 0.1
# A process that takes this much of the budget for one sample per second is not sampled by py-spy.
_DEAREST = 0.5
# Of trainers: as fast as the budget allows between these rates, and so many of them at most.
FASTEST_HZ, SLOWEST_HZ, AT_MOST = 20, 2, 8
# Workers of a loader are alike: a few samples of two of them show what they do.
WORKER_HZ, WORKERS_AT_MOST = 3, 2
# A process younger than this may be gone before py-spy has read its binaries.
MIN_AGE_NS = NS_PER_S // 2
FIRST_SEGMENT_S = 4  # what it cost decides about the next ones
SEGMENT_S = 11
LONG_SEGMENT_S = 16  # for few samples: to start a py-spy costs as much as 30 of them, and less is lost
# To find a process's interpreter, its threads, and a first stack: it goes on meanwhile, and may just be calling very
# deep, or not have an interpreter yet.
_TRIES = 5
_AGAIN_NS = 3 * NS_PER_S // 10
_DUMP_AT_MOST = 4  # processes whose thread identifiers are read at the start
_DUMP_THREADS = 64  # and so many threads they may have: py-spy looks at all of them
_POLL_S = 0.2  # whether py-spy has ended
# What is sampled without py-spy goes into the recording so often: a kill loses no more.
_OWN_SEGMENT_NS = NS_PER_S // 2
# Processes that are sampled without py-spy: in one round, and workers in all, of which one is sampled in each round.
_A_ROUND = 8
_OWN_WORKERS = 6
_OTHERS_AT_ONCE = 2  # threads of one of them that hardly run
_PATIENCE_S = 3.0
_NOT_INSTALLED = Refusal("py-spy is not installed.", "pip install py-spy (0.4 or newer) beside perfdoctor")


@dataclass
class _Segment:
    run: PySpyRun
    expected_s: float


@dataclass
class _Direct:
    stacks: TrainingStacks
    segment_ns: int


class StacksProbe:
    """Samples the Python stacks of the processes of the job that have torch loaded.

    Args:
        py_spy: the program; None for the one that is found.
        root: where /proc is.
        layouts: of interpreters, shared with others who look for them.
    """

    name = "stacks"

    def __init__(self, py_spy: str | None = None, root: Path = Path("/"), layouts: Layouts | None = None) -> None:
        self.period_s = _POLL_S
        self._root = root
        self._layouts = layouts or Layouts()
        self._direct: dict[int, _Direct] = {}
        self._not_directly: Counter[int] = Counter()  # how often each process could not be read directly
        self._members: tuple[tuple[int, ...], ...] = ()
        self._workers: frozenset[int] = frozenset()  # and launchers, which are sampled as rarely
        self._round = 0
        self._py_spy = py_spy or find_py_spy()
        self._job: Processes | None = None
        self._running: dict[int, _Segment] = {}
        self._failed: set[int] = set()
        self._complaints: dict[int, list[str]] = {}  # of py-spy, since it last read a process
        self._threads: dict[int, int] = {}  # Python threads of each process that was asked
        self._asked: Counter[int] = Counter()  # how often each process was
        self._ask_again_ns: dict[int, int] = {}  # those that did not answer
        self._begins: dict[int, str] = {}  # in which file its main thread's outermost call is, as py-spy sees it
        self._cost_factor = 0.0  # CPU time that a segment took over what was expected; 0 while none has ended
        self._first_seen_ns: dict[int, int] = {}
        self.recording: Path | None = None

    def check(self, process: Candidate) -> Availability:
        """Stacks of a process without torch are seen too; they just do not show phases of training."""
        refusal = self._refusal(process)
        if refusal is None and process.uses_torch is False:
            reason = f"Process {process.pid} has not loaded torch: stacks are sampled, phases of training are not seen."
            return Availability(self.name, True, reason, "name the process that trains, or its launcher")
        return Availability.unless(self.name, refusal)

    def open(self, job: Processes) -> Iterator[Sample]:
        """Starts py-spy on what is there."""
        self._job = job
        if self._py_spy is None:
            yield Unavailable(self.name, *_NOT_INSTALLED)
            return
        yield from self.sample(now_ns())

    def sample(self, time_ns: int) -> Iterator[Sample]:
        """Collects finished segments and starts the next ones."""
        if self._py_spy is None or self._job is None:
            return
        yield from self._collect_ended()
        members = self._job.torch_pids(), self._job.forked_pids()
        if members != self._members:
            self._members = members
            self._workers = frozenset(self._job.forked_pids()) | self._launchers()
            for pid in members[0]:
                self._first_seen_ns.setdefault(pid, time_ns)
        torch, forked = [pid for pid in members[0] if pid not in self._failed], self._workers
        may_train = [pid for pid in torch if pid not in forked]
        for pid in may_train:
            if pid not in self._running and pid not in self._direct:
                yield from self._take_up(pid, len(may_train), len(forked.intersection(torch)), time_ns)
            elif time_ns >= self._ask_again_ns.get(pid, time_ns + 1):
                yield from self._identify_threads(pid, time_ns)
        old = [pid for pid in torch if pid in forked and time_ns - self._first_seen_ns[pid] >= MIN_AGE_NS]
        if self._direct:
            yield from self._sample_directly(may_train, old, time_ns)
            return
        for pid in old[: max(0, WORKERS_AT_MOST - sum(pid in forked for pid in self._running))]:
            if pid not in self._running:
                yield from self._start(pid, WORKER_HZ, LONG_SEGMENT_S)

    def _collect_ended(self) -> Iterator[Sample]:
        for pid, segment in list(self._running.items()):
            before_s = helpers_s()
            if segment.run.status is not None:
                self._learn(segment, helpers_s() - before_s)
                del self._running[pid]
                yield from self._collect(segment.run)
            elif segment.run.cpu_s() > _OVERRUN * segment.expected_s + _OVERRUN_S:
                self._cost_factor = _COSTLIEST
                segment.run.interrupt()

    def _take_up(self, pid: int, processes: int, workers: int, time_ns: int) -> Iterator[Sample]:
        """Begins to sample a process that may train."""
        if pid not in self._asked:
            yield from self._identify_threads(pid, time_ns)
        if self._read_directly(pid, time_ns):
            self.period_s = 1 / FASTEST_HZ
        elif len(self._running) >= AT_MOST:
            yield self._failure(pid, f"it reads {AT_MOST} processes at most", "")
        elif self._expected_cost(pid)[1] > BUDGET * _DEAREST:
            cost_s = self._expected_cost(pid)[1]
            yield self._failure(pid, f"it would take {cost_s:.2f} s of CPU for one sample of all its threads", "")
        else:
            yield from self._start(pid, *self._rate(pid, processes, workers))

    def _read_directly(self, pid: int, time_ns: int) -> bool:
        """Begins to sample a process without py-spy; false if that cannot be done."""
        if self._not_directly[pid] >= _TRIES:
            return False
        try:
            stacks = self._reader_of(pid)
        except (OSError, LayoutError):
            self._not_directly[pid] += 1
            return False
        self._direct[pid] = _Direct(stacks, time_ns + _OWN_SEGMENT_NS)
        return True

    def _reader_of(self, pid: int) -> TrainingStacks:
        python = python_of(pid, self._root)
        if python is None or python.version is None or not cpython_stacks.knows(python.version):
            raise LayoutError(f"the frames of {python} are not known")
        stacks = TrainingStacks(pid, python.version, self._layouts, self._root)
        begins = [call.file for call in stacks.main_stack()[:1]]
        if pid in self._begins and begins != [self._begins[pid]]:
            stacks.close()
            raise LayoutError(f"the frames of {python} lie elsewhere: py-spy sees others")
        return stacks

    def _sample_directly(self, may_train: list[int], workers: list[int], time_ns: int) -> Iterator[Sample]:
        """Of many processes some in turn, and one worker; those that have gone are let go of."""
        wanted = [pid for pid in may_train if pid in self._direct]
        workers = [pid for pid in workers if self._not_directly[pid] < _TRIES][:_OWN_WORKERS]
        for pid in self._direct.keys() - {*wanted, *workers}:
            yield from self._let_go(pid, time_ns)
        rounds = max(1, -(-len(wanted) // _A_ROUND))
        self._round += 1
        turn = wanted[self._round % rounds :: rounds]
        if workers:
            pid = workers[self._round % len(workers)]
            if pid in self._direct or self._read_directly(pid, time_ns):
                turn.append(pid)
        for number, pid in enumerate(turn):
            direct = self._direct[pid]
            others = _OTHERS_AT_ONCE if number == self._round % len(turn) else 0
            yield from direct.stacks.sample(now_ns(), others)
            if time_ns >= direct.segment_ns:
                direct.segment_ns = time_ns + _OWN_SEGMENT_NS
                yield from filter(None, [direct.stacks.segment(time_ns)])

    def _let_go(self, pid: int, time_ns: int) -> Iterator[Sample]:
        stacks = self._direct.pop(pid).stacks
        yield from filter(None, [stacks.segment(time_ns)])
        stacks.close()

    def close(self) -> Iterator[Sample]:
        """Ends the running segments early and keeps what they saw."""
        for pid in list(self._direct):
            yield from self._let_go(pid, now_ns())
        for segment in self._running.values():
            segment.run.interrupt()
        while self._running:
            _, segment = self._running.popitem()
            segment.run.wait()
            yield from self._collect(segment.run)
        for pid, complaints in self._complaints.items():
            yield self._failure(pid, complaints[-1])

    def _refusal(self, process: Candidate) -> Refusal | None:
        if self._py_spy is None:
            return _NOT_INSTALLED
        if process.python is None:
            return process.not_python()
        version = process.python.version
        if version is not None and not knows(self._py_spy, version):
            return Refusal(f"This py-spy does not know {process.python}.", "pip install --upgrade py-spy")
        return memory_refusal() if process.rights.trace else process.rights.why_not

    def _launchers(self) -> set[int]:
        """Torch processes that started others afresh: they hand out work, and a few samples show what they wait for."""
        assert self._job is not None
        torch, forked = set(self._job.torch_pids()), set(self._job.forked_pids())
        parents = {self._job.parent_of(pid) for pid in torch - forked}
        return {parent for parent in parents if parent is not None and parent in torch}

    def _rate(self, pid: int, processes: int, workers: int) -> tuple[int, int]:
        """Samples per second, and seconds, that the budget allows for one of so many processes beside such workers."""
        seconds = SEGMENT_S if self._cost_factor else FIRST_SEGMENT_S
        start_s, sample_s = self._expected_cost(pid)
        worker_start_s, worker_sample_s = _START_S + _START_THREAD_S, _SAMPLE_S + _SAMPLE_PYTHON_S
        for_workers = min(workers, WORKERS_AT_MOST) * (worker_start_s / LONG_SEGMENT_S + worker_sample_s * WORKER_HZ)
        affordable = (BUDGET / max(self._cost_factor, 1.0) - for_workers) / processes
        rate = int((affordable - start_s / seconds) / sample_s)
        return (min(FASTEST_HZ, rate), seconds) if rate > SLOWEST_HZ else (SLOWEST_HZ, LONG_SEGMENT_S)

    def _expected_cost(self, pid: int) -> tuple[float, float]:
        """CPU seconds expected for a start and for a sample of a process."""
        threads = _threads_of(pid, self._root)
        python = min(self._threads.get(pid, max(self._threads.values(), default=1)), threads)
        sample_s = _SAMPLE_S + _SAMPLE_PYTHON_S * python + _SAMPLE_THREAD_S * threads
        return _START_S + _START_THREAD_S * python, sample_s

    def _learn(self, segment: _Segment, used_s: float) -> None:
        if segment.run.status == 0:
            self._cost_factor = min(used_s / segment.expected_s, _COSTLIEST)

    def _start(self, pid: int, rate: int, seconds: int) -> Iterator[Sample]:
        assert self._py_spy is not None
        try:
            run = PySpyRun(self._py_spy, pid, rate, seconds, self.recording)
        except OSError as error:
            yield self._failure(pid, f"{self._py_spy} cannot be started: {error.strerror}")
        else:
            start_s, sample_s = self._expected_cost(pid)
            self._running[pid] = _Segment(run, start_s + sample_s * rate * seconds)

    def _collect(self, run: PySpyRun) -> Iterator[Sample]:
        segment, log = run.take()
        if segment is not None:
            self._complaints.pop(run.pid, None)
            yield segment
            yield from missed_stacks(log)
        elif run.status == -signal.SIGINT:
            return  # ended by us while it was still starting, before it takes signals for itself
        elif os.path.exists(f"/proc/{run.pid}"):
            complaints = self._complaints.setdefault(run.pid, [])
            complaints.append(complaint(log))
            if len(complaints) >= _TRIES:
                yield self._failure(run.pid, complaints[-1])
                del self._complaints[run.pid]
        else:
            yield Event(now_ns(), "process ended", f"process {run.pid} ended before its stacks were read")

    def _failure(self, pid: int, why: str, enable: str | None = None) -> Unavailable:
        self._failed.add(pid)
        reason = f"py-spy could not read the stacks of process {pid}: {why}"
        return Unavailable(
            self.name, reason, f"run `perfdoctor check {pid}` to see what it needs" if enable is None else enable
        )

    def _identify_threads(self, pid: int, time_ns: int) -> Iterator[Sample]:
        """Python's identifiers of the threads of a process, in which py-spy's traces speak."""
        assert self._py_spy is not None
        if pid not in self._asked and len(self._asked) >= _DUMP_AT_MOST:
            return
        if _threads_of(pid, self._root) > _DUMP_THREADS:
            return
        self._asked[pid] += 1
        self._ask_again_ns.pop(pid, None)
        command = [self._py_spy, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        try:
            answer = subprocess.run(
                command, capture_output=True, timeout=_PATIENCE_S, check=True, start_new_session=True
            ).stdout
            threads = json.loads(answer)
        except (OSError, subprocess.SubprocessError, ValueError):
            if self._asked[pid] < _TRIES:
                self._ask_again_ns[pid] = time_ns + self._asked[pid] * _AGAIN_NS
            return  # the segments say what is wrong
        self._threads[pid] = len(threads)
        for thread in threads:
            if thread.get("os_thread_id") == pid and thread["frames"]:
                self._begins[pid] = thread["frames"][-1]["filename"]
            if thread.get("os_thread_id"):
                yield PythonThread(
                    time.monotonic_ns(),
                    pid,
                    thread["os_thread_id"],
                    thread["thread_id"],
                    thread["thread_name"] or "",
                )


def _threads_of(pid: int, root: Path) -> int:
    """How many threads a process has; 1 if it has gone."""
    try:
        return int(stat_fields((root / f"proc/{pid}/stat").read_bytes())[17])
    except OSError:
        return 1
