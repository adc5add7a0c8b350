"""The page of a session: verdicts against what was planted, and readings against those of others."""

import json
from pathlib import Path
from typing import Any

import keeping
import looking

PAGE = Path("docs", "accuracy-gpu.md")
_DRY = "**A dry run without a GPU: it tries the script, and the verdicts below mean nothing.**\n\n"
_HEAD = """\
# Accuracy on GPU jobs

{dry}Each job below has one planted bottleneck, or none. perfdoctor looks at it from outside (`attach`), in a profiler
trace of a few steps (`analyze`), and from inside (`with diagnose():`, its profile included). Then the bottleneck is
removed: the true share is what that gains. The shares that perfdoctor says are those of the expected cause; a cause
in bold is a wrong verdict.

{totals}

| example | expected | true share | attach | analyze | inside |
|---|---|---|---|---|---|
{rows}

## Readings

What the GPU probe read while `attach` looked, beside `nvidia-smi` at the same time and torch's own counters shortly
after: the number of examples in which both agree within the tolerance of `examples/gpu/comparing.py`.

| reading | source | agree | worst case (perfdoctor, other) |
|---|---|---|---|
{readings}

{notes}Measured on {devices}.

Made by `python examples/gpu/session.py`.
"""


def load(into: Path) -> list[dict[str, Any]]:
    """All results that lie under a root, of this session and of earlier ones."""
    return [json.loads(file.read_text()) for file in sorted((into / keeping.FIXTURES).glob("*/result.json"))]


def write(into: Path) -> Path:
    """Writes the page from all fixtures under a root."""
    results = load(into)
    file = into / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(results))
    return file


def render(results: list[dict[str, Any]]) -> str:
    return _HEAD.format(
        dry=_DRY if any(told["dry"] for told in results) else "",
        totals="\n".join(f"- {line}" for line in totals(results)),
        rows="\n".join(_row(told) for told in results),
        readings="\n".join(_readings(results)) or "| none | | | |",
        notes="".join(f"{told['example']}: {note}\n\n" for told in results for note in _notes(told)),
        devices="; ".join(dict.fromkeys(told["device"] for told in results)),
    )


def totals(results: list[dict[str, Any]]) -> list[str]:
    """How often each way was right."""
    lines = []
    for way in looking.WAYS:
        said = [told for told in results if told.get(way, {}).get("cause")]
        causes = sum(right(told, way) for told in said)
        bottlenecks = sum(told[way]["bottleneck"] == told["expected"].split(".")[0] for told in said)
        lines.append(f"{way}: bottleneck right in {bottlenecks}, cause in {causes} of {len(results)} jobs.")
    return lines


def right(told: dict[str, Any], way: str) -> bool:
    """Whether one way named what was planted."""
    return bool(told.get(way, {}).get("cause") == told["expected"])


def _row(told: dict[str, Any]) -> str:
    share = told.get("true_share")
    cells = [told["example"], told["expected"], "-" if share is None else f"{share:.2f}"]
    return "| " + " | ".join(cells + [_said(told, way) for way in looking.WAYS]) + " |"


def _said(told: dict[str, Any], way: str) -> str:
    verdict = told.get(way, {})
    if "share" not in verdict:
        return "failed"
    mark = "" if right(told, way) else f"**{verdict['cause'] or 'no verdict'}** "
    return f"{mark}{verdict['expected_share']:.2f}"


def _readings(results: list[dict[str, Any]]) -> list[str]:
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for told in results:
        for one in told["compared"]:
            if "reading" in one:
                rows.setdefault((one["reading"], f"{one['source']} {one['theirs']}"), []).append(one)
    lines = []
    for (reading, source), found in rows.items():
        known = [one for one in found if "agrees" in one]
        if not known:
            lines.append(f"| {reading} | {source} | {found[0]['reason']} | |")
            continue
        worst = max(known, key=lambda one: abs(one["perfdoctor"] - one["other"]))
        agree = f"{sum(one['agrees'] for one in known)} of {len(known)}"
        lines.append(f"| {reading} | {source} | {agree} | {worst['perfdoctor']:.4g}, {worst['other']:.4g} |")
    return lines


def _notes(told: dict[str, Any]) -> list[str]:
    """What went wrong in an example."""
    ways = [f"{way}: {told[way]['note']}" for way in looking.WAYS if told.get(way, {}).get("note")]
    reasons = [one["reason"] for one in told["compared"] if "reading" not in one]
    return [note.replace("\n", " ") for note in (*told["notes"], *ways, *reasons)]
