"""A comparison as JSON, for scripts. The keys are a contract: they are only ever added to."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from perfdoctor.reports.json import SCHEMA, strict
from perfdoctor.results.comparison import CauseChange, Comparison, Interval


def render(comparison: Comparison) -> str:
    """The comparison as strict JSON in ASCII, ending in a line break."""
    return json.dumps(strict(document(comparison)), indent=2, allow_nan=False) + "\n"


def document(comparison: Comparison) -> dict[str, Any]:
    """What the JSON says."""
    pace, prediction = comparison.pace, comparison.prediction
    return {
        "schema": SCHEMA,
        "perfdoctor": comparison.version,
        "before": asdict(comparison.before),
        "after": asdict(comparison.after),
        "answer": "unknown" if pace is None else pace.answer.value,
        "pace": None
        if pace is None
        else {
            "before_s": pace.before,
            "after_s": pace.after,
            "before_batches_s": pace.batches[0],
            "after_batches_s": pace.batches[1],
            "speedup": _interval(pace.speedup),
            "confidence": pace.confidence,
            "noise_floor": pace.floor,
        },
        "implied_speedup": None if comparison.implied is None else _interval(comparison.implied),
        "causes": [_cause(one, "share" if pace is None else "s/step") for one in comparison.causes],
        "differences": [{**asdict(one), "weight": one.weight.value} for one in comparison.differences],
        "prediction": None if prediction is None else {**asdict(prediction), "promise": prediction.promise.value},
        "limit": comparison.limit,
        "regressed": comparison.regressed,
    }


def _cause(one: CauseChange, unit: str) -> dict[str, Any]:
    return {
        "cause": one.cause,
        "before": one.before,
        "after": one.after,
        "unit": unit,
        "change": _interval(one.change),
        "answer": one.answer.value,
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
