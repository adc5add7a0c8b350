"""Make reports from a recording, as often as wanted.

Everything that `perfdoctor attach` writes can be made again from the recording that it left with --recording FILE,
also from one that was cut short by a crash.
"""

import argparse
from pathlib import Path

from perfdoctor.recording.reader import Recording
from perfdoctor.reports.outputs import add_output_arguments, asked_files, conclude, deliver, require_places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor report``."""
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="file written by --recording")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads the recording, prints the diagnosis and writes the reports."""
    from perfdoctor.analysis.from_recording import examine

    require_places(*asked_files(arguments).values(), force=arguments.force)
    with Recording.open(arguments.recording) as recording:
        diagnosis = examine(recording)
    deliver(diagnosis, recording=arguments.recording, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis)
    return 0
