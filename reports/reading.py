"""Reads JSON reports back, and has the schema that they keep to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import CauseShare, Diagnosis, Evidence, Finding, Fix, NotExamined, Verdict
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.reports.json import SCHEMA
from perfdoctor.results.blocks import Block
from perfdoctor.results.stuck import KINDS, Halt, Stuck

# Of a halt, what came after the first reports that had some.
_LATER = ("host", "sequence", "group", "tensors")
# The first keys of a report stand in here; a profiler's trace begins as JSON does, and may have gigabytes.
_BEGINNING = 4096
_HINT = say("moves.report_again")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the JSON report."""
    text = files("perfdoctor.reports").joinpath("report.schema.json").read_text("utf-8")
    return dict(json.loads(text))


def is_report(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a JSON report does; not if it cannot be read."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return False
    return beginning.lstrip().startswith(b"{") and b'"schema"' in beginning and b'"perfdoctor"' in beginning


def read(path: str | os.PathLike[str]) -> Diagnosis:
    """The diagnosis in a JSON report; of a treatment's, the one that it began with.

    Raises:
        PerfDoctorError: the file cannot be read, is damaged, or from another version.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PerfDoctorError(f"{path} cannot be read: {error.strerror}.", hint=_HINT) from None
    except ValueError as error:
        raise PerfDoctorError(f"The report {path} is damaged: {error}.", hint=_HINT) from None
    if document.get("schema") != SCHEMA:
        raise PerfDoctorError(
            f"{path} has report schema {document.get('schema')}, and this perfdoctor reads schema {SCHEMA}.",
            hint="Read it with the perfdoctor version that wrote it.",
        )
    document = document.get("diagnosis", document)
    if "verdict" not in document:
        raise PerfDoctorError(f"There is no diagnosis in {path}.", hint=_HINT)
    try:
        return diagnosis_of(document)
    except KeyError as error:
        raise PerfDoctorError(f"The report {path} is damaged: it lacks {error}.", hint=_HINT) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise PerfDoctorError(f"The report {path} is damaged: {error}.", hint=_HINT) from None


def diagnosis_of(document: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis that a JSON report holds. What was drawn over time is not in it, nor keys of later versions.

    Args:
        document: the report as it is decoded.

    Raises:
        KeyError, TypeError, ValueError: it is no report.
    """
    verdict = document["verdict"]
    return Diagnosis(
        version=str(document["perfdoctor"]),
        verdict=Verdict(
            bottleneck=verdict["bottleneck"],
            cause=None if verdict["cause"] is None else _known(verdict["cause"]),
            share=_number(verdict["share"]),
            confidence=_number(verdict["confidence"]),
            predicted_speedup=_number(verdict["predicted_speedup"]),
            straggler_rank=verdict["straggler_rank"],
            level=verdict["level"],
            summary=verdict["summary"],
        ),
        breakdown=tuple(CauseShare(_known(line["cause"]), _number(line["share"])) for line in document["breakdown"]),
        findings=tuple(map(_finding, document["findings"])),
        ranks=tuple(document["ranks"]),
        steps=dict(document["steps"]),
        not_examined=tuple(
            NotExamined(item["probe"], item["reason"], item["enable"]) for item in document["not_examined"]
        ),
        overhead=dict(document["overhead"]),
        job=dict(document["job"]),
        blocks=tuple(map(_block, document.get("blocks", ()))),  # came later
        stuck=None if (stuck := document.get("stuck")) is None else _stuck(stuck),  # so did this
    )


def _block(row: Mapping[str, Any]) -> Block:
    steps = row["steps"]
    causes = {_known(cause): _number(seconds) for cause, seconds in row["causes"].items()}
    return Block(_number(row["seconds"]), None if steps is None else _number(steps), causes)


def _stuck(row: Mapping[str, Any]) -> Stuck:
    if row["kind"] not in KINDS:
        raise ValueError(f"this perfdoctor knows no {row['kind']!r}")
    return Stuck(
        kind=row["kind"],
        rank=row["rank"],
        ranks=tuple(row["ranks"]),
        since_s=_number(row["since_s"]),
        confidence=_number(row["confidence"]),
        chain=tuple(map(_halt, row["chain"])),
        waiting=tuple(map(_halt, row["waiting"])),
        summary=row["summary"],
        next_move=row["next_move"],
        refuted_by=row["refuted_by"],
    )


def _halt(row: Mapping[str, Any]) -> Halt:
    known = {field.name: row[field.name] for field in fields(Halt) if field.name in row or field.name not in _LATER}
    others = row["others"]
    return Halt(**{**known, "others": None if others is None else tuple(others), "threads": tuple(row["threads"])})


def _finding(row: Mapping[str, Any]) -> Finding:
    cause, title = _known(row["cause"]), row.get("title", "")  # which came after the first reports of this schema
    return Finding(
        cause=cause,
        share=_number(row["share"]),
        severity=row["severity"],
        predicted_speedup=_number(row["predicted_speedup"]),
        summary=row.get("summary", ""),  # came after the first reports of this schema
        evidence=tuple(_evidence(item) for item in row["evidence"]),
        fixes=tuple(map(_fix, row["fixes"])),
        refuted_by=row["refuted_by"],
        ranks=tuple(row["ranks"]),
        title="" if title == CAUSES[cause].title else title,
    )


def _evidence(item: Mapping[str, Any]) -> Evidence:
    value = item["value"]
    return Evidence(item["name"], value if isinstance(value, str) else _number(value), item["unit"], item["probe"])


def _fix(item: Mapping[str, Any]) -> Fix:
    # Gains of single fixes, and what they are in, came after the first reports of this schema.
    gain, between = item.get("predicted_speedup"), item.get("speedup_range")
    least_and_most = None
    if between is not None:
        least, most = between
        least_and_most = _number(least), _number(most)
    gain = None if gain is None else _number(gain)
    changes_step = bool(item.get("changes_step", False))
    return Fix(item["title"], item["why"], item["change"], gain, least_and_most, changes_step)


def _known(cause: str) -> str:
    if cause not in CAUSES:
        raise ValueError(f"this perfdoctor knows no cause {cause!r}")
    return cause


def _number(value: float | None) -> float:
    """A number; JSON says null for those that are not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        raise TypeError(f"{value!r} is no number")
    return math.nan if value is None else value
