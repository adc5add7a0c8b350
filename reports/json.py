"""The diagnosis as JSON, for scripts. The keys are a contract: they are only ever added to."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any

from perfdoctor.diagnosis import Diagnosis, Finding
from perfdoctor.reports.cards import finding_title
from perfdoctor.reports.language import for_programs
from perfdoctor.reports.text import without_surrogates
from perfdoctor.reports.wording import worded_diagnosis
from perfdoctor.results.blocks import Block

SCHEMA = 1  # grows when a reader of the old one would misread the new one

_VERDICT = (
    "bottleneck", "cause", "share", "confidence", "predicted_speedup", "straggler_rank", "level", "summary",
)  # fmt: skip
_DIGITS = 6  # of seconds and steps of a block


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as strict JSON in ASCII, ending in a line break; the series are left out.

    What JSON cannot say is replaced: numbers that are not finite by null, lone surrogates (from file names
    that are not UTF-8) by U+FFFD.

    Raises:
        TypeError: one of the free tables (job, steps, ranks, overhead) holds what is not a plain value.
    """
    return json.dumps(document(diagnosis), indent=2, allow_nan=False) + "\n"


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the JSON says, as values that it can hold: texts in English, unless the user named another language."""
    with for_programs():
        diagnosis = worded_diagnosis(diagnosis)
        findings = list(map(_finding, diagnosis.findings))
    said = {
        "schema": SCHEMA,
        "perfdoctor": diagnosis.version,
        "verdict": {name: getattr(diagnosis.verdict, name) for name in _VERDICT},
        "breakdown": [asdict(line) for line in diagnosis.breakdown],
        "findings": findings,
        "ranks": diagnosis.ranks,
        "steps": diagnosis.steps,
        "not_examined": [
            {"probe": item.probe, "reason": item.reason, "enable": item.enable} for item in diagnosis.not_examined
        ],
        "overhead": diagnosis.overhead,
        "job": diagnosis.job,
        "blocks": [_block(block) for block in diagnosis.blocks],
        "stuck": None if diagnosis.stuck is None else asdict(diagnosis.stuck),
    }
    return dict(strict(said))


def _block(block: Block) -> dict[str, Any]:
    """A block with numbers that are as long as they are known."""
    return {
        "seconds": round(block.seconds, _DIGITS),
        "steps": None if block.steps is None else round(block.steps, _DIGITS),
        "causes": {cause: round(seconds, _DIGITS) for cause, seconds in block.causes.items()},
    }


def names_bottleneck(text: str) -> bool:
    """Whether a text is such a document, and names a bottleneck."""
    try:
        return json.loads(text)["verdict"]["bottleneck"] is not None
    except (ValueError, LookupError, TypeError):
        return False


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "bottleneck": finding.bottleneck,
        "severity": finding.severity,
        "share": finding.share,
        "predicted_speedup": finding.predicted_speedup,
        "title": finding_title(finding),
        "summary": finding.summary,
        "evidence": [asdict(item) for item in finding.evidence],
        "fixes": [asdict(fix) for fix in finding.fixes],
        "refuted_by": finding.refuted_by,
        "ranks": finding.ranks,
    }


def strict(value: Any) -> Any:
    """The same value in types that every JSON parser reads."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {strict(str(key)): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    raise TypeError(f"a report holds plain values only, not {type(value).__name__}")
