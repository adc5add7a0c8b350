"""perfdoctor: says why a PyTorch training job is slow, with proof, and what to change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from perfdoctor.api import diagnose, phase
    from perfdoctor.diagnosis import Diagnosis
    from perfdoctor.exports.dataframes import NotebookRecording as Recording

__version__ = "0.1.0"

__all__ = ["Recording", "__version__", "diagnose", "examine", "load", "phase"]

# Where each name is loaded from when it is first asked for: importing perfdoctor stays nearly free.
_LOADED_FROM = {
    "diagnose": ("perfdoctor.api", "diagnose"),
    "phase": ("perfdoctor.api", "phase"),
    "Recording": ("perfdoctor.exports.dataframes", "NotebookRecording"),
}


def examine(recording: Recording) -> Diagnosis:
    """Makes the diagnosis of a recording, as `perfdoctor attach` shows it.

    Args:
        recording: what was seen; may have been cut short by a crash.
    """
    from perfdoctor.analysis.from_recording import examine
    from perfdoctor.reports.wording import worded_diagnosis

    return worded_diagnosis(examine(recording))


def load(path: str | os.PathLike[str]) -> Recording | Diagnosis:
    """Reads what perfdoctor has written: a recording, or the diagnosis in a JSON report.

    Args:
        path: a file that ``--recording`` or ``--json`` left; of what ``treat`` left, the diagnosis that it began with.

    Raises:
        PerfDoctorError: there is no such file, it is neither of these, it is damaged or from another version.
    """
    from perfdoctor.exports.dataframes import NotebookRecording
    from perfdoctor.reports import reading

    return reading.read(path) if reading.is_report(path) else NotebookRecording.open(path)


def __getattr__(name: str) -> object:
    """Loads a public name."""
    if name in _LOADED_FROM:
        module, its_name = _LOADED_FROM[name]
        return getattr(import_module(module), its_name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
