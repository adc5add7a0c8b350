"""Watch a running job and say what holds it back.

PID may be a trainer, a launcher (torchrun, a shell, a notebook kernel) or a loader worker: the job is found from there.
Without PID it is this host's only training job; where there are several (`perfdoctor ps`), it asks on a terminal.
Nothing in the job is changed, unless --trace or --trace-lines asks for a short run of torch.profiler in it. Ctrl-C ends
the watching early and diagnoses what was seen. --live shows the job meanwhile, until q is pressed.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
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
from perfdoctor.reports.terminal import require_terminal

# Enough for a verdict that is right (docs/accuracy.md), and short enough to wait for.
DEFAULT_DURATION_S = 15.0
# A view is ended by its user; one that is forgotten shall not fill the disk.
LIVE_DURATION_S = 3600.0
_ANALYSIS = (
    *("perfdoctor.analysis.from_recording", "perfdoctor.reports.console"),
    *("rich.console", "rich.table", "rich.padding"),
)
_LIVE = ("perfdoctor.analysis.live_view", "perfdoctor.live.beside", "rich.text")
_HTML = ("perfdoctor.reports.html", "jinja2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor attach``."""
    parser.add_argument(
        "pid", type=process_id, nargs="?", metavar="PID", help="any process of the job; without it, the only job here"
    )
    parser.add_argument(
        "--duration",
        type=duration("seconds", 86_400),
        metavar="S",
        help="seconds to watch (default: 15; with --live until you quit, an hour at most)",
    )
    parser.add_argument("--live", action="store_true", help="show the job on the terminal while it is watched")
    parser.add_argument(
        "--trace",
        action="store_true",
        help="then run torch.profiler in the trainers for at most 5 s; puts code into the job, and takes it out again",
    )
    parser.add_argument(
        "--trace-lines",
        action="store_true",
        help="the same, with the Python functions that the job calls; costs it more",
    )
    add_output_arguments(parser)
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="keep what was recorded, for `perfdoctor report FILE`"
    )


def run(arguments: argparse.Namespace) -> int:
    """Records the job, then makes the diagnosis and the reports."""
    if arguments.live:
        require_terminal()
    require_places(*asked_files(arguments).values(), force=arguments.force)
    require_folders(arguments.recording)
    require_replaceable(arguments.recording, force=arguments.force)
    pid = choose(find_jobs()) if arguments.pid is None else arguments.pid
    require_target(pid)
    require_torch(pid)
    report_leftovers()
    load_analysis(html=arguments.report is not None, live=arguments.live)
    from perfdoctor.analysis.from_recording import examine

    with recording_file(arguments.recording, force=arguments.force) as path:
        traced = arguments.trace or arguments.trace_lines
        afterwards = partial(_traces, path, functions=arguments.trace_lines) if traced else tuple
        (_watch_live if arguments.live else _watch)(Job(pid), path, arguments.duration, afterwards)
        with Recording.open(path) as recording:
            diagnosis = examine(recording)
        deliver(diagnosis, recording=path, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis)
    return 0


def _watch(job: Job, path: Path, duration_s: float | None, afterwards: Callable[[], Iterable[Sample]]) -> None:
    """Records a job, with a progress bar."""
    duration_s = duration_s or DEFAULT_DURATION_S
    with _progress(duration_s) as on_tick:
        record(job, path, duration_s, all_probes(), on_tick=on_tick, afterwards=afterwards)


def _watch_live(job: Job, path: Path, duration_s: float | None, afterwards: Callable[[], Iterable[Sample]]) -> None:
    """Records a job, and shows it, until the user quits."""
    from perfdoctor.live.beside import viewing

    def at_the_end() -> Iterator[Sample]:
        yield from viewer.end()
        if sys.stderr.isatty():
            print("perfdoctor: making the diagnosis …", file=sys.stderr)
        yield from afterwards()

    with viewing(path) as viewer:
        record(
            job,
            path,
            duration_s or LIVE_DURATION_S,
            all_probes(),
            on_tick=lambda _: "interrupted" if viewer.has_quit() else None,
            afterwards=at_the_end,
            apart=frozenset({viewer.pid}),
        )


def _traces(path: Path, *, functions: bool) -> Iterator[Sample]:
    """Traces of those that were seen to train."""
    from perfdoctor.timeline.job import JobTimeline

    with Recording.open(path) as recording:
        trainers = [trainer.pid for trainer in JobTimeline(recording).processes.trainers]
    if sys.stderr.isatty():
        print("perfdoctor: tracing the job …", file=sys.stderr)
    yield from trace(trainers, functions=functions)


def load_analysis(*, html: bool, live: bool = False) -> None:
    """Loads what the diagnosis and its reports need, before the watching.

    Beside a job that takes every core, loading numpy costs seconds, which the user would otherwise
    wait for after the watching. What is loaded stays: the collector, which would look through it time and again while
    it grows, waits for the end and passes it over from then on.

    Args:
        html: an HTML report will be made too.
        live: the job will be shown meanwhile.
    """
    gc.disable()
    for needed in _ANALYSIS + (_HTML if html else ()) + (_LIVE if live else ()):
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
