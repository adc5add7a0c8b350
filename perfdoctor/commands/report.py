"""Make reports from a recording, as often as wanted.

Everything that `perfdoctor attach` writes can be made again from the recording that it left with --recording FILE,
also from one that was cut short by a crash. Several recordings are those of one job on several hosts, and so are those
in a folder.
"""

import argparse
from contextlib import ExitStack
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
    folders = [path for path in arguments.recording if path.is_dir()]
    diagnosis = diagnose(arguments.recording) if folders else _examine(arguments.recording)
    recording = None if folders else arguments.recording[0]
    deliver(diagnosis, recording=recording, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis)
    return 0


def _examine(paths: list[Path]) -> Diagnosis:
    from perfdoctor.analysis.from_hosts import examine_hosts
    from perfdoctor.analysis.from_recording import examine

    with ExitStack() as held:
        recordings = [held.enter_context(Recording.open(path)) for path in paths]
        return examine_hosts(recordings) if len(recordings) > 1 else examine(recordings[0])
