"""Watch a running job and say what holds it back.

PID may be a trainer, a launcher (torchrun, a shell, a notebook kernel) or a loader worker: the job is found from there.
Without PID it is this host's only training job; where there are several (`perfdoctor ps`), it asks on a terminal.
Nothing in the job is changed, unless --trace asks for a short run of torch.profiler in it. Ctrl-C ends the watching
early and diagnoses what was seen.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

from perfdoctor.capture.job import Job
from perfdoctor.capture.jobs import find_jobs
from perfdoctor.capture.recorder import record
from perfdoctor.capture.recording_file import recording_file, report_leftovers, require_replaceable
from perfdoctor.capture.target import process_id, require_target, require_torch
from perfdoctor.capture.trace_job import trace
from perfdoctor.commands.arguments import duration
from perfdoctor.commands.job_list import choose
from perfdoctor.probes import all_probes
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Sample
from perfdoctor.reports.outputs import (
    add_output_arguments,
    asked_files,
    conclude,
    deliver,
    require_folders,
    require_places,
)

# Enough for a verdict that is right (docs/accuracy.md), and short enough to wait for.
DEFAULT_DURATION_S = 15.0
_ANALYSIS = (
    *("perfdoctor.analysis.from_recording", "perfdoctor.reports.console"),
    *("rich.console", "rich.table", "rich.padding"),
)
_HTML = ("perfdoctor.reports.html", "jinja2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor attach``."""
    parser.add_argument(
        "pid", type=process_id, nargs="?", metavar="PID", help="any process of the job; without it, the only job here"
    )
    parser.add_argument(
        "--duration",
        type=duration("seconds", 86_400),
        default=DEFAULT_DURATION_S,
        metavar="S",
        help="seconds to watch (default: 15)",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="then run torch.profiler in the trainers for at most 5 s; puts code into the job, and takes it out again",
    )
    add_output_arguments(parser)
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="keep what was recorded, for `perfdoctor report FILE`"
    )


def run(arguments: argparse.Namespace) -> int:
    """Records the job, then makes the diagnosis and the reports."""
    require_places(*asked_files(arguments).values(), force=arguments.force)
    require_folders(arguments.recording)
    require_replaceable(arguments.recording, force=arguments.force)
    pid = choose(find_jobs()) if arguments.pid is None else arguments.pid
    require_target(pid)
    require_torch(pid)
    report_leftovers()
    _load_analysis(html=arguments.report is not None)
    from perfdoctor.analysis.from_recording import examine

    with recording_file(arguments.recording, force=arguments.force) as path:
        with _progress(arguments.duration) as on_tick:
            afterwards = partial(_traces, path) if arguments.trace else tuple
            record(Job(pid), path, arguments.duration, all_probes(), on_tick=on_tick, afterwards=afterwards)
        with Recording.open(path) as recording:
            diagnosis = examine(recording)
        deliver(diagnosis, recording=path, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis)
    return 0


def _traces(path: Path) -> Iterator[Sample]:
    """Traces of those that were seen to train."""
    from perfdoctor.timeline.job import JobTimeline

    with Recording.open(path) as recording:
        trainers = [trainer.pid for trainer in JobTimeline(recording).processes.trainers]
    if sys.stderr.isatty():
        print("perfdoctor: tracing the job …", file=sys.stderr)
    yield from trace(trainers)


def _load_analysis(*, html: bool) -> None:
    """Loads what the diagnosis and its reports need, before the watching.

    Beside a job that takes every core, loading numpy costs seconds, which the user would otherwise
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
