"""Account for profiler traces that you have already.

Reads what torch.profiler wrote (Kineto traces, .json or .json.gz, from torch 1.8 to today, of NVIDIA and AMD GPUs and
of CPUs). Several files, or a folder, are the ranks of one job.
"""

import argparse
from pathlib import Path

from perfdoctor.outputs import add_output_arguments, conclude, deliver, require_places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor analyze``."""
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="PATH", help="trace file, one for each rank, or a folder of them"
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads the traces, prints the diagnosis and writes the reports."""
    from perfdoctor.traces.diagnose import diagnose_traces
    from perfdoctor.traces.reader import find_traces, read_trace

    require_places(arguments.report, arguments.json)
    paths = find_traces(arguments.traces)
    diagnosis = diagnose_traces(read_trace(path) for path in paths)
    deliver(diagnosis, report=arguments.report, json=arguments.json)
    conclude(diagnosis, hint="What is missing stands above, with what enables it.")
    return 0
