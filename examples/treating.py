"""How often predicted gains come true: the fixes of examples, tried with ``perfdoctor treat``."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
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


def write(rows: Iterable[Row], conditions: Iterable[str]) -> None:
    """Writes rows and summary into the page."""
    lines = [*conditions, "", HEADER, *map(str, rows), "", *summary(rows)]
    fill("accuracy-advice.md", "rows", "\n".join(lines))
