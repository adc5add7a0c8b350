"""Look at a recording live, as `perfdoctor attach --live` shows it.

A recording that is being written by another perfdoctor is followed, without being in its way. One that is finished is
shown at its end; left and right go through it, and space plays it at its own pace. q quits.
"""

import argparse
import os
from importlib import import_module
from pathlib import Path

from perfdoctor.recording.reader import require_file
from perfdoctor.reports.terminal import require_terminal

_NICENESS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor watch``."""
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="file written by --recording")


def run(arguments: argparse.Namespace) -> int:
    """Shows the recording until the user quits."""
    from perfdoctor.live.viewer import show

    require_terminal()
    require_file(arguments.recording)
    os.nice(_NICENESS)
    import_module("perfdoctor.analysis.live_view")
    show(arguments.recording)
    return 0
