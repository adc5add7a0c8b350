"""Right or wrong: how runs of the examples are judged, and the table that says so."""

import collections
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs


@dataclass(frozen=True)
class Target:
    """What perfdoctor is to reach: fractions of runs, and the median error of the share."""

    bottleneck: float
    cause: float
    share_error: float


OUTSIDE, INSIDE = Target(0.95, 0.88, 0.10), Target(0.97, 0.92, 0.07)
# Phases against the step that they are parts of, and the step against the example's own clock.
STEP_TARGET = 0.01


@dataclass
class Result:
    """One run of one example.

    Attributes:
        way: how it was watched: ``attach``, or ``diagnose()`` around a ``step`` or the ``loop``.
        cause: what was said; None where there was no verdict.
        true_share: what the fix gains, None for a sound job.
        said_share: the share that the diagnosis gives to the expected cause.
        extra_s: how long the diagnosis took beyond the time that was watched.
        step_error: by which fraction the median step differs from the example's own clock's; None if not measured.
        sum_error: by which fraction the phases of a step differ from the step, in the mean.
        note: what went wrong, if anything.
    """

    example: jobs.Example
    way: str = "attach"
    cause: str | None = None
    straggler: int | None = None
    confidence: float = 0.0
    true_share: float | None = None
    said_share: float = 0.0
    extra_s: float = 0.0
    step_error: float | None = None
    sum_error: float | None = None
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
    step = "" if result.step_error is None else f"step {result.step_error:+.2%} sum {result.sum_error:+.2%}"
    return (
        f"{example.name:27}{result.way:7}{example.expected:26}{said:36}{mark:7}{true} {result.said_share:5.2f} {error}"
        f"  {result.confidence:4.2f} {result.extra_s:+5.1f}s  {step} {result.note}"
    )


_NUMBERS = f"{'true':>5} {'said':>5} {'error':>6}  {'conf':4} {'beyond':>6}"
HEADER = f"{'example':27}{'way':7}{'expected':26}{'said':43}{_NUMBERS}"


@dataclass(frozen=True)
class Totals:
    """The scorecard's bottom line; fractions of runs.

    Attributes:
        step_error: median over the runs, without sign; None where steps were not measured.
        sum_error: the largest, without sign.
    """

    target: Target
    runs: int
    bottleneck: float
    cause: float
    straggler: float
    sound_runs: int
    false_bottlenecks: int
    share_error: float
    step_error: float | None
    sum_error: float | None

    @property
    def good(self) -> bool:
        return (
            self.bottleneck >= self.target.bottleneck
            and self.cause >= self.target.cause
            and self.false_bottlenecks == 0
            and self.share_error <= self.target.share_error
            and max(self.step_error or 0.0, self.sum_error or 0.0) <= STEP_TARGET
        )

    def lines(self) -> list[str]:
        lines = [
            f"Bottleneck right: {self.bottleneck:.0%} of {self.runs} runs (target {self.target.bottleneck:.0%}).",
            f"Cause right: {self.cause:.0%} (target {self.target.cause:.0%}).",
            f"Straggler right, none included: {self.straggler:.0%}.",
            f"Bottlenecks found in sound jobs: {self.false_bottlenecks} in {self.sound_runs} runs (target 0).",
            f"Median error of the share: {self.share_error:.3f} (target {self.target.share_error:.2f}).",
        ]
        if self.step_error is not None:
            lines += [
                f"Median step against the job's own clock: off by {self.step_error:.2%} as a median over the runs "
                f"(target {STEP_TARGET:.0%}).",
                f"Phases against the step that they are parts of: off by {self.sum_error:.2%} at most "
                f"(target {STEP_TARGET:.0%}).",
            ]
        return lines


def totals(results: list[Result]) -> Totals:
    sound = [r for r in results if r.example.sound]
    errors = [abs(r.error) for r in results if r.error is not None]
    steps = [abs(r.step_error) for r in results if r.step_error is not None]
    sums = [abs(r.sum_error) for r in results if r.sum_error is not None]
    return Totals(
        target=OUTSIDE if results[0].way == "attach" else INSIDE,
        runs=len(results),
        bottleneck=statistics.mean(r.bottleneck_right for r in results),
        cause=statistics.mean(r.cause_right for r in results),
        straggler=statistics.mean(r.straggler_right for r in results),
        sound_runs=len(sound),
        false_bottlenecks=sum(not r.cause_right for r in sound),
        share_error=statistics.median(errors) if errors else 0.0,
        step_error=statistics.median(steps) if steps else None,
        sum_error=max(sums) if sums else None,
    )


PAGE = """\
# {title}

Each job below has one planted bottleneck, or none. {how} Then the
bottleneck is removed, and the pace of both says what share of its time the bottleneck really cost.
Numbers are medians over the runs of an example; the said share is the one that the diagnosis gives
to the expected cause, 0 where it does not name it.

These jobs were known while perfdoctor was built: the table shows that it works and how exact its
shares are, not how it does on jobs that nobody showed it.

{tables}

{conditions}

Reproduce with `python examples/scorecard.py {options} --write`, as root on an otherwise idle machine
with two cores.
"""
WAYS = {
    "attach": "",
    "step": "## `with diagnose():` around each step\n\n",
    "loop": "## `with diagnose():` around the whole loop\n\n",
}


def documents(results: list[Result], conditions: list[str], options: str) -> dict[str, str]:
    """The pages docs/accuracy.md and docs/accuracy-inside.md, by name, as far as there are results for them.

    ``options`` are those that make the pages again, but for the way.
    """
    outside, inside = [r for r in results if r.way == "attach"], [r for r in results if r.way != "attach"]
    pages = {}
    if outside:
        how = "perfdoctor watches it from outside."
        pages["accuracy.md"] = _page("Accuracy", how, outside, conditions, options)
    if inside:
        how = "`diagnose()` in its own code watches it."
        options = f"--way {' '.join(dict.fromkeys(r.way for r in inside))} {options}"
        pages["accuracy-inside.md"] = _page("Accuracy of diagnose()", how, inside, conditions, options)
    return pages


def _page(title: str, how: str, results: list[Result], conditions: list[str], options: str) -> str:
    ways = dict.fromkeys(r.way for r in results)
    tables = "\n\n".join(WAYS[way] + _table([r for r in results if r.way == way]) for way in ways)
    return PAGE.format(title=title, how=how, tables=tables, conditions="\n".join(conditions), options=options)


def _table(results: list[Result]) -> str:
    rows = [
        *(f"- {text}" for text in totals(results).lines()),
        "",
        "| example | expected | said | true share | said share | error |",
        "|---|---|---|---|---|---|",
    ]
    for example in dict.fromkeys(r.example for r in results):
        mine = [r for r in results if r.example == example]
        said = collections.Counter(_named(r.cause, r.straggler) for r in mine)
        named = "; ".join(f"{name} {count}/{len(mine)}" for name, count in said.most_common())
        expected = _named(example.expected, example.straggler)
        rows.append(f"| {example.name} | {expected} | {named} | {_shares(mine)} |")
    return "\n".join(rows)


def _named(cause: str | None, straggler: int | None) -> str:
    return (cause or "no verdict") + ("" if straggler is None else f", rank {straggler}")


def _shares(results: list[Result]) -> str:
    true = [r.true_share for r in results if r.true_share is not None]
    said = statistics.median(r.said_share for r in results)
    if not true:
        return f"- | {said:.2f} | -"
    error = statistics.median(r.error for r in results if r.error is not None)
    return f"{statistics.median(true):.2f} | {said:.2f} | {error:+.2f}"
