"""Python stacks of every process of the job, through py-spy, without stopping anything (``--nonblocking``).

py-spy writes its trace only when it ends, so it is run in segments of a few seconds: a kill loses one segment at most.
Idle threads are included, because a wait is as telling as work, and because in py-spy's chrometrace format an idle gap
would otherwise prolong whatever ran before it. Each segment is kept as py-spy wrote it; reading it costs time that the
recorder does not have. Measured: 0.8 ms of CPU per process and sample.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.clock import NS_PER_S, now_ns
from perfdoctor.probes import Processes
from perfdoctor.samples import Event, PythonThread, Sample, StackSegment, Unavailable

FASTEST_HZ = 25
SLOWEST_HZ = 4
# Processes times rate: what py-spy may sample per second and stay within 2.5 % of a core.
SAMPLES_PER_S = 30
SEGMENT_S = 5
_DUMP_AT_MOST = 4  # processes whose thread identifiers are read at the start
_PATIENCE_S = 3.0
_ENABLE = "pip install py-spy (0.4 or newer) beside perfdoctor"


def find_py_spy() -> str | None:
    """The py-spy program beside this Python, or else on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


@dataclass
class _Segment:
    root_pid: int
    process: subprocess.Popen[bytes]
    folder: Path
    spawned_ns: int


class StacksProbe:
    """Runs one py-spy per topmost Python process of the job; it follows that process's children by itself."""

    name = "stacks"
    period_s = 0.2

    def __init__(self, py_spy: str | None = None) -> None:
        self._py_spy = py_spy or find_py_spy()
        self._job: Processes | None = None
        self._running: dict[int, _Segment] = {}
        self._failed: set[int] = set()
        self._dumped: set[int] = set()

    def open(self, job: Processes) -> Iterator[Sample]:
        """Starts py-spy on what is there."""
        self._job = job
        if self._py_spy is None:
            yield Unavailable(self.name, "py-spy is not installed", _ENABLE)
            return
        yield from self.sample(now_ns())

    def sample(self, time_ns: int) -> Iterator[Sample]:
        """Collects finished segments and starts the next ones."""
        if self._py_spy is None or self._job is None:
            return
        for root, segment in list(self._running.items()):
            if segment.process.poll() is not None:
                del self._running[root]
                yield from self._collect(segment)
        living = set(self._job.pids())
        for root in self._roots():
            if root not in self._running and root not in self._failed and root in living:
                yield from self._identify_threads(root)
                self._running[root] = self._start(root)

    def close(self) -> Iterator[Sample]:
        """Ends the running segments early and keeps what they saw."""
        for segment in self._running.values():
            segment.process.send_signal(signal.SIGINT)
        for segment in self._running.values():
            try:
                segment.process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                segment.process.kill()
                segment.process.wait()
            yield from self._collect(segment)
        self._running.clear()

    def _roots(self) -> list[int]:
        """Torch processes that are no descendants of other torch processes."""
        assert self._job is not None
        torch = self._job.torch_pids()
        return [pid for pid in torch if not any(ancestor in torch for ancestor in _ancestors(pid))]

    def _rate(self) -> int:
        assert self._job is not None
        return max(SLOWEST_HZ, min(FASTEST_HZ, SAMPLES_PER_S // max(1, len(self._job.torch_pids()))))

    def _start(self, root: int) -> _Segment:
        assert self._py_spy is not None
        folder = Path(tempfile.mkdtemp(prefix="perfdoctor-"))
        command = [self._py_spy, "record", "--pid", str(root), "--rate", str(self._rate()), "--duration", str(SEGMENT_S)]
        command += ["--nonblocking", "--idle", "--subprocesses", "--full-filenames", "--format", "chrometrace"]
        command += ["--output", str(folder / "trace.json")]
        with (folder / "log").open("wb") as log:
            spawned_ns = now_ns()
            # A session of its own: Ctrl-C in the terminal is for perfdoctor, which then ends py-spy itself.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return _Segment(root, process, folder, spawned_ns)

    def _collect(self, segment: _Segment) -> Iterator[Sample]:
        trace, log = segment.folder / "trace.json", segment.folder / "log"
        try:
            payload = trace.read_bytes() if trace.exists() else b""
            said = log.read_text(errors="replace").strip()
        finally:
            shutil.rmtree(segment.folder, ignore_errors=True)
        if payload:
            # py-spy's clock starts when it has read its arguments: some milliseconds after it was spawned.
            error_ns = NS_PER_S // 100
            yield StackSegment(segment.spawned_ns, error_ns, now_ns(), segment.root_pid, zlib.compress(payload, 1))
        elif os.path.exists(f"/proc/{segment.root_pid}"):
            self._failed.add(segment.root_pid)
            last = said.splitlines()[-1] if said else "it said nothing"
            reason = f"py-spy could not read the stacks of process {segment.root_pid}: {last}"
            yield Unavailable(self.name, reason, "run `perfdoctor check PID` to see what it needs")
        else:
            yield Event(now_ns(), "process ended", f"process {segment.root_pid} ended before its stacks were read")

    def _identify_threads(self, pid: int) -> Iterator[Sample]:
        """Python's identifiers of the threads of a process, in which py-spy's traces speak."""
        assert self._py_spy is not None
        if pid in self._dumped or len(self._dumped) >= _DUMP_AT_MOST:
            return
        self._dumped.add(pid)
        command = [self._py_spy, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        try:
            answer = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True).stdout
            threads = json.loads(answer)
        except (OSError, subprocess.SubprocessError, ValueError):
            return  # the segments say what is wrong
        for thread in threads:
            if thread.get("os_thread_id"):
                yield PythonThread(
                    time.monotonic_ns(), pid, thread["os_thread_id"], thread["thread_id"], thread["thread_name"] or ""
                )


def _ancestors(pid: int) -> Iterable[int]:
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return
        yield pid
