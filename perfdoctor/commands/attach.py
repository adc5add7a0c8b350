"""Watch a running job and say what holds it back.

PID may be a trainer, a launcher (torchrun, a shell, a notebook kernel) or a loader worker: the job is found from there.
Without PID it is this host's only training job; where there are several (`perfdoctor ps`), it asks on a terminal.
On several hosts the same command is started on each, by the job's own launcher, and the recordings come together:
`srun --overlap perfdoctor attach --job --gather FOLDER`, then `perfdoctor analyze FOLDER` (docs/hosts.md).
Nothing in the job is changed, unless --steps asks for probes that count its steps, --trace or --trace-lines for a short
run of torch.profiler in it, or --flight-recorder for dumps of its collectives. Ctrl-C ends the watching early and
diagnoses what was seen. --live shows the job meanwhile, until q is pressed; --metrics-port and --otlp give its figures
to Prometheus and OpenTelemetry.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.capture.job import Job
from perfdoctor.capture.recorder import interruptible, record
from perfdoctor.capture.recording_file import recording_file, report_leftovers, require_replaceable
from perfdoctor.capture.target import process_id, require_target, require_torch
from perfdoctor.commands.arguments import add_live_export_arguments, add_steps_argument, duration
from perfdoctor.commands.hosts import Target, gathering, is_for_another, target_of
from perfdoctor.commands.progress import progress_bar
from perfdoctor.probes import all_probes
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Sample
from perfdoctor.reports.outputs import (
    add_output_arguments,
    asked_files,
    conclude,
    deliver,
    require_apart,
    require_folders,
    require_places,
)
from perfdoctor.reports.terminal import require_terminal

if TYPE_CHECKING:
    from perfdoctor.diagnosis import Diagnosis
    from perfdoctor.live.exporter import Exporter

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
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "pid", type=process_id, nargs="?", metavar="PID", help="any process of the job; without it, the only job here"
    )
    which.add_argument(
        "--job",
        nargs="?",
        const="",
        metavar="NAME",
        help="this host's part of a job, for the same command on every host; NAME is needed where there are several: "
        "its Slurm job, its --rdzv-id, or the address where its ranks meet",
    )
    parser.add_argument(
        "--wait", type=duration("seconds", 86_400), metavar="S", help="wait up to S seconds for a job to begin"
    )
    parser.add_argument(
        "--gather",
        metavar="FOLDER|URL",
        help="copy the recording there, under a name of its own, and make no report: `perfdoctor analyze FOLDER` does, "
        "of all hosts",
    )
    parser.add_argument(
        "--duration",
        type=duration("seconds", 86_400),
        metavar="S",
        help="seconds to watch (default: 15; with --live until you quit, an hour at most)",
    )
    parser.add_argument("--live", action="store_true", help="show the job on the terminal while it is watched")
    add_steps_argument(parser)
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
    parser.add_argument(
        "--flight-recorder",
        action="store_true",
        help="ask the ranks for dumps of torch's Flight Recorder, where the job was started so that they give them",
    )
    parser.add_argument(
        "--no-source", action="store_true", help="leave the text of source lines out of recording and report"
    )
    add_live_export_arguments(parser)
    add_output_arguments(parser)
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="keep what was recorded, for `perfdoctor report FILE`"
    )


def run(arguments: argparse.Namespace) -> int:
    """Records the job, then makes the diagnosis and the reports, or hands the recording on."""
    from perfdoctor.commands.live_exports import prepare_exports

    if arguments.gather and (any(asked_files(arguments).values()) or arguments.otlp is not None):
        arguments.parser.error("--gather leaves reports to `perfdoctor analyze`")
    if arguments.wait and arguments.pid is not None:
        arguments.parser.error("--wait waits for a job, and PID is there already")
    if arguments.job is not None and is_for_another():
        return 0
    if arguments.live:
        require_terminal()
    require_places(*asked_files(arguments).values(), force=arguments.force)
    require_folders(arguments.recording)
    require_apart(arguments.recording, *asked_files(arguments).values())
    require_replaceable(arguments.recording, force=arguments.force)
    target = target_of(arguments)
    require_target(target.pid)
    require_torch(target.pid)
    report_leftovers()
    exporting = prepare_exports(arguments.metrics_port, arguments.metrics_host, arguments.otlp)
    if not arguments.gather:
        load_analysis(html=arguments.report is not None, live=arguments.live)
    with (
        recording_file(arguments.recording, force=arguments.force) as path,
        exporting(path) as exporter,
        interruptible(),
    ):
        if arguments.gather:
            with gathering(arguments.gather, target, path):
                _record(arguments, target, path, exporter)
            return 0
        _record(arguments, target, path, exporter)
        diagnosis = _report(arguments, path)
    conclude(diagnosis)
    return 0


def _record(arguments: argparse.Namespace, target: Target, path: Path, exporter: Exporter | None) -> None:
    """Watches the job."""

    def afterwards() -> Iterator[Sample]:
        if exporter is not None:
            yield from exporter.used()
        yield from _flight_dumps(path, ask=arguments.flight_recorder)
        if arguments.trace or arguments.trace_lines:
            yield from _traces(path, functions=arguments.trace_lines)

    watch = _watch_live if arguments.live else _watch
    apart = frozenset[int]() if exporter is None else frozenset({exporter.pid})
    job, probes = Job(target.pid, target.roots), all_probes(steps=arguments.steps)
    recorded = partial(record, job, probes=probes, source=not arguments.no_source)
    watch(recorded, path, arguments.duration, afterwards, apart)


def _report(arguments: argparse.Namespace, path: Path) -> Diagnosis:
    """Makes the diagnosis of what was recorded."""
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.commands.live_exports import send

    with Recording.open(path) as recording:
        diagnosis = examine(recording)
    deliver(diagnosis, recording=path, force=arguments.force, **asked_files(arguments))
    if arguments.otlp is not None:
        send(path, diagnosis, arguments.otlp)
    return diagnosis


def _watch(
    recorded: Callable[..., object],
    path: Path,
    duration_s: float | None,
    afterwards: Callable[[], Iterable[Sample]],
    apart: frozenset[int],
) -> None:
    """Records a job, with a progress bar."""
    duration_s = duration_s or DEFAULT_DURATION_S
    with progress_bar("watching the job", duration_s) as show:
        recorded(path, duration_s, on_tick=lambda so_far: show(completed=so_far), afterwards=afterwards, apart=apart)


def _watch_live(
    recorded: Callable[..., object],
    path: Path,
    duration_s: float | None,
    afterwards: Callable[[], Iterable[Sample]],
    apart: frozenset[int],
) -> None:
    """Records a job, and shows it, until the user quits."""
    from perfdoctor.live.beside import viewing

    def at_the_end() -> Iterator[Sample]:
        yield from viewer.end()
        if sys.stderr.isatty():
            print("perfdoctor: making the diagnosis …", file=sys.stderr)
        yield from afterwards()

    with viewing(path) as viewer:
        recorded(
            path,
            duration_s or LIVE_DURATION_S,
            on_tick=lambda _: "interrupted" if viewer.has_quit() else None,
            afterwards=at_the_end,
            apart=apart | {viewer.pid},
        )


def _traces(path: Path, *, functions: bool) -> Iterator[Sample]:
    """Traces of those that were seen to train."""
    from perfdoctor.capture.trace_job import trace
    from perfdoctor.timeline.job import JobTimeline

    with Recording.open(path) as recording:
        trainers = [trainer.pid for trainer in JobTimeline(recording).processes.trainers]
    if sys.stderr.isatty():
        print("perfdoctor: tracing the job …", file=sys.stderr)
    yield from trace(trainers, functions=functions)


def _flight_dumps(path: Path, *, ask: bool) -> Iterator[Sample]:
    """What the Flight Recorder of the job's ranks has noted."""
    from perfdoctor.capture.flight_recorder import flight_dumps
    from perfdoctor.capture.variables import exchanges_data

    with Recording.open(path) as recording:
        seen = [one for one in recording.processes.values() if one.uses_torch]
    started = {one.pid: one.started_ns for one in seen if not one.forked or exchanges_data(one.pid)}
    yield from flight_dumps(started, ask=ask)


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
