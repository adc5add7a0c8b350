"""The last figures of a recording in Prometheus' text format, for the textfile collector of node_exporter for instance.

The format: prometheus.io/docs/instrumenting/exposition_formats. What could not be read is left out, never zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Reading

_PREFIX = "perfdoctor_"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render(recording: Recording, diagnosis: Diagnosis) -> bytes:
    """What was read last of each subject, and what the diagnosis says.

    Raises:
        PerfDoctorError: the recording is damaged.
    """
    lines = [*_verdict(diagnosis), *_readings(recording)]
    return "".join(f"{line}\n" for line in lines).encode()


def _verdict(diagnosis: Diagnosis) -> Iterator[str]:
    verdict = diagnosis.verdict
    yield from _head("cause_share", "gauge", "Fraction of the trainers' wall time by cause; see docs/causes.md.")
    for line in diagnosis.breakdown:
        yield _sample("cause_share", {"cause": line.cause}, line.share)
    if verdict.cause is not None and verdict.bottleneck is not None:
        where = {"bottleneck": verdict.bottleneck, "cause": verdict.cause}
        yield from _head("verdict_confidence", "gauge", "How often the same cause comes first, resampled; 0 to 1.")
        yield _sample("verdict_confidence", where, verdict.confidence)
        yield from _head("predicted_speedup_ratio", "gauge", "How many times as fast the job would be if it was fixed.")
        yield _sample("predicted_speedup_ratio", where, verdict.predicted_speedup)


def _readings(recording: Recording) -> Iterator[str]:
    last: dict[str, dict[str, Reading]] = {}
    for row in recording.rows(Reading):
        if row.value is not None:
            last.setdefault(f"{row.probe}_{row.name}", {})[row.subject] = row
    for name, rows in sorted(last.items()):
        one = next(iter(rows.values()))
        kind = "counter" if name.endswith("_total") else "gauge"
        yield from _head(name, kind, f"{one.name} as the {one.probe} probe read it last; see docs/readings.md.")
        for subject, row in sorted(rows.items()):
            assert row.value is not None
            yield _sample(name, {"subject": subject}, row.value)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {_metric(name)} {text}"
    yield f"# TYPE {_metric(name)} {kind}"


def _metric(name: str) -> str:
    return _PREFIX + _NOT_IN_NAMES.sub("_", name)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{label}="{_printable(text).translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{_metric(name)}{{{written}}} {_number(value)}"


def _printable(text: str) -> str:
    """As UTF-8 can say it: file names may hold anything."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
