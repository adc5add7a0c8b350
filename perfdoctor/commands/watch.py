"""Look at a recording live, as `perfdoctor attach --live` shows it.

A recording that is being written by another perfdoctor is followed, without being in its way. One that is finished is
shown at its end; left and right go through it, and space plays it at its own pace. q quits. Meanwhile --metrics-port
and --otlp give its figures to Prometheus and OpenTelemetry.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from perfdoctor.commands.arguments import add_language_argument, add_live_export_arguments
from perfdoctor.recording.reader import require_file
from perfdoctor.reports.language import for_stream
from perfdoctor.reports.terminal import require_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor watch``."""
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="file written by --recording")
    add_live_export_arguments(parser)
    add_language_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Shows the recording until the user quits."""
    from perfdoctor.commands.live_exports import prepare_exports
    from perfdoctor.live.budget import NICENESS
    from perfdoctor.live.viewer import show

    require_terminal()
    require_file(arguments.recording)
    exporting = prepare_exports(arguments.metrics_port, arguments.metrics_host, arguments.otlp, beside_recorder=False)
    import_module("perfdoctor.analysis.live_view")
    with exporting(arguments.recording), for_stream(sys.stdout):
        os.nice(NICENESS)
        show(arguments.recording)
    return 0
