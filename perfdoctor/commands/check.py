"""Say what perfdoctor could see of a process, before anything is touched, and how `attach --trace` would enter it.

Without PID it says what could be seen on this machine, and lists the training jobs that run here.
"""

import argparse
import sys
from collections.abc import Sequence

from perfdoctor.capture import trace_check
from perfdoctor.capture.check import preflight, trainer_below
from perfdoctor.capture.jobs import find_jobs
from perfdoctor.capture.target import family_of, listed, process_id, require_target, require_torch
from perfdoctor.commands.ps import print_jobs
from perfdoctor.probes import Availability


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("pid", type=process_id, nargs="?", metavar="PID", help="the process; without it, this machine")


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per probe: whether it works, why not, and what enables it; then fails where `attach` would."""
    checks = preflight(arguments.pid)
    if arguments.pid is not None:
        _print_family(arguments.pid)
    _print_checks(checks)
    if arguments.pid is not None:
        print("\n`attach --trace` takes the first of these that works:")
        _print_checks(trace_check.availability(trainer_below(arguments.pid)))
        require_target(arguments.pid)
        require_torch(arguments.pid)
    elif sys.platform.startswith("linux"):
        print()
        print_jobs(find_jobs())
    return 0


def _print_family(pid: int) -> None:
    """Where the job has several processes, says which of them may train."""
    family = family_of(pid)
    torch = [one for one in family if one.torch]
    if torch and len(family) > 1:
        have = "has" if len(torch) == 1 else "have"
        print(f"Of {len(family)} processes {len(torch)} {have} PyTorch: {listed(torch)}.")


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
        lines.append(f"{check.probe:12}{check.state:8}{check.reason}".rstrip())
        if check.enable not in shown:
            lines.append(f"{'':20}to enable: {check.enable}")
            shown.add(check.enable)
    return "\n".join(lines)


def _print_table(checks: Sequence[Availability]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    colours = {"works": "green", "in part": "yellow", "no": "red"}
    table = Table(box=None, pad_edge=False)
    for heading in ("probe", "", "why", "to enable"):
        table.add_column(heading, overflow="fold")
    shown: set[str] = {""}
    for check in checks:
        state = f"[{colours[check.state]}]{check.state}[/]"
        remedy = "as above" if check.enable in shown and check.enable else check.enable
        shown.add(check.enable)
        table.add_row(check.probe, state, escape(check.reason), escape(remedy))
    Console().print(table)
