"""A live view in a process of its own beside the recorder: what it draws and computes delays no sample."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from perfdoctor.errors import PerfDoctorError
from perfdoctor.live.viewer import show
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.schema import Reading
from perfdoctor.reports.language import ENGLISH, language
from perfdoctor.reports.terminal import restore, settings

# Below the job's own, and high enough for a view every second: on a machine whose cores are all taken the lowest
# priority, 19, gets 1.5 % of one (sched(7): a weight of 15 beside 1024), which is half a minute for one diagnosis.
_NICENESS = 10
_PATIENCE_S = 3.0


class Viewer:
    """The process.

    Attributes:
        pid: its id.
    """

    def __init__(self, process: BaseProcess) -> None:
        self._process, self.pid = process, process.pid or 0

    def has_quit(self) -> bool:
        """Whether the user has seen enough, without waiting for the process: what it used is counted at its end."""
        return bool(wait([self._process.sentinel], 0))

    def end(self) -> Iterator[Reading]:
        """Ends it, and says what it has used."""
        before_s = _helpers_s()
        self._process.terminate()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        yield Reading(now_ns(), "recorder", "perfdoctor", "view_cpu_seconds_total", _helpers_s() - before_s)


@contextmanager
def viewing(path: Path) -> Iterator[Viewer]:
    """Shows a recording that is about to begin; at the end the terminal is as it was.

    The process is forked, so that it need not load again what the analysis needs.
    """
    kept = settings()
    process = multiprocessing.get_context("fork").Process(target=_show, args=(path, os.getpid()), daemon=True)
    process.start()
    try:
        yield Viewer(process)
    finally:
        if process.is_alive():
            process.terminate()
            process.join()
        if process.exitcode:
            restore(kept)


def _show(path: Path, recorder: int) -> None:
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever records is interrupted, and ends this process
    try:
        with language(ENGLISH):  # the columns of its tables are as wide as English needs them
            show(path, beside_recorder=True, wanted=lambda: os.getppid() == recorder)
    except PerfDoctorError as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(1)


def _helpers_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
