"""Diagnoses with their words, as reports show them."""

from collections.abc import Iterable
from pathlib import Path

from perfdoctor.analysis import from_operations, from_traces
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.wording import worded_diagnosis
from perfdoctor.traces.model import Trace


def diagnose_traces(traces: Iterable[Trace]) -> Diagnosis:
    """Of a job's traces."""
    return worded_diagnosis(from_traces.diagnose_traces(traces))


def diagnose_table(path: Path) -> Diagnosis:
    """Of a table of operations."""
    return worded_diagnosis(from_operations.diagnose_table(path))
