"""What tools do that look at the host or read files: each in a process of its own, so that plain values go in and out.

What a call needs beyond this is loaded in its function.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from perfdoctor.capture.check import preflight, trainer_below
from perfdoctor.capture.job import Job
from perfdoctor.capture.jobs import roots_of
from perfdoctor.capture.recorder import record
from perfdoctor.capture.recording_file import recording_file
from perfdoctor.capture.target import Relative, family_of, require_target, require_torch
from perfdoctor.commands.attach import load_analysis
from perfdoctor.commands.run_paths import Source, read_source
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.probes import Availability, all_probes
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.language import for_agents
from perfdoctor.results.comparison import Comparison


class Report(NamedTuple):
    """A diagnosis.

    Attributes:
        source: what it was made of, with the diagnosis as its JSON report has it.
        next_move: what to do where no bottleneck is named; "" where one is, or where that is not known.
    """

    source: Source
    next_move: str = ""


class Checked(NamedTuple):
    """What would be seen of a process, or of this host.

    Attributes:
        probes: what each of them would see.
        ways: in which a trace could be taken from it; empty without a process.
        family: the process and those below it.
        refusal: why attach would refuse it, and the next move; None if it would not.
    """

    probes: list[Availability]
    ways: list[Availability]
    family: list[Relative]
    refusal: tuple[str, str] | None = None


def watch(pid: int, seconds: float) -> Report:
    """Watches a job, as `perfdoctor attach` does, and makes the diagnosis.

    Raises:
        PerfDoctorError: the process is not there, may not be looked at, or has no PyTorch.
    """
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.reports.outputs import next_move

    require_target(pid)
    require_torch(pid)
    load_analysis(html=False)
    with recording_file(None) as path:
        record(Job(pid, roots_of(pid)), path, seconds, all_probes())
        with Recording.open(path) as recording:
            diagnosis = examine(recording)
    with for_agents():
        move = next_move(diagnosis) if diagnosis.verdict.bottleneck is None else ""
    return Report(Source(Path(f"process {pid}"), "recording", _document(diagnosis)), move)


def diagnose(paths: list[Path]) -> Report:
    """Makes or reads the diagnosis of what lies on disk.

    Args:
        paths: one recording, JSON report or table of operations; or traces, files or folders of one job.

    Raises:
        PerfDoctorError: it cannot be read, or is none of these.
    """
    from perfdoctor.commands import analyze

    if len(paths) == 1 and not analyze.is_table(paths[0]):
        source = read_source(paths[0])
        if source.kind == "report":
            _require_whole(source)
        return Report(source)
    return Report(Source(paths[0], "trace", _document(analyze.diagnose(paths))))


def check(pid: int | None) -> Checked:
    """Says what perfdoctor could see, without attaching to anything.

    Raises:
        PerfDoctorError: there is no such process, or it has ended.
    """
    from perfdoctor.capture import trace_check

    probes = preflight(pid)
    if pid is None:
        return Checked(probes, [], [])
    ways, family = list(trace_check.availability(trainer_below(pid))), family_of(pid)
    try:
        require_target(pid)
        require_torch(pid)
    except PerfDoctorError as error:
        with for_agents():
            return Checked(probes, ways, family, (str(error), error.hint))
    return Checked(probes, ways, family)


def compare(before: Report | Path, after: Report | Path) -> Comparison:
    """Compares two runs, of which those that were not read yet are read.

    Raises:
        PerfDoctorError: one cannot be read, or they are the same.
    """
    from perfdoctor.commands.compare import compare_sources

    first, second = (read_source(one) if isinstance(one, Path) else one.source for one in (before, after))
    return compare_sources(first, second)


def _require_whole(source: Source) -> None:
    """Makes sure that a JSON report keeps to its schema, whoever has written it.

    Raises:
        PerfDoctorError: it does not.
    """
    from jsonschema import ValidationError, validate

    from perfdoctor.reports.reading import diagnosis_of, schema

    try:
        validate(source.document, schema())
        diagnosis_of(source.document)
    except ValidationError as error:
        wrong = f"{error.json_path} is not what it should be"
    except ValueError as error:  # a cause of a later version, for instance
        wrong = str(error)
    else:
        return
    raise PerfDoctorError(
        f"The report {source.path} cannot be read: {wrong}.",
        hint=say("moves.report_again"),
    )


def _document(diagnosis: Diagnosis) -> dict[str, object]:
    from perfdoctor.reports.json import document

    return document(diagnosis)
