"""Holds the figures in an answer to an agent against the JSON report that it was made from."""

import json
import re
from collections.abc import Iterator
from typing import Any

from perfdoctor.causes import CAUSES
from perfdoctor.reports.outline import SMALL_SHARE
from perfdoctor.reports.text import clean, sentence

FIGURE = re.compile(
    r"(?P<bound>[<>])?(?<![\w.,])(?P<number>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?: ?(?P<unit>%|x(?!\w)|µs|ms|ns|s(?!\w)|min|h(?!\w)|[kMGT]B|bytes))?"
)
_SIZES = {unit: 1000.0**power for power, unit in enumerate(("bytes", "kB", "MB", "GB", "TB"))}
_TIMES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# What the answer says of itself.
_OWN = ("This diagnosis is ", "- […]", "[…]")


def unfounded(text: str, report: dict[str, Any], number: int = 1) -> list[str]:
    """The figures of an answer that the report does not have, each with its line.

    Args:
        text: the answer.
        report: the JSON report.
        number: of the finding that it is about.
    """
    wrong = []
    for heading, line in _lines(text):
        sources = list(_sources(heading, line, report, number))
        told = re.sub(r"^(- )?\d+\. ", "", line)
        wrong += [
            f"{figure[0]} in: {line}"
            for figure in FIGURE.finditer(told)
            if not any(_has(one, figure) for one in sources)
        ]
    return wrong


def _lines(text: str) -> Iterator[tuple[str, str]]:
    heading = ""
    for line in text.split("\n"):
        if re.fullmatch(r"[A-Z][a-z ]+:", line):
            heading = line
        elif not line.startswith(_OWN):
            yield heading, line


def _sources(heading: str, line: str, report: dict[str, Any], number: int) -> Iterator[Any]:
    """Where in the report the figures of a line must be."""
    finding = report["findings"][number - 1] if report["findings"] else {}
    if heading == "":
        yield from (report["verdict"], {key: finding.get(key) for key in ("share", "predicted_speedup", "ranks")})
        yield from (
            finding.get("summary"),
            report["stuck"],
            # The first line may name a change of another finding.
            *(fix[key] for one in report["findings"] for fix in one["fixes"] for key in ("title", "speedup_range")),
        )
    elif heading in ("Do this first:", "Other changes:", "To change:"):
        yield finding["fixes"]
    elif heading == "Evidence:":
        yield from (one for one in finding["evidence"] if line.startswith(f"- {sentence(clean(one['name']))}: "))
    elif heading == "It would be wrong if:":
        yield (finding or report["stuck"])["refuted_by"]
    elif heading == "Who stands where:":
        yield report["stuck"]
    elif heading == "Where the time goes:":
        titles = {
            one["cause"]: one["title"][:1].lower() + one["title"][1:] for one in report["findings"] if one["title"]
        }
        yield from _of_breakdown(line, report["breakdown"], titles)
    elif heading == "Rank by rank:":
        for rank in report["ranks"]:
            if re.match(rf"- Rank {rank['rank']}\b", line):
                yield from (rank, *_small(rank["breakdown"]))
    elif heading == "Other findings:":
        yield from (one for place, one in enumerate(report["findings"], 1) if line.startswith(f"- {place}. "))
    elif heading == "Not examined:":
        yield report["not_examined"]
    elif heading == "Next move:":
        yield from (report["job"], report["stuck"])


def _of_breakdown(line: str, breakdown: list[dict[str, Any]], titles: dict[str, str]) -> Iterator[float]:
    if "other causes, each below" in line:
        yield from _small(breakdown)
    for one in breakdown:
        if line.endswith(f": {titles.get(one['cause'], CAUSES[one['cause']].title)}"):
            yield one["share"]


def _small(breakdown: list[dict[str, Any]]) -> tuple[float, ...]:
    """What is said of the small causes of a breakdown, together."""
    shares = [one["share"] for one in breakdown if 0 < one["share"] < SMALL_SHARE]
    return sum(shares), len(shares), SMALL_SHARE


def _has(source: Any, figure: re.Match[str]) -> bool:
    """Whether a part of the report has a figure: in a text, or as a number in some unit."""
    if isinstance(source, dict):
        return any(_has(one, figure) for one in source.values())
    if isinstance(source, list):
        return any(_has(one, figure) for one in source)
    if isinstance(source, str):
        return any(one["number"] == figure["number"] for one in FIGURE.finditer(source))
    if not isinstance(source, int | float):
        return False
    if figure["bound"]:  # what is neither nothing nor all
        return figure[0] == ("<1%" if 0 < source < 0.005 else ">99%" if 0.995 <= source < 1 else "")
    return _is_written(float(source), figure["number"], figure["unit"])


def _is_written(value: float, written: str, unit: str | None) -> bool:
    """Whether a number is what was written, to the digits that were."""
    digits = written.replace(",", "")
    figure, decimals = float(digits), len(digits.partition(".")[2])
    within = 1.0 if unit in ("min", "h") else 0.5000001 * 10.0**-decimals
    if "e" in digits:
        return abs(value - figure) <= 0.01 * figure
    return any(abs(value * factor - figure) <= within for factor in _factors(unit))


def _factors(unit: str | None) -> list[float]:
    """From a number of the report, in any unit that it may have there, to a figure in this unit."""
    if unit == "%":
        return [100.0, 1.0]
    if unit in _TIMES:
        return [factor / _TIMES[unit] for factor in (1.0, 1e-3, 1e-6, 1e-9)]
    if unit in _SIZES:
        return [factor / _SIZES[unit] for factor in _SIZES.values()]
    return [1.0]


def falsified(text: str) -> Iterator[str]:
    """The answer again and again, each time with another figure changed."""
    for figure in FIGURE.finditer(text):
        digits = figure["number"].replace(",", "")
        first = str((int(digits[0]) + 3) % 9 + 1)
        start, end = figure.span("number")
        yield text[:start] + first + digits[1:] + text[end:]


def size(text: str, values: Any) -> int:
    """Bytes of an answer, counted apart from perfdoctor's own counting."""
    return len(text.encode()) + len(json.dumps(values, ensure_ascii=False).encode())
