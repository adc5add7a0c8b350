"""Account for profiler traces that you have already.

Reads what torch.profiler wrote (Kineto traces, .json or .json.gz, from torch 1.8 to today, of NVIDIA and AMD GPUs and
of CPUs). Several files, or a folder, are the ranks of one job. A table of the operations of many ranks (.parquet, .csv)
is a job by itself.
"""

import argparse
from pathlib import Path

from perfdoctor.diagnosis import Diagnosis, say
from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.outputs import add_output_arguments, asked_files, conclude, deliver, require_places

_TABLES = (".parquet", ".csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor analyze``."""
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="PATH", help="trace file, one for each rank, or a folder of them"
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads the traces, prints the diagnosis and writes the reports."""
    require_places(*asked_files(arguments).values(), force=arguments.force)
    diagnosis = diagnose(arguments.traces)
    deliver(diagnosis, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis, hint=say("labels.missing_above"))
    return 0


def is_table(path: Path) -> bool:
    """Whether a file is a table of operations."""
    return path.suffix in _TABLES


def diagnose(paths: list[Path]) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        paths: traces of its ranks, and folders of such; or one table.

    Raises:
        PerfDoctorError: they cannot be read, or are not of one run.
    """
    tables = [path for path in paths if is_table(path)]
    if not tables:
        return _diagnose_traces(paths)
    if len(paths) > 1:
        raise PerfDoctorError(
            f"{tables[0]} is a table of a whole job.", hint="Analyze it by itself: perfdoctor analyze TABLE"
        )
    return _diagnose_table(tables[0])


def _diagnose_traces(paths: list[Path]) -> Diagnosis:
    from perfdoctor.analysis.from_traces import diagnose_traces
    from perfdoctor.traces.reader import find_traces, read_trace

    return diagnose_traces(read_trace(path) for path in find_traces(paths))


def _diagnose_table(path: Path) -> Diagnosis:
    from perfdoctor.analysis.from_operations import diagnose_table

    return diagnose_table(path)
