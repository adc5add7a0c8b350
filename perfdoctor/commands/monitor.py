"""Watch a job for days at a hundredth of a core: when did it become slower, and why?

PID may be any process of the job. With --steps, as root, its steps are counted all the time; every few minutes, and
when something happens, it is watched as `perfdoctor attach` does it. What happens is printed with its date and kept in
FOLDER, with recordings from before and from then. A job that is started again is followed. Ctrl-C ends the watching;
--history FOLDER shows what was seen, meanwhile too.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from perfdoctor.capture.jobs import find_jobs
from perfdoctor.capture.recording_file import report_leftovers
from perfdoctor.capture.target import process_id, require_target, require_torch
from perfdoctor.commands.arguments import add_language_argument, add_metrics_arguments, add_steps_argument, duration
from perfdoctor.commands.job_list import choose
from perfdoctor.monitor.budget import BUDGET
from perfdoctor.monitor.folder import Folder
from perfdoctor.monitor.monitor import Monitor, Plan
from perfdoctor.reports.language import spoken
from perfdoctor.results.history import Incident, Presence

FOLDER = Path("perfdoctor-monitor")
_KEEP_MB = 500  # some days of a job with few processes
_MB = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor monitor``."""
    plan = Plan()
    parser.add_argument("pid", type=process_id, nargs="?", metavar="PID", help="any process of the job")
    parser.add_argument("--history", type=Path, metavar="FOLDER", help="show what was seen, and watch nothing")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER", help=f"(default: {FOLDER})")
    add_steps_argument(parser)
    parser.add_argument(
        "--every",
        type=duration("seconds", 86_400),
        default=plan.every_s,
        metavar="S",
        help=f"seconds between windows in which nothing happens (default: {plan.every_s:g}); "
        f"more where they would take over {BUDGET:.0%}% of a core",
    )
    parser.add_argument(
        "--wait",
        type=duration("seconds", 86_400),
        default=plan.wait_s,
        metavar="S",
        help=f"seconds to wait for a job that has ended and may be started again (default: {plan.wait_s:g})",
    )
    parser.add_argument(
        "--keep", type=_megabytes, default=_KEEP_MB, metavar="MB", help=f"of recordings (default: {_KEEP_MB})"
    )
    parser.add_argument("--no-source", action="store_true", help="leave the text of source lines out of recordings")
    add_metrics_arguments(parser)
    add_language_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Watches, or shows what was seen."""
    if arguments.history is not None:
        return _show(arguments.history)
    pid = choose(find_jobs()).pid if arguments.pid is None else arguments.pid
    require_target(pid)
    require_torch(pid)
    report_leftovers()
    folder = Folder(arguments.into, arguments.keep * _MB)
    plan = Plan(
        every_s=arguments.every,
        wait_s=arguments.wait,
        steps=arguments.steps,
        source=not arguments.no_source,
        language=spoken(),
    )
    with folder.locked(), _exporting(arguments, folder):
        Monitor(folder, plan, tell).run(pid)
    return 0


def _megabytes(text: str) -> int:
    if not text.isdecimal() or int(text) < 10:
        raise argparse.ArgumentTypeError("must be a number of megabytes, at least 10")
    return int(text)


def _exporting(arguments: argparse.Namespace, folder: Folder) -> AbstractContextManager[None]:
    """Answers Prometheus meanwhile, if that was asked for."""
    if arguments.metrics_port is None:
        return nullcontext()
    from perfdoctor.commands.live_exports import metrics_server
    from perfdoctor.monitor.metrics import exporting

    return exporting(folder.history.path, metrics_server(arguments.metrics_host, arguments.metrics_port))


def tell(what: Incident | Presence) -> None:
    """One line on standard output, at once."""
    from perfdoctor.reports.history_lines import line

    print(line(what), flush=True)


def _show(path: Path) -> int:
    from perfdoctor.reports import history_console
    from perfdoctor.reports.outputs import deliver_rendered

    folder = Folder(path, 0)
    folder.require_history()
    deliver_rendered(list(folder.history.lines()), {}, {}, history_console.render)
    return 0
