"""Right or wrong: how runs of the examples are judged, and the table that says so."""

import collections
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs

BOTTLENECK_TARGET = 0.95
CAUSE_TARGET = 0.88
SHARE_ERROR_TARGET = 0.10


@dataclass
class Result:
    """One run of one example.

    Attributes:
        cause: what was said; None where there was no verdict.
        true_share: what the cure gains, None for a sound job.
        said_share: the share that the diagnosis gives to the expected cause.
        extra_s: how long attach took beyond the time it was asked to watch.
        note: what went wrong, if anything.
    """

    example: jobs.Example
    cause: str | None = None
    straggler: int | None = None
    confidence: float = 0.0
    true_share: float | None = None
    said_share: float = 0.0
    extra_s: float = 0.0
    note: str = ""
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def bottleneck_right(self) -> bool:
        return self.cause is not None and self.cause.split(".")[0] == self.example.expected.split(".")[0]

    @property
    def cause_right(self) -> bool:
        return self.cause == self.example.expected

    @property
    def straggler_right(self) -> bool:
        return self.straggler == self.example.straggler

    @property
    def error(self) -> float | None:
        return None if self.true_share is None else self.said_share - self.true_share


def line(result: Result) -> str:
    """One run as a line of the table on the terminal."""
    example = result.example
    mark = "right" if result.cause_right and result.straggler_right else "WRONG"
    true = "    -" if result.true_share is None else f"{result.true_share:5.2f}"
    error = "     -" if result.error is None else f"{result.error:+6.2f}"
    said = _named(result.cause, result.straggler)
    return (
        f"{example.name:27}{example.expected:26}{said:36}{mark:7}{true} {result.said_share:5.2f} {error}"
        f"  {result.confidence:4.2f} {result.extra_s:+5.1f}s  {result.note}"
    )


HEADER = f"{'example':27}{'expected':26}{'said':43}{'true':>5} {'said':>5} {'error':>6}  {'conf':4} {'beyond':>6}"


@dataclass(frozen=True)
class Totals:
    """The scorecard's bottom line; fractions of runs."""

    runs: int
    bottleneck: float
    cause: float
    straggler: float
    sound_runs: int
    false_illnesses: int
    share_error: float

    @property
    def good(self) -> bool:
        return (
            self.bottleneck >= BOTTLENECK_TARGET
            and self.cause >= CAUSE_TARGET
            and self.false_illnesses == 0
            and self.share_error <= SHARE_ERROR_TARGET
        )

    def lines(self) -> list[str]:
        return [
            f"Bottleneck right: {self.bottleneck:.0%} of {self.runs} runs (target {BOTTLENECK_TARGET:.0%}).",
            f"Cause right: {self.cause:.0%} (target {CAUSE_TARGET:.0%}).",
            f"Straggler right, none included: {self.straggler:.0%}.",
            f"Illnesses found in sound jobs: {self.false_illnesses} in {self.sound_runs} runs (target 0).",
            f"Median error of the share: {self.share_error:.3f} (target {SHARE_ERROR_TARGET:.2f}).",
        ]


def totals(results: list[Result]) -> Totals:
    sound = [r for r in results if r.example.sound]
    errors = [abs(r.error) for r in results if r.error is not None]
    return Totals(
        runs=len(results),
        bottleneck=statistics.mean(r.bottleneck_right for r in results),
        cause=statistics.mean(r.cause_right for r in results),
        straggler=statistics.mean(r.straggler_right for r in results),
        sound_runs=len(sound),
        false_illnesses=sum(not r.cause_right for r in sound),
        share_error=statistics.median(errors) if errors else 0.0,
    )


PAGE = """\
# Accuracy

Each job below has one planted illness, or none. perfdoctor watches it from outside. Then the
illness is removed, and the pace of both says what share of its time the illness really cost.
Numbers are medians over the runs of an example; the said share is the one that the diagnosis gives
to the expected cause, 0 where it does not name it.

These jobs were known while perfdoctor was built: the table shows that it works and how exact its
shares are, not how it does on jobs that nobody showed it.

{totals}

| example | expected | said | true share | said share | error |
|---|---|---|---|---|---|
{rows}

{conditions}

Reproduce with `python examples/scorecard.py --repeats 3 --write`, as root on an otherwise idle machine
with two cores.
"""


def document(results: list[Result], conditions: list[str]) -> str:
    """The page docs/accuracy.md."""
    rows = []
    for example in dict.fromkeys(r.example for r in results):
        mine = [r for r in results if r.example == example]
        said = collections.Counter(_named(r.cause, r.straggler) for r in mine)
        named = "; ".join(f"{name} {count}/{len(mine)}" for name, count in said.most_common())
        expected = _named(example.expected, example.straggler)
        rows.append(f"| {example.name} | {expected} | {named} | {_shares(mine)} |")
    bottom_line = "\n".join(f"- {text}" for text in totals(results).lines())
    return PAGE.format(totals=bottom_line, rows="\n".join(rows), conditions="\n".join(conditions))


def _named(cause: str | None, straggler: int | None) -> str:
    return (cause or "no verdict") + ("" if straggler is None else f", rank {straggler}")


def _shares(results: list[Result]) -> str:
    true = [r.true_share for r in results if r.true_share is not None]
    said = statistics.median(r.said_share for r in results)
    if not true:
        return f"- | {said:.2f} | -"
    error = statistics.median(r.error for r in results if r.error is not None)
    return f"{statistics.median(true):.2f} | {said:.2f} | {error:+.2f}"
