"""Account for profiler traces that you have already, or for the recordings of all hosts of a job.

Reads what torch.profiler wrote (Kineto traces, .json or .json.gz, from torch 1.8 to today, of NVIDIA and AMD GPUs and
of CPUs). Several files, a folder, or a URL of one are the ranks of one job; recordings (.perfdoctor) are its hosts. A
table of the operations of many ranks (.parquet, .csv) is a job by itself. Dumps of torch's Flight Recorder, one for
each rank, say why the collectives of a job that hung did not end.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.commands.progress import progress_bar
from perfdoctor.diagnosis import Diagnosis, NotExamined
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.reports.outputs import add_output_arguments, asked_files, conclude, deliver, require_places

if TYPE_CHECKING:
    from perfdoctor.cluster.fan_out import Engine
    from perfdoctor.cluster.files import File, Kind
    from perfdoctor.cluster.summaries import Gathered
    from perfdoctor.cluster.summary_cache import SummaryCache

_TABLES = (".parquet", ".csv")
# So many files are read one after the other, each as a whole; more are summarised by many processes.
FEW_FILES = 16
_PROCESS_BYTES = 80_000_000  # measured: what a process takes that has loaded the libraries and a trace of 10 MB
_UNPACKED = 10  # measured: columns of a trace take at most so many times its packed size
_USABLE = 0.7  # of the memory that is free


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor analyze``."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="trace or recording, one for each rank or host; a folder or URL of them",
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="read the files on the Dask cluster of this scheduler")
    parser.add_argument(
        "--summaries",
        type=Path,
        metavar="FILE.sqlite",
        help="file that caches what was read (default: in ~/.cache)",
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads the files, prints the diagnosis and writes the reports."""
    require_places(*asked_files(arguments).values(), force=arguments.force)
    diagnosis = diagnose(arguments.paths, scheduler=arguments.scheduler, summaries=arguments.summaries)
    deliver(diagnosis, force=arguments.force, **asked_files(arguments))
    conclude(diagnosis, hint=say("labels.missing_above"))
    return 0


def is_table(path: str | Path) -> bool:
    """Whether a file is a table of operations."""
    return str(path).endswith(_TABLES)


def diagnose(paths: Sequence[str | Path], *, scheduler: str | None = None, summaries: Path | None = None) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        paths: traces of its ranks, recordings of its hosts, and folders or URLs of such; or one table.
        scheduler: address of a Dask scheduler, whose workers read the files; None for processes of this machine.
        summaries: the file that caches what was read; None for the default one.

    Raises:
        PerfDoctorError: they cannot be read, or are not of one run.
    """
    tables = [path for path in paths if is_table(path)]
    if not tables:
        return _diagnose_files(list(map(str, paths)), scheduler, summaries)
    if len(paths) > 1:
        raise PerfDoctorError(
            f"{tables[0]} is a table of a whole job.", hint="Analyze it by itself, without other files."
        )
    return _diagnose_table(Path(tables[0]))


def _diagnose_table(path: Path) -> Diagnosis:
    from perfdoctor.analysis.from_operations import diagnose_table

    return diagnose_table(path)


def _diagnose_files(addresses: list[str], scheduler: str | None, summaries: Path | None) -> Diagnosis:
    from perfdoctor.analysis.one_job import NotOneJobError
    from perfdoctor.cluster.files import find_files
    from perfdoctor.recording.remote import is_url

    files = find_files(addresses)
    few = len(files) <= FEW_FILES and not any(map(is_url, addresses)) and not (scheduler or summaries)
    if files[0].kind == "dump":
        return _diagnose_dumps(files)
    if few and files[0].kind == "trace":
        return _diagnose_traces(files)
    if few and len(files) == 1:
        return _diagnose_host(files[0])
    apart: list[NotExamined] = []
    if few:
        try:
            return _diagnose_on_one_clock(files)
        except NotOneJobError:
            raise
        except PerfDoctorError as error:  # then they are compared without one
            apart.append(NotExamined("clock", str(error), error.next_move))
    gathered = _gather(files, scheduler, summaries)
    with gc_paused():  # it would walk through the summaries of thousands of ranks
        diagnosis = _diagnose_summaries(gathered, files[0].kind)
    return replace(diagnosis, not_examined=(*gathered.not_examined(), *apart, *diagnosis.not_examined))


def _diagnose_dumps(files: Sequence[File]) -> Diagnosis:
    from perfdoctor.analysis.from_dumps import diagnose_dumps

    return diagnose_dumps([Path(file.address) for file in files])


def _diagnose_traces(files: Sequence[File]) -> Diagnosis:
    from perfdoctor.analysis.from_traces import diagnose_traces
    from perfdoctor.traces.reader import read_trace

    with gc_paused():
        return diagnose_traces(read_trace(Path(file.address)) for file in files)


def _diagnose_host(file: File) -> Diagnosis:
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.recording.reader import Recording

    with Recording.open(file.address) as recording:
        return examine(recording)


def _diagnose_on_one_clock(files: Sequence[File]) -> Diagnosis:
    """Makes the diagnosis of a few hosts, instant by instant.

    Raises:
        NotOneJobError: they are not of one job.
        PerfDoctorError: there is no clock for all of them, a rank is in two, or all but one are damaged.
    """
    from perfdoctor.analysis.from_hosts import examine_hosts
    from perfdoctor.cluster.summaries import Gathered
    from perfdoctor.recording.reader import Recording

    read = Gathered()
    with ExitStack() as held:
        for file in files:
            try:
                read.summaries.append(held.enter_context(Recording.open(file.address)))
            except PerfDoctorError as error:
                read.leave_out(file, str(error))
        if len(read.summaries) < 2:
            raise PerfDoctorError("There is one recording that can be read.", hint="Record every host.")
        diagnosis = examine_hosts(read.summaries)
    return replace(diagnosis, not_examined=(*read.not_examined(), *diagnosis.not_examined))


def _diagnose_summaries(gathered: Gathered, kind: Kind) -> Diagnosis:
    from perfdoctor.analysis.from_host_summaries import diagnose_hosts
    from perfdoctor.analysis.from_traces import diagnose_ranks

    return diagnose_ranks(gathered.summaries) if kind == "trace" else diagnose_hosts(gathered.summaries)


def _gather(files: Sequence[File], scheduler: str | None, summaries: Path | None) -> Gathered:
    """Summarises the files, with a progress bar.

    Raises:
        PerfDoctorError: none can be read, or it was interrupted.
    """
    from perfdoctor.cluster.summaries import gather

    done = 0

    def count(files_done: int) -> None:
        nonlocal done
        done = files_done
        show(completed=files_done, description=f"reading files, {files_done} of {len(files)} done")

    with ExitStack() as stack:
        cache, engine = stack.enter_context(_cache(summaries)), _engine(files, scheduler, stack)
        show = stack.enter_context(progress_bar("reading files", len(files)))
        try:
            return gather(files, engine, cache, count)
        except KeyboardInterrupt:
            hint = "Repeat the command: it goes on where it was." if cache.usable else ""
            raise PerfDoctorError(f"Interrupted after {done} of {len(files)} files.", hint=hint) from None


def _cache(summaries: Path | None) -> SummaryCache:
    """The cache of summaries; where the default file cannot be used, that only costs time."""
    from perfdoctor.cluster.summary_cache import SummaryCache, default_path

    def tell(error: PerfDoctorError) -> None:
        print(f"perfdoctor: {error}", file=sys.stderr)

    return SummaryCache(default_path(), tell) if summaries is None else SummaryCache(summaries)


def _engine(files: Sequence[File], scheduler: str | None, stack: ExitStack) -> Engine:
    from perfdoctor.cluster.fan_out import Dask, ProcessPool

    if scheduler is None:
        return ProcessPool(_processes(files))
    dask = Dask(scheduler)
    stack.callback(dask.close)
    return dask


def _processes(files: Sequence[File]) -> int:
    """As many processes as there are cores for, and as fit into the memory that is free."""
    import psutil

    each = _PROCESS_BYTES + _UNPACKED * max(file.size for file in files)
    fit = int(_USABLE * psutil.virtual_memory().available / each)
    return max(1, min(len(os.sched_getaffinity(0)), len(files), fit))
