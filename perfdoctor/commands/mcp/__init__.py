"""Serve agents: a Model Context Protocol server on standard input and output, with tools that only read.

An agent starts it itself (docs/agents.md): it lists training jobs, watches one, reads traces, recordings and reports,
and gets answers that fit into its context. It needs the MCP SDK: pip install 'perfdoctor[mcp]'.
"""

import argparse
import sys
from importlib.resources import files

from perfdoctor.errors import PerfDoctorError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor mcp``."""
    parser.add_argument(
        "--skill", action="store_true", help="print SKILL.md, which tells an agent when and how to use perfdoctor"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until the agent closes standard input."""
    if arguments.skill:
        print(files(__name__).joinpath("SKILL.md").read_text("utf-8"), end="")
        return 0
    try:
        from perfdoctor.commands.mcp.server import serve
    except ImportError as error:
        raise PerfDoctorError(
            f"The MCP SDK is missing, or too old: {error}.", hint="pip install 'perfdoctor[mcp]'"
        ) from None
    if sys.stdin.isatty():
        print("perfdoctor: waiting for an agent's messages on standard input; Ctrl-C ends it.", file=sys.stderr)
    serve()
    return 0
