"""What a path may be that holds a run of a job: a recording, a JSON report, or profiler traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.file_format import is_recording
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.reading import is_report

Kind = Literal["recording", "report", "trace"]
_HINT = "Name a recording, a JSON report, or a trace (or a folder with one for each rank)."


class Source(NamedTuple):
    """A run of a job.

    Attributes:
        document: its diagnosis, as a JSON report has it.
    """

    path: Path
    kind: Kind
    document: dict[str, Any]


def read_source(path: Path) -> Source:
    """Reads a run, whichever way it was kept.

    Raises:
        PerfDoctorError: it cannot be read, or is none of these.
    """
    try:
        beginning = b"" if path.is_dir() else _beginning(path)
    except OSError as error:
        raise PerfDoctorError(f"{path} cannot be read: {error.strerror}.", hint=_HINT) from None
    if is_recording(beginning):
        return Source(path, "recording", _of_recording(path))
    if is_report(path):
        return Source(path, "report", _report(path))
    if not path.is_dir() and not beginning:
        raise PerfDoctorError(f"{path} is empty.", hint=_HINT)
    return Source(path, "trace", _of_traces(path))


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(128)


def _of_recording(path: Path) -> dict[str, Any]:
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.reports.json import document

    with Recording.open(path) as recording:
        return document(examine(recording))


def _of_traces(path: Path) -> dict[str, Any]:
    from perfdoctor.commands import analyze
    from perfdoctor.reports.json import document
    from perfdoctor.traces.reader import NoTraceError

    try:
        return document(analyze.diagnose([path]))
    except NoTraceError as error:
        what = "neither a recording nor a JSON report nor a profiler trace"
        raise PerfDoctorError(f"{path} is {what}: {error.instead}.", hint=_HINT) from None


def _report(path: Path) -> dict[str, Any]:
    try:
        found = dict(json.loads(path.read_bytes()))
    except ValueError as error:
        raise PerfDoctorError(f"The report {path} is damaged: {error}.", hint=_HINT) from None
    if "verdict" in found:
        return found
    raise PerfDoctorError(
        f"{path} is a report of several runs, not of one.", hint="Name a recording or a JSON report of each run."
    )
