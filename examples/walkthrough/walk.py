"""From slow to fast: runs each stage of ``gpt.py``, asks perfdoctor what holds it back, and measures the next stage.

    python examples/walkthrough/walk.py [--rounds 3] [--write]

What is changed after each finding was decided by a person who read the report: ``STORY``. All else is measured anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from documents import fill

HERE = Path(__file__).resolve().parent
PAGE = "walkthrough.md"
WATCHED_S, RUN_S = 10, 12


@dataclass(frozen=True)
class Change:
    """What is done about a finding.

    Attributes:
        name: as ``gpt.py`` knows it.
        cause: which finding it is for.
        words: what is changed.
    """

    name: str
    cause: str
    words: str


STORY = (
    Change("threads", "cpu.contention", "as many compute threads as cores, not eight times as many"),
    Change("gc", "cpu.garbage_collection", "no `gc.collect()` after each step"),
    Change("attention", "cpu.python_overhead", "all sequences and heads in one `scaled_dot_product_attention`"),
    Change("evaluation", "cpu.evaluation", "half the held-out batches, every 500th step instead of every 10th"),
    Change("tokens", "cpu.input_preprocessing", "the text is encoded once, and batches are cut out of one tensor"),
    Change("checkpoints", "io.checkpoint_write", "a checkpoint every 1000th step instead of every 10th"),
    Change("log", "io.log_write", "a line every 100th step, and none is waited for in between"),
    Change("optimizer", "cpu.python_overhead", "`AdamW(fused=True)`, and one call that clips all gradients"),
    Change("batch", "cpu.python_overhead", "32 sequences in a batch instead of 8"),
)


def main() -> None:
    """Walks, prints the table, and writes it into the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each stage is run unwatched (default 3)")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}")
    arguments = parser.parse_args()
    stages = [[change.name for change in STORY[:count]] for count in range(len(STORY) + 1)]
    paces = measure(stages, arguments.rounds)
    rows = [*table([diagnose(stage) for stage in stages], paces)]
    print("\n".join(rows))
    if arguments.write:
        fill(PAGE, "stages", "\n".join(rows))


def measure(stages: list[list[str]], rounds: int) -> list[float]:
    """Tokens per second of each stage, as the median of runs that take turns."""
    seen: list[list[float]] = [[] for _ in stages]
    for _ in range(rounds):
        for stage, paces in zip(stages, seen, strict=True):
            command = [sys.executable, str(HERE / "gpt.py"), *stage, "--seconds", str(RUN_S)]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            paces.append(float(lines[-1].removesuffix(" tokens/s")))
    return [statistics.median(paces) for paces in seen]


def diagnose(stage: list[str]) -> dict[str, Any]:
    """What `perfdoctor attach` says of a stage, from its third second on."""
    command = [sys.executable, str(HERE / "gpt.py"), *stage, "--seconds", str(WATCHED_S + 8)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job,
    ):
        assert job.stdout is not None
        while job.stdout.readline().strip() != "ready":
            pass
        report = Path(folder, "diagnosis.json")
        options = ["--duration", str(WATCHED_S), "--json", str(report)]
        watch = [sys.executable, "-m", "perfdoctor", "attach", str(job.pid), *options]
        subprocess.run(watch, check=True, stdout=subprocess.DEVNULL)
        job.stdout.read()
        told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return told


def table(told: list[dict[str, Any]], paces: list[float]) -> Iterator[str]:
    """One row for each stage: what was found, what it promised, what was done, and what came of it."""
    yield "| tokens/s | verdict | first fix of the finding, and what it promises | change | measured |"
    yield "|---|---|---|---|---|"
    for number, change in enumerate(STORY):
        verdict = told[number]["verdict"]
        gained = f"{paces[number + 1] / paces[number]:.2f}x"
        found = next((one for one in told[number]["findings"] if one["cause"] == change.cause), None)
        beside = found is not None and verdict["cause"] != change.cause
        other = f"; beside it `{change.cause}` {found['share']:.2f}" if found and beside else ""
        yield (
            f"| {paces[number]:.0f} | `{verdict['cause']}` {verdict['share']:.2f}{other} | {_first_fix(found)} "
            f"| {change.words} | {gained} |"
        )
    last = told[-1]["verdict"]
    yield f"| {paces[-1]:.0f} | `{last['cause']}` {last['share']:.2f} | | | {paces[-1] / paces[0]:.1f}x in all |"


def _first_fix(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not found"
    fix = found["fixes"][0]
    title = fix["title"].replace(str(HERE) + "/", "")
    if fix["speedup_range"] is None:
        return title
    least, most = fix["speedup_range"]
    return f"{title}: {fix['predicted_speedup']:.2f}x ({least:.2f} to {most:.2f})"


if __name__ == "__main__":
    main()
