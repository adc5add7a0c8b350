"""The command line: one subcommand per file in ``perfdoctor.commands``."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from perfdoctor import __version__
from perfdoctor.errors import PerfDoctorError

# What each is for; the rest of its help is its module's docstring, and is read when it is called.
COMMANDS = {
    "attach": "Watch a running job and say what holds it back.",
    "watch": "Look at a recording live, as `perfdoctor attach --live` shows it.",
    "monitor": "Watch a job for days at a hundredth of a core: when did it become slower, and why?",
    "treat": "Run a job again and again for a short while, diagnose it, and measure which changes make it faster.",
    "analyze": "Account for profiler traces that you have already, or for the recordings of all hosts of a job.",
    "report": "Make reports from a recording, as often as wanted.",
    "compare": "Compare a job before and after a change: "
    "is it faster, where has the time gone, did the predicted gain come true?",
    "check": "Say what perfdoctor could see of a process, before anything is touched.",
    "ps": "List the training jobs of this host: trainer, ranks, loader workers, GPUs, age, CPU, memory.",
    "explain": "Say what a cause means, what looks like it, what helps, and what would prove it wrong.",
    "export": "Write a recording in the formats of other tools.",
    "mcp": "Serve agents: a Model Context Protocol server on standard input and output, with tools that only read.",
}

# Those that record a job, or run it.
_RECORD = ("attach", "monitor", "treat")


class _Subparser(argparse.ArgumentParser):
    """The parser of a subcommand; it loads the command's module once it is to parse something."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        module = importlib.import_module(f"perfdoctor.commands.{self.prog.split()[-1]}")
        self.description = module.__doc__
        module.add_arguments(self)
        self.set_defaults(run=module.run, parser=self)
        return super().parse_known_args(args, namespace)


def make_parser() -> argparse.ArgumentParser:
    """The parser with all subcommands, of which only the one that is named on the command line is loaded."""
    parser = argparse.ArgumentParser(
        prog="perfdoctor", description="Says why a PyTorch training job is slow, and what to change."
    )
    parser.add_argument("-V", "--version", action="version", version=f"perfdoctor {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Subparser)
    for name, text in COMMANDS.items():
        subparsers.add_parser(name, help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        0 a diagnosis was made, 1 it could not be, 2 wrong usage; 3 of `compare`, the job is slower than allowed.
    """
    _open_closed_streams()
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # While libraries are loaded, before the watching; whoever records takes the signal himself from then on.
        command = next(iter(sys.argv[1:] if arguments is None else arguments), "")
        before = " before anything was recorded" if command in _RECORD else ""
        print(f"perfdoctor: Interrupted{before}.", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parsed, unknown = make_parser().parse_known_args(arguments)
        if unknown:
            parsed.parser.error(_unknown(unknown, parsed.parser))
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        from perfdoctor.reports.language import ENGLISH, choice, language

        # A command without the option speaks English only.
        with language(*choice(getattr(parsed, "lang", ENGLISH), os.environ)):
            return int(parsed.run(parsed))
    except PerfDoctorError as error:
        return _refuse(error)
    except BrokenPipeError:
        # The reader of a pipe went away; Python would complain once more at exit.
        sys.stderr.close()
        return 1
    except OSError as error:
        # Whatever a path's name or folder does not allow, wherever it is met.
        if error.filename is None:
            raise
        reached = f"{os.fsdecode(error.filename)} cannot be reached: {error.strerror}."
        return _refuse(PerfDoctorError(reached, hint="Check the path, and the right to its folders."))


def _refuse(error: PerfDoctorError) -> int:
    from perfdoctor.reports.text import clean  # paths in it may hold anything

    print(f"perfdoctor: {clean(str(error))}", file=sys.stderr)
    if error.hint:
        print(f"  {clean(error.hint)}", file=sys.stderr)
    return 1


# What other tools call these options.
_ELSEWHERE = {
    **dict.fromkeys(("--html", "--output", "--out", "-o"), "--report"),
    **dict.fromkeys(("--seconds", "--time", "-d"), "--duration"),
    **dict.fromkeys(("--record", "--save"), "--recording"),
}


def _unknown(arguments: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What is wrong with arguments that a command does not know, and what may have been meant."""
    options = re.findall(r"--[a-z]+", parser.format_usage())
    names = [name.partition("=")[0] for name in arguments]
    near = [
        found
        for name in names
        for found in ([_ELSEWHERE[name]] if _ELSEWHERE.get(name) in options else get_close_matches(name, options, n=1))
    ]
    meant = f" (did you mean {' and '.join(near)}?)" if near else ""
    return f"unrecognized arguments: {' '.join(arguments)}{meant}"


def _open_closed_streams() -> None:
    """Gives closed standard streams (``>&-``) back as ones that take nothing, before a file gets their number."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open for the rest of the process's life


if __name__ == "__main__":
    sys.exit(main())
