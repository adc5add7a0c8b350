"""Processes beside the recorder: what they read, compute, draw and send delays no sample."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfDoctorError
from perfdoctor.live.budget import NICENESS
from perfdoctor.live.viewer import show
from perfdoctor.recording.clock import helpers_s, now_ns
from perfdoctor.recording.schema import Reading
from perfdoctor.reports.language import for_stream
from perfdoctor.reports.terminal import restore, settings

_PATIENCE_S = 3.0  # until a process beside the recorder is ended by force


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a process of lower priority, which this one ends; Ctrl-C does not.

    It is forked, so that it need not load again what the analysis needs.

    Args:
        target: what it does, until ``wanted``, which it is given besides, says that nobody needs it any more.
        arguments: what it is given.
    """
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(target, arguments, os.getpid()), daemon=True
    )
    process.start()
    return process


def end(process: BaseProcess) -> None:
    """Ends a process, and waits until it has."""
    process.terminate()
    process.join(_PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()


def _run(target: Callable[..., None], arguments: tuple[Any, ...], parent: int) -> None:
    os.nice(NICENESS)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)  # what they do in whoever records is not for this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever records is interrupted, and ends this process
    try:
        target(*arguments, wanted=lambda: os.getppid() == parent)
    except PerfDoctorError as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(1)


class Viewer:
    """The process of a live view.

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
        before_s = helpers_s()
        end(self._process)
        yield Reading(now_ns(), "recorder", "perfdoctor", "view_cpu_seconds_total", helpers_s() - before_s)


@contextmanager
def viewing(path: Path) -> Iterator[Viewer]:
    """Shows a recording that is about to begin; at the end the terminal is as it was."""
    kept = settings()
    process = start(_show, path)
    try:
        yield Viewer(process)
    finally:
        end(process)
        if process.exitcode:
            restore(kept)


def _show(path: Path, wanted: Callable[[], bool]) -> None:
    with for_stream(sys.stdout, quietly=True):  # it is said again where the report is printed
        show(path, beside_recorder=True, wanted=wanted)
