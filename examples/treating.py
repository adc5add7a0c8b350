"""How often predicted gains come true: the fixes of examples, made by hand or tried with ``perfdoctor treat``."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
import ways
from documents import fill

# Longer than any trial: the job is ended when enough was seen.
_SECONDS = 3600


@dataclass(frozen=True)
class Row:
    """A change that was predicted and measured.

    Attributes:
        predicted: fraction of the wall time that the diagnosis says it frees.
        measured: the one that it freed; below 0 where it cost time.
        low: lower end of the interval of that.
        high: its upper end.
        kept: it is the best of its job, measured once more.
    """

    example: str
    change: str
    predicted: float
    measured: float
    low: float
    high: float
    kept: bool = False

    @property
    def error(self) -> float:
        """By how much the prediction is too high."""
        return self.predicted - self.measured

    def __str__(self) -> str:
        cells = (
            self.example, f"{self.change}{' (kept)' if self.kept else ''}", f"{self.predicted:.2f}",
            f"{self.measured:.2f} ({self.low:.2f} to {self.high:.2f})", f"{self.error:+.2f}",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEADER = "| job | change | predicted | measured, with its interval | error |\n|---|---|---|---|---|"


def treat(example: jobs.Example, minutes: float, details: Path | None = None) -> list[Row]:
    """Tries what may help an example.

    Args:
        example: which.
        minutes: how long.
        details: the folder in which the whole report is kept; None keeps nothing.

    Raises:
        RuntimeError: it could not be tried.
    """
    folder = jobs.EXAMPLES / example.name
    with tempfile.TemporaryDirectory() as reports:
        report = Path(reports, "treated.json")
        options = ["--minutes", str(minutes), "--json", str(report)]
        job = [sys.executable, "train.py", "bottleneck", "--seconds", str(_SECONDS)]
        command = [sys.executable, "-m", "perfdoctor", "treat", *options, "--", *job]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip())
        if details is not None:
            details.mkdir(parents=True, exist_ok=True)
            shutil.copy(report, details / f"{example.name.replace('/', '-')}-treated.json")
        told = json.loads(report.read_text(encoding="utf-8"))
    best = told["best"]
    rows = [
        row for trial in told["trials"] if best is None or trial["id"] != best["id"] for row in _row(example, trial)
    ]
    return [*(_row(example, best, kept=True) if best else ()), *rows]


def _row(example: jobs.Example, trial: dict[str, Any], *, kept: bool = False) -> Iterator[Row]:
    """A row of a change that the diagnosis advises, if it was measured more than once."""
    seen, predicted = trial["measured"], trial["predicted_speedup"]
    if predicted is not None and seen is not None and seen["low"] is not None and not trial["bound"]:
        ends = (_freed(seen[name]) for name in ("speedup", "low", "high"))
        yield Row(example.name, trial["id"], _freed(predicted), *ends, kept)


def by_hand(example: jobs.Example, pairs: int, seconds: float, watched_s: float) -> Row:
    """What a diagnosis predicts for the change that the fixed state makes, and what runs with it and without gain.

    Args:
        example: which; it says what the change is called.
        pairs: of runs with the bottleneck and fixed, in turn.
        seconds: of pace in each run.
        watched_s: of watching.

    Raises:
        RuntimeError: a run did not come about, or the diagnosis does not advise the change.
    """
    with jobs.running(example, "bottleneck", watched_s + ways.PATIENCE_S) as job:
        job.wait_until_ready()
        time.sleep(jobs.WARM_UP_S)
        findings = ways.attach(job, watched_s).said["findings"]
    fixes = [fix for finding in findings for fix in finding["fixes"] if re.match(example.advice, fix["title"])]
    fix = next((fix for fix in fixes if fix["predicted_speedup"]), None)
    if fix is None:
        raise RuntimeError(f"{example.advice!r} is not advised, or without a number")
    laps: dict[str, list[float]] = {"bottleneck": [], "fixed": []}
    for _ in range(pairs):
        for state, times in laps.items():
            times.append(_lap(example, state, seconds))
    from perfdoctor.treat.judging import compare

    gain = compare(laps["bottleneck"], laps["fixed"])
    ends = (gain.speedup, gain.low or gain.speedup, gain.high or gain.speedup)
    title = re.sub(r"/\S*/", "", fix["title"])  # the folder is this machine's
    return Row(example.name, title, _freed(fix["predicted_speedup"]), *map(_freed, ends))


def _lap(example: jobs.Example, state: str, seconds: float) -> float:
    """Mean seconds of a step."""
    pace = jobs.pace_of(example, state, seconds)
    if not pace:
        raise RuntimeError(f"{state}: no step within {seconds:g} s")
    return 1 / pace


def _freed(speedup: float) -> float:
    return 1 - 1 / speedup


def summary(rows: Iterable[Row]) -> list[str]:
    """How good the predictions are."""
    errors = [abs(row.error) for row in rows]
    slower = [row for row in rows if row.kept and row.high < 0]
    if not errors:
        return ["No change that the diagnoses advise was measured."]
    median, within = statistics.median(errors), sum(error <= 0.15 for error in errors)
    return [
        f"Changes: {len(errors)}. Median error of the share: {median:.3f} (to reach: 0.05); within 0.15: {within} of "
        f"{len(errors)} (to reach: 90 %). Kept and slower than as it was: {len(slower)} (to reach: none)."
    ]


def write(place: str, rows: Iterable[Row], conditions: Iterable[str]) -> None:
    """Writes rows and summary into the page, where it says ``rows`` or ``by hand``."""
    lines = [*conditions, "", HEADER, *map(str, rows), "", *summary(rows)]
    fill("accuracy-advice.md", place, "\n".join(lines))
