"""One thread of a process, as /proc shows it: state, system call, time on a CPU, time waiting for one, faults."""

from __future__ import annotations

from perfdoctor.probes.readers import syscalls
from perfdoctor.probes.readers.kept_files import KeptFile, Room
from perfdoctor.probes.readers.syscalls import Descriptors
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import ThreadSample

# torch's threads of the backward pass, one for each device, which the first one starts (torch/csrc/autograd/engine.cpp;
# named since 2.4).
AUTOGRAD = "pt_autograd_"
_DETAILS_NS = NS_PER_S // 4  # page faults are counters: now and then is enough, but where they are asked for
_SWITCHES_NS = NS_PER_S  # so are context switches, and they cost as much as five samples


class Task:
    """A thread and its open files, which stay valid, and say so, when the thread ends.

    Args:
        folder: of the thread in /proc.
        is_main: it is its process's main thread, whose context switches are read.
        descriptors: of its process.
        room: for files that are kept open.

    Attributes:
        tid: its id.
        refused: its system calls may not be seen.
        computed: of the time between its last two samples, the fraction that it was on a CPU.
        children_faults: page faults, without a device, of its process's children that have ended and were waited for.
    """

    def __init__(self, folder: str, *, is_main: bool, descriptors: Descriptors, room: Room) -> None:
        self.tid = int(folder.rpartition("/")[2])
        self.is_main = is_main
        self.refused = False
        self.computed = 0.0
        self.children_faults = 0
        self._descriptors = descriptors
        self._schedstat = KeptFile(f"{folder}/schedstat", room)
        self._stat = KeptFile(f"{folder}/stat", room)
        self._syscall = KeptFile(f"{folder}/syscall", room)
        self._status = KeptFile(f"{folder}/status", room)
        self._last_schedstat = b""
        self._last_call = b""
        self._last: ThreadSample | None = None
        self._details_ns = self._switches_ns = 0

    def moved(self) -> bool:
        """Whether it has run, or waited for a CPU, since the last sample: one small read.

        Raises:
            OSError: it has ended.
        """
        return self._schedstat.read(64) != self._last_schedstat

    def sample(self, now_ns: int, *, with_faults: bool = False) -> ThreadSample:
        """Samples it, reading only what may have changed since the last sample.

        Args:
            now_ns: the time.
            with_faults: its page faults are counted now, and not only now and then.

        Raises:
            OSError: it has ended.
        """
        schedstat = self._schedstat.read(64)
        call = self._call()
        last = self._last
        if last is not None and call == self._last_call and schedstat == self._last_schedstat and not _may_run(call):
            sample = last._replace(time_ns=now_ns)
        else:
            sample = self._read_anew(call, schedstat, now_ns, with_faults=with_faults)
        if last is not None and now_ns > last.time_ns:
            self.computed = (sample.run_ns - last.run_ns) / (now_ns - last.time_ns)
        self._last_call, self._last_schedstat, self._last = call, schedstat, sample
        return sample

    def rest(self) -> None:
        """Gives back what is not needed to see whether it sleeps on."""
        for file in (self._stat, self._syscall, self._status):
            file.close()

    def close(self) -> None:
        """Gives all files back."""
        self.rest()
        self._schedstat.close()

    def _call(self) -> bytes:
        if self.refused:
            return b""
        try:
            return self._syscall.read(256)
        except PermissionError:
            self.refused = True
            return b""

    def _read_anew(self, call: bytes, schedstat: bytes, now_ns: int, *, with_faults: bool) -> ThreadSample:
        name, target = self._name_call(call)
        state, voluntary, involuntary, minor, major = "R", None, None, None, None
        detailed = now_ns - self._details_ns >= _DETAILS_NS or not call.startswith(b"running")
        if detailed or with_faults:
            fields = self._stat.read(1024).rpartition(b")")[2].split()
            # The two reads are not one instant: what is in a call and "runs" has just been woken.
            state = fields[0].decode() if detailed else state
            minor, self.children_faults, major = int(fields[7]), int(fields[8]), int(fields[9])
        if now_ns - self._details_ns >= _DETAILS_NS:
            self._details_ns = now_ns
        if self.is_main and now_ns - self._switches_ns >= _SWITCHES_NS:
            self._switches_ns = now_ns
            voluntary, involuntary = _switches(self._status.read(4096))
        run, delay, _ = map(int, schedstat.split())
        return ThreadSample(
            now_ns, self.tid, state, name, target, run, delay, voluntary, involuntary, minor, major
        )  # fmt: skip

    def _name_call(self, call: bytes) -> tuple[str | None, str]:
        words = call.split()
        if not words or words[0] == b"running":
            return None, ""
        number = int(words[0])
        if number < 0:
            return "fault", ""
        arguments = [int(word, 16) for word in words[1:7]]
        name = syscalls.name_of_call(number, arguments)
        return name, self._descriptors.target(name, arguments, self.tid)


def _may_run(call: bytes) -> bool:
    return not call or call.startswith((b"running", b"-1"))


def _switches(status: bytes) -> tuple[int | None, int | None]:
    found = {line.split(b":")[0]: int(line.split()[1]) for line in status.split(b"\n") if b"ctxt_switches" in line}
    return found.get(b"voluntary_ctxt_switches"), found.get(b"nonvoluntary_ctxt_switches")
