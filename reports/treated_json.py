"""A treatment as JSON, for scripts. The keys are a contract: they are only ever added to."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from perfdoctor.reports.json import SCHEMA, document, strict
from perfdoctor.reports.language import for_programs
from perfdoctor.reports.wording import worded, worded_fix
from perfdoctor.results.treatment import Treated, Trial

_FACTS = ("id", "causes", "bound", "first_step_s", "memory_bytes", "gpu_memory_bytes")


def render(treated: Treated) -> str:
    """The treatment as strict JSON in ASCII, ending in a line break, with the diagnosis below ``diagnosis``."""
    with for_programs():
        known = _document(treated)
    return json.dumps(strict(known), indent=2, allow_nan=False) + "\n"


def render_within(treated: Treated) -> str:
    """The diagnosis as its own JSON report has it, with what was tried from inside below ``treated``."""
    with for_programs():
        known = {**document(treated.diagnosis), "treated": _told(treated)}
    return json.dumps(strict(known), indent=2, allow_nan=False) + "\n"


def _document(treated: Treated) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "perfdoctor": treated.diagnosis.version,
        "command": treated.command,
        **_told(treated),
        "diagnosis": document(treated.diagnosis),
    }


def _told(treated: Treated) -> dict[str, Any]:
    return {
        "best": _trial(treated.best) if treated.best else None,
        "control": asdict(treated.control) if treated.control else None,
        "trials": [_trial(trial) for trial in treated.trials],
        "combined": [_trial(trial) for trial in treated.combined],
        "patch": treated.patch,
        "saved_aside": treated.saved_aside,
        "interrupted": treated.interrupted,
        "spent": treated.spent,
        "inside": treated.inside,
        "not_asked": [_trial(trial) for trial in treated.not_asked],
        "by_hand": [
            {"title": worded_fix(fix).title, "predicted_speedup": fix.predicted_speedup} for fix in treated.by_hand
        ],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        **{name: getattr(trial, name) for name in _FACTS},
        "changes": [
            {"title": fix.title, "why": fix.why, "change": fix.change} for fix in map(worded_fix, trial.advice)
        ],
        "predicted_speedup": trial.predicted,
        "at_most": trial.at_most,
        "measured": asdict(trial.measured) if trial.measured else None,
        "verdict": trial.outcome.value,
        "training": trial.training.value if trial.training else None,
        "detail": worded(trial.detail),
        "edits": [{**asdict(edit), "arguments": dict(edit.arguments)} for edit in trial.edits],
    }
