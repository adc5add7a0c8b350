"""Watch a running job and say what holds it back.

PID may be a trainer, a launcher (torchrun, a shell, a notebook kernel) or a loader worker: the job is found from there.
Nothing in the job is changed. Ctrl-C ends the watching early and diagnoses what was seen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfdoctor.capture.family import require_torch
from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import Recorder
from perfdoctor.capture.recording_file import recording_file, tell_of_leftovers
from perfdoctor.capture.target import process_id, require_target
from perfdoctor.capture.watch import (
    allow_many_files,
    examine_file,
    load_analysis,
    make_probes,
    recording_facts,
    stopped_by_signals,
)
from perfdoctor.recording.writer import RecordingWriter
from perfdoctor.reports.outputs import add_output_arguments, conclude, deliver, require_places

DEFAULT_DURATION_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor attach``."""
    parser.add_argument("pid", type=process_id, metavar="PID", help="any process of the job")
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
    require_torch(arguments.pid)
    require_places(arguments.report, arguments.json)
    tell_of_leftovers()
    load_analysis(html=arguments.report is not None)
    with recording_file(arguments.recording) as path:
        _record(arguments.pid, arguments.duration, path)
        diagnosis = examine_file(path)
        deliver(diagnosis, report=arguments.report, json=arguments.json, recording=path)
    conclude(diagnosis)
    return 0


def _record(pid: int, duration_s: float, path: Path) -> None:
    allow_many_files()
    writer = RecordingWriter(path, recording_facts(pid))
    recorder = Recorder(Job(pid), make_probes(), writer)
    with _progress(duration_s) as on_tick, stopped_by_signals(recorder):
        recorder.run(duration_s, on_tick=on_tick)
    writer.close()


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
