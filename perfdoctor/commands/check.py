"""Say what perfdoctor could see of a process, before anything is touched.

It also says whether `attach --steps` could count its steps, and how `attach --trace` would enter it.

Without PID it says what could be seen on this machine, and lists the training jobs that run here.
"""

import argparse
import sys
from collections.abc import Sequence

from perfdoctor.capture import trace_check
from perfdoctor.capture.check import preflight, steps_availability, trainer_below
from perfdoctor.capture.jobs import find_jobs
from perfdoctor.capture.target import family_of, listed, process_id, require_target, require_torch
from perfdoctor.commands.arguments import add_language_argument
from perfdoctor.commands.ps import print_jobs
from perfdoctor.messages import say
from perfdoctor.probes import Availability
from perfdoctor.reports.language import for_stream
from perfdoctor.reports.wording import job_words, worded
from perfdoctor.reports.wrapping import fitted, wrapped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("pid", type=process_id, nargs="?", metavar="PID", help="the process; without it, this machine")
    add_language_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per probe: whether it works, why not, and what enables it; then fails where `attach` would."""
    checks = preflight(arguments.pid)
    with for_stream(sys.stdout):
        if arguments.pid is not None:
            _print_family(arguments.pid)
        _print_checks(checks)
        if arguments.pid is not None:
            _print_further(trainer_below(arguments.pid))
    if arguments.pid is not None:
        require_target(arguments.pid)
        require_torch(arguments.pid)
    elif sys.platform.startswith("linux"):
        print()
        print_jobs(find_jobs())
    return 0


def _print_further(pid: int) -> None:
    """Whether the steps of a process can be counted, and how it could be traced."""
    print(f"\n{worded(say('jobs.steps'))}")
    _print_checks([steps_availability(pid)])
    print(f"\n{worded(say('jobs.ways'))}")
    _print_checks(trace_check.availability(pid))


def _print_family(pid: int) -> None:
    """Where the job has several processes, says which of them may train."""
    family = family_of(pid)
    torch = [one for one in family if one.torch]
    if torch and len(family) > 1:
        print(worded(say("jobs.family", processes=len(family), torch=len(torch), names=listed(torch))))


def _print_checks(checks: Sequence[Availability]) -> None:
    if sys.stdout.isatty():
        _print_table(checks)
    else:
        print(plain(checks))


def plain(checks: Sequence[Availability]) -> str:
    """The checks as lines of text: probe, state, reason; each remedy once, on a line of its own."""
    lines = []
    shown: set[str] = {""}
    for check in checks:
        state = job_words().STATES[check.state]
        lines.append(f"{check.probe:12}{fitted(state, 8)}{worded(check.reason)}".rstrip())
        if check.enable not in shown:
            lines.append(f"{'':20}{worded(say('jobs.to_enable', enable=worded(check.enable)))}")
            shown.add(check.enable)
    return "\n".join(lines)


def _print_table(checks: Sequence[Availability]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    words = job_words()
    colours = {"works": "green", "in part": "yellow", "no": "red"}
    table = Table(box=None, pad_edge=False)
    for column in ("probe", "state", "reason", "enable"):
        table.add_column(words.CHECKED[column], overflow="fold")
    shown: set[str] = {""}
    for check in checks:
        remedy = words.CHECKED["again"] if check.enable in shown and check.enable else worded(check.enable)
        shown.add(check.enable)
        state = Text(words.STATES[check.state], style=colours[check.state])
        table.add_row(check.probe, state, *(wrapped(Text(text)) for text in (worded(check.reason), remedy)))
    Console().print(table)
