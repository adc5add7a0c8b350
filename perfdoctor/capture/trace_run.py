"""A trace of one process that nobody prepared: a script runs in it, and tells in a file how far it is.

What the script does stands in ``perfdoctor.probes.inside.brief_trace``; here is the other end. Both meet in a folder
that the process can write to, which may have another root directory (a container).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perfdoctor.probes.inside import brief_trace
from perfdoctor.probes.inside.brief_trace import ALIVE, ASKED, GO, PROBE, TOLD, TRACE
from perfdoctor.probes.readers.permissions import owner_of
from perfdoctor.probes.readers.procfs import is_running

# Where the folder may be, in the order of preference, as the process sees it.
PLACES = ("/tmp", "/var/tmp", "/dev/shm")
SCRIPT, BEGIN = "script.py", "begin.py"
# Two traces, and a JSON file while it is being written.
ROOM_BYTES = 256 << 20
# How long the main thread may take until it runs Python code: it may be in a long call.
PATIENCE_S = 10.0


class NoRoomError(Exception):
    """There is no folder that both can use. The message is one sentence."""


class TraceRun:
    """One trace of one process.

    Args:
        pid: the process.

    Raises:
        NoRoomError: there is no folder for it.
        OSError: the process is gone.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        root = Path(f"/proc/{pid}/root")
        self._folder, self._inner = _make_folder(root)
        owner, us = owner_of(pid), os.geteuid()
        source = Path(brief_trace.__file__).read_text(encoding="ascii")
        (self._folder / SCRIPT).write_text(f"{source}\n\nBriefTrace({self._inner!r}, {PATIENCE_S}).run()\n")
        (self._folder / BEGIN).write_text(f"try:\n    {self.line}\nexcept BaseException:\n    pass\n")
        (self._folder / ASKED).touch()
        os.mkfifo(self._folder / ALIVE)
        for name in (SCRIPT, BEGIN, ASKED, ALIVE, "."):
            if owner != us:
                os.chown(self._folder / name, owner, -1)
        self._alive = os.open(self._folder / ALIVE, os.O_RDONLY | os.O_NONBLOCK)

    @property
    def line(self) -> str:
        """The line of Python that begins the trace in the process; later than asked for it does nothing."""
        script = f"{self._inner}/{SCRIPT}"
        return f"__import__('_thread').start_new_thread(exec, (open({script!r}).read(), {{'__name__': 'perfdoctor'}}))"

    @property
    def file(self) -> str:
        """A file with that line, as the process sees it."""
        return f"{self._inner}/{BEGIN}"

    def told(self) -> dict[str, list[str]]:
        """What the script has told so far: the last line that begins with each word, split."""
        with suppress(OSError):
            lines = (self._folder / TOLD).read_text(errors="replace").splitlines(keepends=True)
            return {line.split()[0]: line.split()[1:] for line in lines if line.endswith("\n") and line.strip()}
        return {}

    def go(self, begin_ns: int, seconds: float, cpu_s: float) -> None:
        """Lets it take the trace proper.

        Args:
            begin_ns: when, on the one clock.
            seconds: how long at most.
            cpu_s: the CPU time that the process may use meanwhile.
        """
        partial = self._folder / f"{GO}.part"
        partial.write_text(f"{begin_ns} {seconds} {cpu_s}\n")
        if owner_of(self.pid) != os.geteuid():
            os.chown(partial, owner_of(self.pid), -1)
        partial.rename(self._folder / GO)

    def probe_bytes(self) -> int:
        """How large the first, short trace is."""
        return (self._folder / PROBE).stat().st_size

    @property
    def trace(self) -> Path:
        """The trace; there when it is complete."""
        return self._folder / TRACE

    def alive(self) -> bool:
        """Whether the process is."""
        return is_running(self.pid)

    def withdraw(self) -> bool:
        """Takes the request back; returns whether it had not been taken up."""
        try:
            (self._folder / ASKED).unlink()
        except OSError:
            return not self.alive()
        return True

    def close(self) -> None:
        """Removes everything; while the script still runs, that is left to it."""
        over = self.withdraw() or "done" in self.told() or not self.alive()
        os.close(self._alive)
        if over:
            shutil.rmtree(self._folder, ignore_errors=True)


def _make_folder(root: Path) -> tuple[Path, str]:
    """A new folder, as we see it and as the process does."""
    why = "there is none"
    for place in PLACES:
        try:
            free = os.statvfs(root / place[1:])
            if free.f_bavail * free.f_frsize < ROOM_BYTES:
                why = f"{place} is full"
                continue
            folder = Path(tempfile.mkdtemp(prefix="perfdoctor-trace-", dir=root / place[1:]))
        except OSError as error:
            why = f"{place}: {error.strerror}"
            continue
        return folder, f"{place}/{folder.name}"
    raise NoRoomError(f"There is no folder for the trace ({why}).")


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for something to become true; returns whether it has."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
