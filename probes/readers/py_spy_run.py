"""One py-spy that samples one process for some seconds, and the trace that it writes when it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path

from perfdoctor.probes.readers.procfs import CLOCK_TICKS_PER_S, stat_fields
from perfdoctor.probes.readers.py_spy import ENVIRONMENT, began_ns
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import StackSegment
from perfdoctor.recording.stack_segments import file_for

# py-spy's clock starts when it has read its arguments, which it reports in the end; until then this is what is known.
# Measured with a process that changes its function every 20 ms of CLOCK_MONOTONIC: 1 to 13 ms after it was spawned.
START_NS = 2_500_000
START_ERROR_NS = 10_000_000
REPORTED_ERROR_NS = 500_000
_PATIENCE_S = 3.0
_F_SETSIG = 10  # Linux, fcntl(2)


class PySpyRun:
    """Starts a py-spy. It is interrupted, and so writes what it has seen, when perfdoctor is killed.

    Args:
        py_spy: the program.
        pid: whom to sample.
        rate: samples per second.
        seconds: for how long.
        recording: the file beside which the trace lies until it is taken; None keeps it in memory.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, py_spy: str, pid: int, rate: int, seconds: int, recording: Path | None) -> None:
        self.pid = pid
        self._zero_ns = now_ns() + START_NS
        self._file = recording and file_for(recording, pid, self._zero_ns, START_ERROR_NS)
        self._trace = self._open_trace()
        self._log = os.memfd_create("log")
        ours, theirs = _lifeline()
        command = [py_spy, "record", "--pid", str(pid), "--rate", str(rate), "--duration", str(seconds)]
        command += ["--nonblocking", "--idle", "--full-filenames", "--format", "chrometrace"]
        command += ["--output", f"/proc/self/fd/{self._trace}"]
        try:
            # A session of its own: Ctrl-C in the terminal is for perfdoctor, which then ends py-spy itself.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[self._trace, theirs],
                start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )
            fcntl.fcntl(theirs, fcntl.F_SETOWN, self._process.pid)
        except OSError:
            os.close(ours)
            os.close(self._trace)
            os.close(self._log)
            self._remove()
            raise
        finally:
            os.close(theirs)
        self._lifeline = ours

    @property
    def status(self) -> int | None:
        """Its exit status, as subprocess has it; None while it runs."""
        return self._process.poll()

    def cpu_s(self) -> float:
        """CPU time that it has used; 0 if it has gone."""
        try:
            user, system = stat_fields(Path(f"/proc/{self._process.pid}/stat").read_bytes())[11:13]
        except OSError:
            return 0.0
        return (int(user) + int(system)) / CLOCK_TICKS_PER_S

    def interrupt(self) -> None:
        """Asks it to write what it has, and end."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Waits until it has ended, and kills it if that takes long."""
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def take(self) -> tuple[StackSegment | None, bytes]:
        """What it has seen, None if nothing, and what it said. To be called once, when it has ended."""
        os.close(self._lifeline)
        trace = _contents(self._trace)
        self._remove()
        said = _contents(self._log)
        reported_ns = began_ns(said)
        zero_ns, error_ns = (self._zero_ns, START_ERROR_NS) if reported_ns is None else (reported_ns, REPORTED_ERROR_NS)
        segment = StackSegment(zero_ns, error_ns, now_ns(), self.pid, zlib.compress(trace, 1))
        return segment if trace else None, said

    def _open_trace(self) -> int:
        """A file beside the recording, or in memory where there may be none."""
        if self._file is not None:
            try:
                return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except OSError:
                self._file = None
        return os.memfd_create("trace")

    def _remove(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()


def _lifeline() -> tuple[int, int]:
    """Two ends of a pipe: when the first one closes, and were it by SIGKILL, the owner of the second is interrupted."""
    theirs, ours = os.pipe()
    fcntl.fcntl(theirs, _F_SETSIG, signal.SIGINT)
    fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.fcntl(theirs, fcntl.F_GETFL) | os.O_ASYNC)
    return ours, theirs


def _contents(file: int) -> bytes:
    """All of a file, which is then closed."""
    with open(file, "rb") as reader:
        reader.seek(0)
        return reader.read()
