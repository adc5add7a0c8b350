"""Make reports from a recording, as often as wanted.

Everything that `perfdoctor attach` writes can be made again from the recording that it left with --recording FILE,
also from one that was cut short by a crash. Several recordings are those of one job on several hosts, and so are those
in a folder.
"""

import argparse
from pathlib import Path

from perfdoctor.commands.analyze import diagnose
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.outputs import add_output_arguments, asked_files, conclude, deliver, require_places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor report``."""
    parser.add_argument(
        "recording",
        type=Path,
        nargs="+",
        metavar="RECORDING",
        help="file written by --recording; of a job on several hosts one from each, made at the same time, or the "
        "folder that --gather put them into",
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads the recording, prints the diagnosis and writes the reports."""
    require_places(*asked_files(arguments).values(), force=arguments.force)
    recording = arguments.recording[0] if len(arguments.recording) == 1 else None
    if recording is None or recording.is_dir():
        recording, diagnosis = None, diagnose(arguments.recording)
    else:
        diagnosis = _examine(recording)
    deliver(diagnosis, recording=recording, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis)
    return 0


def _examine(path: Path) -> Diagnosis:
    from perfdoctor.analysis.from_recording import examine

    with Recording.open(path) as recording:
        return examine(recording)
