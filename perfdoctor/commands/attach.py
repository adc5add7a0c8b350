"""Watch a running job and say what holds it back.

PID may be a trainer, a launcher (torchrun, a shell, a notebook kernel) or a loader worker: the job is found from there.
Nothing in the job is changed. Ctrl-C ends the watching early and diagnoses what was seen.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.clock import now_ns
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.job import Job
from perfdoctor.outputs import add_output_arguments, conclude, deliver, require_places
from perfdoctor.probes import Probe
from perfdoctor.recorder import Recorder
from perfdoctor.recording import Recording, RecordingWriter
from perfdoctor.recording_file import recording_file, tell_of_leftovers
from perfdoctor.target import require_target

DEFAULT_DURATION_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor attach``."""
    parser.add_argument("pid", type=int, metavar="PID", help="any process of the job")
    parser.add_argument(
        "--duration",
        type=_seconds,
        default=DEFAULT_DURATION_S,
        metavar="S",
        help="seconds to watch (default: 15)",
    )
    add_output_arguments(parser)
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="keep what was recorded, for `perfdoctor report FILE`"
    )


def run(arguments: argparse.Namespace) -> int:
    """Records the job, then makes the diagnosis and the reports."""
    require_target(arguments.pid)
    require_places(arguments.report, arguments.json)
    tell_of_leftovers()
    with recording_file(arguments.recording) as path:
        _record(arguments.pid, arguments.duration, path)
        diagnosis = _diagnose(path)
        deliver(diagnosis, report=arguments.report, json=arguments.json, recording=path)
    conclude(diagnosis)
    return 0


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


def _record(pid: int, duration_s: float, path: Path) -> None:
    _allow_many_files()
    meta = {
        "start_ns": str(now_ns()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "perfdoctor": __version__,
        "asked_pid": str(pid),
        "host": platform.node(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": str(os.cpu_count() or 1),
    }
    writer = RecordingWriter(path, meta)
    recorder = Recorder(Job(pid), make_probes(), writer)
    with _progress(duration_s) as on_tick, _stopped_by_signals(recorder):
        recorder.run(duration_s, on_tick=on_tick)
    writer.close()


def _diagnose(path: Path) -> Diagnosis:
    # Here, not above: the analysis loads pandas, which has no business in memory while the job is watched.
    from perfdoctor.examine import examine

    recording = Recording.open(path)
    diagnosis = examine(recording)
    recording.close()
    return diagnosis


def _allow_many_files() -> None:
    """Watching a thread takes three open files, and a soft limit of 1024 is common."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _stopped_by_signals(recorder: Recorder) -> Iterator[None]:
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


@contextmanager
def _progress(duration_s: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("watching the job"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2) as progress:
        task = progress.add_task("", total=duration_s)
        yield lambda watched: progress.update(task, completed=watched)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and less than a day, in seconds")
    return value
