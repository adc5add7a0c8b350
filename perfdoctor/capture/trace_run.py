"""A trace of one process that nobody prepared: a script runs in it, and reports in a file how far it is.

What the script does stands in ``perfdoctor.probes.inside.brief_trace``; here is the other end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perfdoctor.capture.shared_folder import SharedFolder
from perfdoctor.probes.inside import brief_trace, main_thread_call, python_hooks
from perfdoctor.probes.inside.brief_trace import ALIVE, ASKED, GO, PROBE, TOLD, TRACE
from perfdoctor.probes.readers.procfs import is_running

SCRIPT, BEGIN = "script.py", "begin.py"
# How long the main thread may take until it runs Python code: it may be in a long call.
PATIENCE_S = 10.0
_ASK_S = 0.02


class TraceRun:
    """One trace of one process.

    Args:
        pid: the process.
        functions: whether to record Python functions, too.

    Raises:
        NoRoomError: there is no folder for it.
        OSError: the process is gone.
    """

    def __init__(self, pid: int, *, functions: bool = False) -> None:
        self.pid = pid
        self._withdrawn = False
        self._folder = SharedFolder(pid)
        path = self._folder.path
        self._folder.write(SCRIPT, _script(self._folder.inner, functions=functions))
        self._folder.write(BEGIN, f"try:\n    {self.line}\nexcept BaseException:\n    pass\n")
        self._folder.write(ASKED, "")
        os.mkfifo(path / ALIVE)
        self._folder.share(path / ALIVE)
        self._alive = os.open(path / ALIVE, os.O_RDONLY | os.O_NONBLOCK)

    @property
    def line(self) -> str:
        """The line of Python that begins the trace in the process; later than asked for it does nothing."""
        script = f"__import__('pathlib').Path('{self._folder.inner}/{SCRIPT}').read_text()"
        return f"__import__('_thread').start_new_thread(exec, ({script}, {{'__name__': 'perfdoctor'}}))"

    @property
    def file(self) -> str:
        """A file with that line, as the process sees it."""
        return f"{self._folder.inner}/{BEGIN}"

    def reported(self) -> dict[str, list[str]]:
        """What the script has reported so far: the last line that begins with each word, split."""
        with suppress(OSError):
            lines = (self._folder.path / TOLD).read_text(errors="replace").splitlines(keepends=True)
            return {line.split()[0]: line.split()[1:] for line in lines if line.endswith("\n") and line.strip()}
        return {}

    def go(self, begin_ns: int, seconds: float, cpu_s: float) -> None:
        """Lets it take the trace proper.

        Args:
            begin_ns: when, on the one clock.
            seconds: how long at most.
            cpu_s: the CPU time that the process may use meanwhile.
        """
        self._folder.write(GO, f"{begin_ns} {seconds} {cpu_s}\n")

    def probe_bytes(self) -> int:
        """How large the first, short trace is."""
        return (self._folder.path / PROBE).stat().st_size

    @property
    def trace(self) -> Path:
        """The trace; there when it is complete."""
        return self._folder.path / TRACE

    def alive(self) -> bool:
        """Whether the process is."""
        return is_running(self.pid)

    def withdraw(self) -> bool:
        """Takes the request back; returns whether it had not been taken up."""
        with suppress(OSError):
            (self._folder.path / ASKED).unlink()
            self._withdrawn = True
        return self._withdrawn

    def close(self) -> None:
        """Removes everything; while the script still runs, that is left to it."""
        over = self.withdraw() or "done" in self.reported() or not self.alive()
        os.close(self._alive)
        if over:
            self._folder.remove()
        self._folder.close()


def _script(folder: str, *, functions: bool) -> str:
    """What the process runs: three files of ours as one text, in names of its own."""
    modules = (main_thread_call, python_hooks, brief_trace)
    sources = [Path(str(module.__file__)).read_text(encoding="ascii") for module in modules]
    hooks = "names['PythonHooks']()" if functions else "None"
    return (
        f"names = {{'__name__': 'perfdoctor'}}\nfor source in {sources!r}:\n    exec(source, names)\n"
        f"names['BriefTrace']({folder!r}, {PATIENCE_S}, names['MainThreadCall'], {hooks}).run()\n"
    )


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for something to become true; returns whether it has."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(_ASK_S)
    return True
