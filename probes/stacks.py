"""Python stacks of every process of the job, through py-spy, without stopping anything (``--nonblocking``).

py-spy writes its trace only when it ends, so it is run in segments of a few seconds: a kill loses one segment at most.
Idle threads are included, because a wait is as telling as work, and because in py-spy's chrometrace format an idle gap
would otherwise prolong whatever ran before it. Each segment is kept as py-spy wrote it; reading it costs time that the
recorder does not have.

Each process gets a py-spy of its own: ``--subprocesses`` was measured at three times the cost, and samples every
process at the same rate. Processes that may train are sampled as often as the budget allows; of loader workers, which
are alike, a few are sampled now and then.
"""

import calendar
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers.permissions import memory_refusal
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.recording.clock import NS_PER_S, now_ns
from perfdoctor.recording.schema import Event, PythonThread, Sample, StackMissed, StackSegment, Unavailable

_MODULE = re.compile(rb"python_bindings\W{1,2}v3_(\d+)_0")
# Of Python 3.
_OLDEST_MINOR = 3

# Makes py-spy (env_logger) say which of its samples failed, and when, in UTC with nanoseconds.
ENVIRONMENT = {"RUST_LOG": "py_spy=warn"}
_WARNING = re.compile(
    rb"^\[(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(?P<ns>\d{9})Z WARN +py_spy\] "
    rb"Failed to get stack trace from (?P<pid>\d+): Failed to call get_stack_trace for thread (?P<ident>\d+)",
    re.MULTILINE,
)


def find_py_spy() -> str | None:
    """The py-spy program beside this Python, or else on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def knows(py_spy: str, version: tuple[int, int]) -> bool:
    """Whether a py-spy can read the stacks of a Python of this version; true where it does not show."""
    newest = newest_of_py_spy(py_spy)
    return version >= (3, _OLDEST_MINOR) and (newest is None or version <= (3, newest))


def newest_of_py_spy(py_spy: str) -> int | None:
    """The newest minor version of Python 3 that a py-spy knows; None if it does not show.

    py-spy does not say, but its program names a module per version, as in ``python_bindings::v3_13_0``.

    Args:
        py_spy: path of the program.
    """
    try:
        minors = _MODULE.findall(Path(py_spy).read_bytes())
    except OSError:
        return None
    return max(map(int, minors), default=None)


def missed_stacks(said: bytes) -> Iterator[StackMissed]:
    """Each sample that py-spy says has failed, on the one clock.

    Args:
        said: what py-spy wrote to its standard error.
    """
    # Both clocks tick alike over some seconds, unless somebody sets the time meanwhile.
    zero_ns = time.time_ns() - now_ns()
    for found in _WARNING.finditer(said):
        second = calendar.timegm(time.strptime(found["second"].decode(), "%Y-%m-%dT%H:%M:%S"))
        yield StackMissed(second * NS_PER_S + int(found["ns"]) - zero_ns, int(found["pid"]), int(found["ident"]))


def complaint(said: str) -> str:
    """What py-spy has to say of a failure, without the backtrace that may follow."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith(("error", "thread '"))]
    return [*named, *lines[-1:], "it said nothing"][0]


# Cores that py-spy may use for all processes together; the rest of DESIGN's budget is the recorder's.
BUDGET = 0.022
# CPU time of a start and of one sample: for each process, and for each Python thread in it (py-spy 0.4.2, 1 to 65
# threads, two cores). It is up to twice as much where the job fills the caches, which is learned from each segment.
_START_S, _START_THREAD_S = 0.014, 0.0006
_SAMPLE_S, _SAMPLE_THREAD_S = 0.0005, 0.00013
_COSTLIEST = 4.0
# Of trainers: as fast as the budget allows between these rates, and so many of them at most.
FASTEST_HZ, SLOWEST_HZ, AT_MOST = 20, 2, 8
# Workers of a loader are alike: a few samples of two of them show what they do.
WORKER_HZ, WORKERS_AT_MOST = 3, 2
# A process younger than this may be gone before py-spy has read its binaries.
MIN_AGE_NS = NS_PER_S // 2
FIRST_SEGMENT_S = 4  # what it cost decides about the next ones
SEGMENT_S = 11
LONG_SEGMENT_S = 16  # for few samples: to start a py-spy costs as much as 30 of them, and less is lost
# py-spy's clock starts when it has read its arguments. Measured with a process that changes its function every 50 ms of
# CLOCK_MONOTONIC: 2 to 4 ms after it was spawned; on a machine with no free core it can take longer.
START_NS = 2_500_000
START_ERROR_NS = 2_000_000
_DUMP_AT_MOST = 4  # processes whose thread identifiers are read at the start
_PATIENCE_S = 3.0
_NOT_INSTALLED = Refusal("py-spy is not installed.", "pip install py-spy (0.4 or newer) beside perfdoctor")


@dataclass
class _Segment:
    pid: int
    process: subprocess.Popen[bytes]
    trace: int
    log: int
    spawned_ns: int
    expected_s: float


class StacksProbe:
    """Runs py-spy on the processes of the job that have torch loaded."""

    name = "stacks"
    period_s = 0.2

    def __init__(self, py_spy: str | None = None) -> None:
        self._py_spy = py_spy or find_py_spy()
        self._job: Processes | None = None
        self._running: dict[int, _Segment] = {}
        self._failed: set[int] = set()
        self._threads: dict[int, int] = {}  # Python threads of each process that was asked
        self._cost_factor = 0.0  # CPU time that a segment took over what was expected; 0 while none has ended
        self._first_seen_ns: dict[int, int] = {}

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
        for pid, segment in list(self._running.items()):
            before_s = _helpers_s()
            if segment.process.poll() is not None:
                self._learn(segment, _helpers_s() - before_s)
                del self._running[pid]
                yield from self._collect(segment)
        forked = set(self._job.forked_pids()) | self._launchers()
        torch = [pid for pid in self._job.torch_pids() if pid not in self._failed]
        for pid in torch:
            self._first_seen_ns.setdefault(pid, time_ns)
        may_train = [pid for pid in torch if pid not in forked][:AT_MOST]
        for pid in may_train:
            if pid not in self._running:
                yield from self._identify_threads(pid)
                yield from self._start(pid, *self._rate(pid, len(may_train), len(forked.intersection(torch))))
        old = [pid for pid in torch if pid in forked and time_ns - self._first_seen_ns[pid] >= MIN_AGE_NS]
        for pid in old[: max(0, WORKERS_AT_MOST - sum(pid in forked for pid in self._running))]:
            if pid not in self._running:
                yield from self._start(pid, WORKER_HZ, LONG_SEGMENT_S)

    def close(self) -> Iterator[Sample]:
        """Ends the running segments early and keeps what they saw."""
        for segment in self._running.values():
            segment.process.send_signal(signal.SIGINT)
        while self._running:
            _, segment = self._running.popitem()
            try:
                segment.process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                segment.process.kill()
                segment.process.wait()
            yield from self._collect(segment)

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
        worker_start_s, worker_sample_s = self._expected_cost(0)
        for_workers = min(workers, WORKERS_AT_MOST) * (worker_start_s / LONG_SEGMENT_S + worker_sample_s * WORKER_HZ)
        affordable = (BUDGET / max(self._cost_factor, 1.0) - for_workers) / processes
        rate = int((affordable - start_s / seconds) / sample_s)
        return (min(FASTEST_HZ, rate), seconds) if rate > SLOWEST_HZ else (SLOWEST_HZ, LONG_SEGMENT_S)

    def _expected_cost(self, pid: int) -> tuple[float, float]:
        """CPU seconds expected for a start and for a sample of a process, of a worker for 0."""
        threads = self._threads.get(pid, max(self._threads.values(), default=1)) if pid else 1
        return _START_S + _START_THREAD_S * threads, _SAMPLE_S + _SAMPLE_THREAD_S * threads

    def _learn(self, segment: _Segment, used_s: float) -> None:
        if segment.process.returncode == 0:
            self._cost_factor = min(used_s / segment.expected_s, _COSTLIEST)

    def _start(self, pid: int, rate: int, seconds: int) -> Iterator[Sample]:
        assert self._py_spy is not None
        # Files in memory: they need no disk that may be full, and nothing of them stays if perfdoctor is killed.
        trace, log = os.memfd_create("trace"), os.memfd_create("log")
        command = [
            self._py_spy,
            "record",
            "--pid",
            str(pid),
            "--rate",
            str(rate),
            "--duration",
            str(seconds),
        ]
        command += ["--nonblocking", "--idle", "--full-filenames", "--format", "chrometrace"]
        command += ["--output", f"/proc/self/fd/{trace}"]
        spawned_ns = now_ns()
        # A session of its own: Ctrl-C in the terminal is for perfdoctor, which then ends py-spy itself.
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[trace],
                start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )
        except OSError as error:
            os.close(trace)
            os.close(log)
            yield self._failure(pid, f"{self._py_spy} cannot be started: {error.strerror}")
        else:
            start_s, sample_s = self._expected_cost(pid)
            expected_s = start_s + sample_s * rate * seconds
            self._running[pid] = _Segment(pid, process, trace, log, spawned_ns, expected_s)

    def _collect(self, segment: _Segment) -> Iterator[Sample]:
        payload = _contents(segment.trace)
        log = _contents(segment.log)
        said = log.decode(errors="replace").strip()
        if payload:
            zero_ns = segment.spawned_ns + START_NS
            yield StackSegment(zero_ns, START_ERROR_NS, now_ns(), segment.pid, zlib.compress(payload, 1))
            yield from missed_stacks(log)
        elif segment.process.returncode == -signal.SIGINT:
            return  # ended by us while it was still starting, before it takes signals for itself
        elif os.path.exists(f"/proc/{segment.pid}"):
            yield self._failure(segment.pid, complaint(said))
        else:
            yield Event(now_ns(), "process ended", f"process {segment.pid} ended before its stacks were read")

    def _failure(self, pid: int, why: str) -> Unavailable:
        self._failed.add(pid)
        reason = f"py-spy could not read the stacks of process {pid}: {why}"
        return Unavailable(self.name, reason, f"run `perfdoctor check {pid}` to see what it needs")

    def _identify_threads(self, pid: int) -> Iterator[Sample]:
        """Python's identifiers of the threads of a process, in which py-spy's traces speak."""
        assert self._py_spy is not None
        if pid in self._threads or len(self._threads) >= _DUMP_AT_MOST:
            return
        command = [self._py_spy, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        try:
            answer = subprocess.run(
                command, capture_output=True, timeout=_PATIENCE_S, check=True, start_new_session=True
            ).stdout
            threads = json.loads(answer)
        except (OSError, subprocess.SubprocessError, ValueError):
            self._threads[pid] = 1
            return  # the segments say what is wrong
        self._threads[pid] = len(threads)
        for thread in threads:
            if thread.get("os_thread_id"):
                yield PythonThread(
                    time.monotonic_ns(),
                    pid,
                    thread["os_thread_id"],
                    thread["thread_id"],
                    thread["thread_name"] or "",
                )


def _helpers_s() -> float:
    """CPU seconds of the helpers that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _contents(file: int) -> bytes:
    """All of a file in memory, which is then given back."""
    with open(file, "rb") as reader:
        reader.seek(0)
        return reader.read()
