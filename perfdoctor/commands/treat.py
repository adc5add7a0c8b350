"""Run a job again and again for a short while, diagnose it, and measure which changes make it faster.

What stands after -- starts the job. It runs in copies of the working folder, so what it writes there is thrown away;
what it saves elsewhere with torch.save is taken aside. Whatever else it writes outside of that folder, or sends over a
network, it writes and sends in every run. None of the user's files is touched, a patch is written only where --patch
asks for it, and Ctrl-C ends the trials and reports what they have shown.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from perfdoctor.capture.recorder import interruptible
from perfdoctor.capture.target import require_proc
from perfdoctor.commands.arguments import duration
from perfdoctor.commands.progress import progress_bar
from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.outputs import (
    PATCH_BEGINS,
    add_output_arguments,
    asked_files,
    deliver_rendered,
    require_places,
)
from perfdoctor.results.treatment import Treated
from perfdoctor.treat.trials import treat

DEFAULT_MINUTES = 10.0  # enough for a few changes of a job that starts within seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor treat``."""
    parser.usage = "perfdoctor treat [options] -- COMMAND..."
    parser.add_argument("job", nargs="+", metavar="COMMAND", help="what starts the job: python train.py ...")
    parser.add_argument(
        "--minutes",
        type=duration("minutes", 1440),
        default=DEFAULT_MINUTES,
        metavar="M",
        help="how long all of it may take (default: 10)",
    )
    parser.add_argument(
        "--link",
        type=Path,
        action="append",
        default=[],
        metavar="NAME",
        help="a file or folder of the working folder that the job only reads: linked, not copied (may be repeated)",
    )
    parser.add_argument("--dry-run", action="store_true", help="run the job once, and say what would be tried")
    parser.add_argument("--patch", type=Path, metavar="FILE.diff", help="write the best as a patch for `patch -p1`")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the trials, prints what they have shown, and writes the reports."""
    require_proc()
    files = {**asked_files(arguments), "patch": arguments.patch}
    require_places(*files.values(), force=arguments.force)
    _announce(arguments)
    budget_s = 60 * arguments.minutes
    with interruptible(), progress_bar("", budget_s) as show:

        def tell(what: str, left_s: float) -> None:
            show(description=what, completed=budget_s - left_s)

        try:
            treated = treat(
                arguments.job, Path.cwd(), arguments.link, arguments.minutes, tell, dry_run=arguments.dry_run
            )
        except KeyboardInterrupt:
            raise PerfDoctorError(
                "Interrupted before the job was diagnosed.", hint="All of its processes have been ended."
            ) from None
    _deliver(treated, files)
    return 0


def _announce(arguments: argparse.Namespace) -> None:
    """Says what will be done, before anything is."""
    often = "once" if arguments.dry_run else f"again and again, for up to {arguments.minutes:g} minutes"
    print(
        f"perfdoctor: running {shlex.join(arguments.job)} {often}, in copies of {Path.cwd()}.\n"
        "  What it writes there is thrown away, and so is what it saves elsewhere with torch.save.\n"
        "  Anything else that it writes outside of that folder, or sends over a network, is not held back.",
        file=sys.stderr,
    )


def _deliver(treated: Treated, files: dict[str, Path | None]) -> None:
    from perfdoctor.reports import treated_console, treated_html, treated_json

    def say_why_no_patch() -> list[str]:
        if files["patch"] is not None and not treated.patch:
            why = "no place in the job's own files is known for it" if treated.best else "no change is kept"
            print(f"perfdoctor: there is no patch: {why}.", file=sys.stderr)
        return []

    renders = {"json": treated_json.render, "report": treated_html.render, "patch": _patch}
    deliver_rendered(treated, files, renders, treated_console.render, say_why_no_patch)


def _patch(treated: Treated) -> str:
    return f"{PATCH_BEGINS}\n{treated.patch}" if treated.patch else ""
