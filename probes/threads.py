"""What every thread of the job is doing: state, system call and its target, time on a CPU, time waiting for one,
faults.

Main threads of torch processes are sampled in every tick. Any other thread is sampled only if its schedstat moved:
while a thread sleeps, the kernel's counters of it stand still, so one small read shows that nothing has changed. Those
that have slept for long are asked in turn, a few in each tick.
A sample costs about 20 µs of CPU, such a check 4 µs, with the caches full of the job's data (Linux 6.18, x86-64).
"""

import os
import time
from collections.abc import Iterable, Iterator

from perfdoctor.probes import Availability, Processes, Refusal
from perfdoctor.probes.readers import syscalls
from perfdoctor.probes.readers.permissions import why_not
from perfdoctor.probes.readers.process import Candidate
from perfdoctor.probes.readers.procfs import Births
from perfdoctor.probes.readers.syscalls import Descriptors
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import Sample, ThreadSample, ThreadSeen, Unavailable

RATE_HZ = 50  # 750 samples in 15 s determine a share of a half to 4 % (two standard errors)
_LIST_THREADS_NS = NS_PER_S // 5
_DETAILS_NS = NS_PER_S // 4  # page faults are counters: now and then is enough
_SWITCHES_NS = NS_PER_S  # so are context switches, and they cost as much as five samples
_ASLEEP_NS = NS_PER_S // 4  # a thread that slept for so long will mostly sleep on
_TURNS = 5  # and is asked in every fifth tick


class _Thread:
    """Open files of one thread. They stay valid, and say so, when the thread ends."""

    def __init__(self, pid: int, tid: int) -> None:
        task = f"/proc/{pid}/task/{tid}"
        self.tid = tid
        self.schedstat = os.open(f"{task}/schedstat", os.O_RDONLY)
        self.stat = self.syscall = -1
        try:
            self.stat = os.open(f"{task}/stat", os.O_RDONLY)
            self.syscall = os.open(f"{task}/syscall", os.O_RDONLY)
        except OSError:
            if self.stat < 0:
                self.close()
                raise
        self.status = f"{task}/status"
        self.last_schedstat = b""
        self.last_call = b""
        self.last_sample: ThreadSample | None = None
        self.details_ns = self.switches_ns = self.moved_ns = 0

    def close(self) -> None:
        for file in (self.schedstat, self.stat, self.syscall):
            if file >= 0:
                os.close(file)
        self.schedstat = self.stat = self.syscall = -1


class _Process:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptors = Descriptors(pid)
        self.threads: dict[int, _Thread] = {}

    def close(self) -> None:
        for thread in self.threads.values():
            thread.close()
        self.threads.clear()
        self.descriptors.close()


class ThreadsProbe:
    """Samples the threads of every process of the job."""

    name = "threads"

    def __init__(self) -> None:
        self.period_s = 1 / RATE_HZ
        self._job: Processes | None = None
        self._processes: dict[int, _Process] = {}
        self._births = Births()
        self._listed_ns = 0
        self._turn = 0
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
        """Samples all threads once."""
        assert self._job is not None
        pids = self._job.pids()
        close_watch = set(self._job.torch_pids())
        for pid in self._processes.keys() - set(pids):
            self._processes.pop(pid).close()
        list_anew = self._list_anew(now_ns)
        self._turn = (self._turn + 1) % _TURNS
        for pid in pids:
            process = self._processes.get(pid) or self._processes.setdefault(pid, _Process(pid))
            if list_anew or not process.threads:
                process.descriptors.forget()
                yield from self._list_threads(process, now_ns)
            yield from self._sample_process(process, pid in close_watch, now_ns)

    def close(self) -> Iterable[Sample]:
        """Gives all files back."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._births.close()
        return ()

    def _list_anew(self, now_ns: int) -> bool:
        """Whether it is time to list threads that were started, and there may be any."""
        if now_ns - self._listed_ns < _LIST_THREADS_NS:
            return False
        self._listed_ns = now_ns
        return self._births.any()

    def _sample_process(self, process: _Process, closely: bool, now_ns: int) -> Iterator[Sample]:
        for tid, thread in list(process.threads.items()):
            main = closely and tid == process.pid
            if not main and now_ns - thread.moved_ns > _ASLEEP_NS and tid % _TURNS != self._turn:
                continue
            try:
                raw = os.pread(thread.schedstat, 64, 0)
                if raw != thread.last_schedstat:
                    thread.moved_ns = now_ns
                elif not main:
                    continue
                # Taken for each thread: a slow machine may pause the sampler in the middle of a tick.
                yield self._sample_thread(process, thread, raw, time.monotonic_ns())
            except OSError:
                del process.threads[tid]
                thread.close()
                yield ThreadSample(now_ns, tid, "X", None, "", 0, 0, None, None, None, None)

    def _list_threads(self, process: _Process, now_ns: int) -> Iterator[Sample]:
        try:
            tids = set(map(int, os.listdir(f"/proc/{process.pid}/task")))
        except OSError:
            return
        for tid in sorted(tids - process.threads.keys()):
            try:
                thread = _Thread(process.pid, tid)
                with open(f"/proc/{process.pid}/task/{tid}/comm", errors="replace") as comm:
                    name = comm.read().strip()
            except OSError:
                continue
            process.threads[tid] = thread
            yield ThreadSeen(now_ns, tid, process.pid, name)
            if thread.syscall < 0 and not self._syscalls_refused:
                self._syscalls_refused = True
                yield Unavailable(self.name, *_unseen(process.pid, why_not(process.pid)))

    def _sample_thread(self, process: _Process, thread: _Thread, schedstat: bytes, now_ns: int) -> ThreadSample:
        """Samples a thread, reading only what may have changed since the last sample."""
        call = os.pread(thread.syscall, 256, 0) if thread.syscall >= 0 else b""
        last = thread.last_sample
        if last is not None and call == thread.last_call and schedstat == thread.last_schedstat and not _may_run(call):
            sample = last._replace(time_ns=now_ns)
        else:
            sample = self._read_anew(process, thread, call, schedstat, now_ns)
        thread.last_call, thread.last_schedstat, thread.last_sample = call, schedstat, sample
        return sample

    def _read_anew(
        self, process: _Process, thread: _Thread, call: bytes, schedstat: bytes, now_ns: int
    ) -> ThreadSample:
        name, target = self._name_call(process, call)
        state, voluntary, involuntary, minor, major = "R", None, None, None, None
        detailed = now_ns - thread.details_ns >= _DETAILS_NS
        if detailed or not call.startswith(b"running"):
            fields = os.pread(thread.stat, 1024, 0).rpartition(b")")[2].split()
            # The two reads are not one instant: what is in a call and "runs" has just been woken.
            state, minor, major = fields[0].decode(), int(fields[7]), int(fields[9])
        if detailed:
            thread.details_ns = now_ns
        if thread.tid == process.pid and now_ns - thread.switches_ns >= _SWITCHES_NS:
            thread.switches_ns = now_ns
            voluntary, involuntary = _switches(thread.status)
        run, delay, _ = schedstat.split()
        return ThreadSample(
            now_ns,
            thread.tid,
            state,
            name,
            target,
            int(run),
            int(delay),
            voluntary,
            involuntary,
            minor,
            major,
        )

    def _name_call(self, process: _Process, call: bytes) -> tuple[str | None, str]:
        words = call.split()
        if not words or words[0] == b"running":
            return None, ""
        number = int(words[0])
        if number < 0:
            return "fault", ""
        name = syscalls.NAMES.get(number, f"syscall_{number}")
        return name, process.descriptors.target(name, [int(word, 16) for word in words[1:7]])


def _unseen(pid: int | None, why: Refusal) -> Refusal:
    return Refusal(f"The system calls of process {pid} stay unseen. {why.reason}", why.enable)


def _may_run(call: bytes) -> bool:
    return not call or call.startswith((b"running", b"-1"))


def _switches(status: str) -> tuple[int | None, int | None]:
    with open(status, "rb") as file:
        lines = file.read().split(b"\n")
    found = {line.split(b":")[0]: int(line.split()[1]) for line in lines if b"ctxt_switches" in line}
    return found.get(b"voluntary_ctxt_switches"), found.get(b"nonvoluntary_ctxt_switches")
