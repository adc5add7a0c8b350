"""Watching a job and making the diagnosis, as `attach` and the sidecar of `diagnose()` both do it."""

from __future__ import annotations

import gc
import os
import platform
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.capture.recorder import Recorder
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.probes import Probe
from perfdoctor.recording.clock import now_ns
from perfdoctor.recording.reader import Recording

_ANALYSIS = (
    *("perfdoctor.analysis.from_recording", "perfdoctor.reports.console"),
    *("rich.console", "rich.table", "rich.padding"),
)
_CHARTS = ("matplotlib.backends.backend_svg", "matplotlib.figure", "matplotlib.ticker")
_HTML = ("perfdoctor.reports.html", "jinja2", *_CHARTS)


def make_probes() -> list[Probe]:
    """All probes that can look from outside."""
    from perfdoctor.probes.code import CodeProbe
    from perfdoctor.probes.cpu import CpuProbe
    from perfdoctor.probes.gpu import GpuProbe
    from perfdoctor.probes.interpreter import InterpreterProbe
    from perfdoctor.probes.io import IoProbe
    from perfdoctor.probes.memory import MemoryProbe
    from perfdoctor.probes.network import NetworkProbe
    from perfdoctor.probes.stacks import StacksProbe
    from perfdoctor.probes.threads import ThreadsProbe

    return [
        CodeProbe(),  # the first is closed last: it then looks up the names of functions
        ThreadsProbe(),
        InterpreterProbe(),
        StacksProbe(),
        CpuProbe(),
        MemoryProbe(),
        IoProbe(),
        NetworkProbe(),
        GpuProbe(),
    ]


def recording_facts(pid: int) -> dict[str, str]:
    """What is known when a recording begins; the clock starts here."""
    return {
        "start_ns": str(now_ns()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "perfdoctor": __version__,
        "asked_pid": str(pid),
        "host": platform.node(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": str(os.cpu_count() or 1),
        "reachable_cores": str(len(os.sched_getaffinity(0))),
    }


def allow_many_files() -> None:
    """Watching a thread takes three open files, and a soft limit of 1024 is common."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def stopped_by_signals(recorder: Recorder) -> Iterator[None]:
    """Lets Ctrl-C, SIGTERM and a terminal that closes end the watching between two ticks; nothing is left half done.

    A signal that is ignored (``nohup``, a background process of a script) stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda *_: recorder.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def load_analysis(*, html: bool) -> None:
    """Loads what the diagnosis and its reports need, before the watching.

    Beside a job that takes every core, loading numpy and matplotlib costs seconds, which the user would otherwise
    wait for after the watching. What is loaded stays: the collector, which would look through it time and again while
    it grows, waits for the end and passes it over from then on.

    Args:
        html: an HTML report will be made too.
    """
    gc.disable()
    for needed in _ANALYSIS + (_HTML if html else ()):
        import_module(needed)
    gc.enable()
    gc.freeze()


def examine_file(path: Path) -> Diagnosis:
    """The diagnosis of what was recorded."""
    # Here, not above: the analysis brings numpy, and what only watches does without.
    from perfdoctor.analysis.from_recording import examine

    recording = Recording.open(path)
    diagnosis = examine(recording)
    recording.close()
    return diagnosis
