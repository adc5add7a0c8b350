"""The parts of a diagnosis as pandas DataFrames, for notebooks. ``docs/notebook.md`` lists them and their columns."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Diagnosis, Fix, Part
from perfdoctor.reports.language import for_programs
from perfdoctor.reports.text import without_surrogates
from perfdoctor.reports.wording import worded_diagnosis, worded_fixes

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: dict[Part, list[str]] = {
    "findings": [
        "cause", "bottleneck", "severity", "share", "predicted_speedup", "ranks", "summary", "refuted_by",
    ],
    "verdict": [
        "cause", "bottleneck", "share", "confidence", "predicted_speedup", "straggler_rank", "level", "summary",
    ],
    "breakdown": ["cause", "bottleneck", "share"],
    "evidence": ["cause", "name", "value", "unit", "probe"],
    "fixes": ["cause", "title", "why", "change", "predicted_speedup", "least_speedup", "most_speedup"],
    "ranks": ["rank", "pid", "cause", "bottleneck", "share"],
    "series": ["chart", "name", "unit", "time_s", "value"],
    "not_examined": ["probe", "reason", "enable"],
}  # fmt: skip


def render(diagnosis: Diagnosis, part: Part) -> pd.DataFrame:
    """One part of a diagnosis.

    Lone surrogates (from file names that are not UTF-8), which pandas cannot hold, are replaced by U+FFFD.

    Raises:
        ValueError: there is no such part.
    """
    import pandas as pd

    if part not in _COLUMNS:
        raise ValueError(f"There is no {part!r} in a diagnosis; there are {', '.join(_COLUMNS)}.")
    with for_programs():
        diagnosis = worded_diagnosis(diagnosis)
    rows = [
        {name: without_surrogates(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in _rows(diagnosis, part)
    ]
    frame: pd.DataFrame = pd.DataFrame(rows, columns=_COLUMNS[part])
    return frame


def _rows(diagnosis: Diagnosis, part: Part) -> list[dict[str, Any]]:
    if part == "verdict":
        return [asdict(diagnosis.verdict)]
    if part == "not_examined":
        return [asdict(one) for one in diagnosis.not_examined]
    if part == "evidence":
        return [{"cause": one.cause, **asdict(item)} for one in diagnosis.findings for item in one.evidence]
    if part == "fixes":
        return [{"cause": one.cause, **_of_fix(fix)} for one in diagnosis.findings for fix in worded_fixes(one)]
    if part == "ranks":
        return [
            {"rank": rank["rank"], "pid": rank["pid"], **_of_cause(line)}
            for rank in diagnosis.ranks
            for line in rank["breakdown"]
        ]
    if part == "series":
        return [
            {"chart": one.chart, "name": one.name, "unit": one.unit, "time_s": time, "value": value}
            for one in diagnosis.series
            for time, value in zip(one.times, one.values, strict=True)
        ]
    return [_of_cause(asdict(one)) for one in getattr(diagnosis, part)]


def _of_fix(fix: Fix) -> dict[str, Any]:
    least, most = fix.speedup_range or (None, None)
    return {**asdict(fix), "least_speedup": least, "most_speedup": most}


def _of_cause(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "bottleneck": CAUSES[row["cause"]].bottleneck}
